package store

import (
	"time"

	"muster/sites/report"
	"muster/tasks"
)

// Queue is the task queue that scrapes run in.
const Queue = "scrape"

// The tasks of a scrape.
var (
	Collect   = tasks.New[Request, []Chunk]("sites.collect", tasks.Queue(Queue), tasks.Timeout(30*time.Minute), tasks.MaxRetry(10), tasks.Backoff(time.Second, 30*time.Second))
	Scrape    = tasks.New[Chunk, report.Counts]("sites.scrape", tasks.Queue(Queue), tasks.Timeout(10*time.Minute), tasks.HardTimeout(12*time.Minute), tasks.MaxRetry(10), tasks.Backoff(time.Second, 30*time.Second))
	Aggregate = tasks.New[[]tasks.Outcome[report.Counts], report.Summary]("sites.aggregate", tasks.Queue(Queue), tasks.Timeout(30*time.Minute), tasks.MaxRetry(10), tasks.Backoff(time.Second, 30*time.Second))
)

// Chunk is a share of the pages of a job. Which pages those are is in Redis:
// the ids of a million would be too much for the result of a task.
type Chunk struct {
	Site  string `json:"site"`
	Part  int    `json:"part"`  // its number in the job
	Pages int    `json:"pages"` // how many it has
}

// ProgressPrefix is the prefix of the progress keys of a site's jobs.
func ProgressPrefix(site string) string { return "scrape_" + site }

// QueueName names the work queue with the pages of a job.
func QueueName(site, id string) string { return ProgressPrefix(site) + ":" + id }
