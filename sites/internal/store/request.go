package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/wrap"
	"muster/sites/definition"
	"muster/sites/report"
	"muster/tasks"
)

// ErrNoJob means that a job does not exist or ended more than a week ago.
var ErrNoJob = errors.New("no such job; jobs are known for a week after their end")

// ErrNames means that a request has an invalid name of a site or a job.
var ErrNames = errors.New("the request has an invalid name")

// Request is the input of a scrape. It contains the whole definition, so that workers do not need the sender's files. Only the
// sender and processes with the same OutDir and Sinks in their settings write there: a client that sends tasks must not choose
// where a worker writes.
type Request struct {
	Site    string        `json:"site"`
	File    string        `json:"file"`
	YAML    string        `json:"yaml"`
	BaseURL string        `json:"base_url,omitempty"`
	Limit   int           `json:"limit,omitempty"`
	Direct  report.Direct `json:"direct,omitempty"`
	CSV     bool          `json:"csv,omitempty"`
	Full    bool          `json:"full,omitempty"`
	OutDir  string        `json:"out_dir"`
	Home    string        `json:"home"` // identifies OutDir among processes that may share it
	Sinks   []string      `json:"sinks,omitempty"`
	Began   int64         `json:"began,omitempty"` // unix milliseconds; set when the job begins
	// Resume is the job that this one continues.
	Resume string `json:"resume,omitempty"`
	// After maps sites to jobs that must complete first.
	After map[string]string `json:"after,omitempty"`
}

// Definition parses the definition of the site.
func (r Request) Definition() (*definition.Definition, error) {
	def, err := definition.Parse(r.File, []byte(r.YAML))
	if err == nil && def.Site != r.Site {
		err = fmt.Errorf("the definition is for site %s, but the request for %q: %w", def.Site, r.Site, ErrNames)
	}
	if err != nil {
		return nil, err
	}
	return def.WithBase(r.BaseURL)
}

// SkipsKnown reports whether the job does not fetch known pages of its definition.
func (r Request) SkipsKnown(def *definition.Definition) bool { return !r.Full && !def.Refetch.IsZero() }

// PagesOf returns the job with the pages and records of a job: the resumed job, or the job itself.
func (r Request) PagesOf(id string) string {
	if r.Resume != "" {
		return r.Resume
	}
	return id
}

// Dir returns the records directory of a job.
func (r Request) Dir(id string) string { return filepath.Join(r.OutDir, r.Site, r.PagesOf(id)) }

// validName matches IDs of jobs, which are part of paths.
var validName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// CheckNames returns ErrNames if a name in the request of a job is invalid.
func (r Request) CheckNames(id string) error {
	if !validName.MatchString(id) || r.Resume != "" && !validName.MatchString(r.Resume) {
		return fmt.Errorf("invalid job ID %q or resumed job %q: %w", id, r.Resume, ErrNames)
	}
	if r.Site != filepath.Base(r.Site) || !filepath.IsLocal(r.Site) {
		return fmt.Errorf("invalid site name %q: %w", r.Site, ErrNames)
	}
	return nil
}

// ReadRequest reads the request of a job. The error is ErrNoJob if the job does not exist.
func ReadRequest(ctx context.Context, rdb redis.UniversalClient, id string) (Request, error) {
	req, ok, err := ReadJSON[Request](ctx, rdb, RequestKey(id))
	switch {
	case err != nil:
		return req, err
	case !ok:
		return req, fmt.Errorf("job %s: %w", id, ErrNoJob)
	}
	return req, req.CheckNames(id)
}

// AddJob stores the request of a job and lists the job, unless it is already stored. It sets req.Began.
func AddJob(ctx context.Context, rdb redis.UniversalClient, id string, req Request) error {
	now := time.Now()
	req.Began = now.UnixMilli()
	data, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode job %s: %w", id, err)
	}
	_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SetNX(ctx, RequestKey(id), data, Keep)
		p.ZAddNX(ctx, JobsKey, redis.Z{Score: float64(now.UnixMilli()), Member: id + " " + req.Site})
		p.ZRemRangeByScore(ctx, JobsKey, "-inf", fmt.Sprint(now.Add(-Keep).UnixMilli()))
		return nil
	})
	return wrap.Err(err, "store job %s", id)
}

// Open records that a job will have records to write. It is idempotent.
func Open(ctx context.Context, rdb redis.UniversalClient, run string) error {
	return wrap.Err(rdb.SAdd(ctx, OpenJobsKey, run).Err(), "store job %s", run)
}

// Close records that a job will have no more records to write.
func Close(ctx context.Context, rdb redis.UniversalClient, run string) error {
	return wrap.Err(rdb.SRem(ctx, OpenJobsKey, run).Err(), "close job %s", run)
}

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
