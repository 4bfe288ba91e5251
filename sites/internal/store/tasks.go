package store

import (
	"time"

	"muster/sites/report"
	"muster/tasks"
)

// Queue is the task queue of scrapes.
const Queue = "scrape"

// The tasks of a scrape. Collect queues the start pages and returns a group of crawlers. Crawl is a crawler and returns the
// number of pages that its last run settled.
var (
	Collect   = tasks.New[Request, []tasks.Outcome[int]]("sites.collect", tasks.Queue(Queue), tasks.Timeout(30*time.Minute), tasks.MaxRetry(10), tasks.Backoff(time.Second, 30*time.Second))
	Crawl     = tasks.New[Crawler, int]("sites.crawl", tasks.Queue(Queue), tasks.Timeout(10*time.Minute), tasks.HardTimeout(12*time.Minute), tasks.MaxRetry(10), tasks.Backoff(time.Second, 30*time.Second))
	Aggregate = tasks.New[[]tasks.Outcome[int], report.Summary]("sites.aggregate", tasks.Queue(Queue), tasks.Timeout(30*time.Minute), tasks.MaxRetry(10), tasks.Backoff(time.Second, 30*time.Second))
)

// Scrape returns the workflow of a scrape.
func Scrape(req Request) tasks.Signature[report.Summary] {
	return tasks.Chord(Collect.S(req), Aggregate)
}

// Crawler identifies a crawler of a job.
type Crawler struct {
	Site   string `json:"site"`
	Number int    `json:"number"`
	Of     int    `json:"of"` // number of crawlers of the job
}

// ProgressPrefix returns the prefix of the progress keys of a site's jobs.
func ProgressPrefix(site string) string { return "scrape_" + site }

// QueueName returns the name of the work queue with the pages of a job.
func QueueName(site, id string) string { return ProgressPrefix(site) + ":" + id }
