package sites

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/tasktype"
	"muster/tasks/workqueue"
)

// The statuses of a Job beside those of a Summary.
const (
	JobWaiting  = "WAITING" // for a worker, or for the jobs that it depends on
	JobRunning  = "RUNNING"
	JobPaused   = "PAUSED"  // by PauseSite
	JobBlocked  = "BLOCKED" // its records, or its state in Redis, cannot be written; Trouble is the reason
	JobFailed   = "FAILED"
	JobCanceled = "CANCELED"
)

// Job is a scrape of a site, under way or over.
type Job struct {
	ID      string        `json:"id"`
	Site    string        `json:"site"`
	Status  string        `json:"status"`
	Began   time.Time     `json:"began"`
	Resumes string        `json:"resumes,omitempty"` // the job that it continues
	Direct  report.Direct `json:"direct,omitempty"`  // why it uses no proxies, if so
	// WaitsFor are the sites whose jobs it waits for.
	WaitsFor []string        `json:"waits_for,omitempty"`
	Pages    workqueue.Stats `json:"pages"`
	Records  map[string]int  `json:"records"`          // those that are written, by type
	Delays   map[string]int  `json:"delays,omitempty"` // how often pages waited, by Delay
	Trouble  string          `json:"trouble,omitempty"`
	Error    string          `json:"error,omitempty"`   // of one that failed
	Summary  *report.Summary `json:"summary,omitempty"` // of one that is over
}

// Over reports whether the job has ended.
func (j *Job) Over() bool {
	return j.Summary != nil || j.Status == JobFailed || j.Status == JobCanceled
}

// Jobs lists up to n scrapes of a site, or of all sites when it is "", the newest
// first. Redis has those that began in the last week.
func (r *Reader) Jobs(ctx context.Context, site string, n int) ([]Job, error) {
	ids, err := r.client.Redis().ZRevRange(ctx, store.JobsKey, 0, 9999).Result()
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	var of map[string]string
	if site != "" {
		if of, err = r.siteNames.of(ctx, r.client.Redis(), ids); err != nil {
			return nil, err
		}
	}
	jobs := []Job{}
	for _, id := range ids {
		if len(jobs) == n {
			break
		}
		if site != "" && of[id] != site {
			continue
		}
		j, err := r.Job(ctx, id)
		if errors.Is(err, store.ErrNoJob) {
			continue
		}
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// JobBegan is a scrape and when it began.
type JobBegan struct {
	ID    string
	Site  string
	Began time.Time
}

// JobsSince lists the newest 10,000 scrapes that began at a time or later, the
// newest first, without their states.
func (r *Reader) JobsSince(ctx context.Context, since time.Time) ([]JobBegan, error) {
	rdb := r.client.Redis()
	listed, err := rdb.ZRevRangeByScoreWithScores(ctx, store.JobsKey, &redis.ZRangeBy{
		Min: fmt.Sprint(since.UnixMilli()), Max: "+inf", Count: 10_000,
	}).Result()
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	ids := make([]string, len(listed))
	for i, z := range listed {
		ids[i], _ = z.Member.(string)
	}
	of, err := r.siteNames.of(ctx, rdb, ids)
	if err != nil {
		return nil, err
	}
	began := []JobBegan{}
	for i, id := range ids {
		if site := of[id]; site != "" { // else its request has expired
			began = append(began, JobBegan{id, site, time.UnixMilli(int64(listed[i].Score))})
		}
	}
	return began, nil
}

// Job returns the state of a scrape, or its result when it is over. It fails with
// ErrNoJob when there is none.
func (r *Reader) Job(ctx context.Context, id string) (Job, error) {
	rdb := r.client.Redis()
	req, err := store.ReadRequest(ctx, rdb, id)
	if err != nil {
		return Job{}, err
	}
	j := Job{ID: id, Site: req.Site, Began: time.UnixMilli(req.Began), Resumes: req.Resume, Direct: req.Direct}
	q := workqueue.New(rdb, store.QueueName(req.Site, req.PagesOf(id)), workqueue.Config{})
	if j.Pages, err = q.Stats(ctx); err != nil {
		return Job{}, err
	}
	if j.Records, j.Trouble, err = store.Written(ctx, q.Outputs()); err != nil {
		return Job{}, err
	}
	if j.Delays, err = readCounts(ctx, rdb, store.DelaysKey(req.PagesOf(id))); err != nil {
		return Job{}, err
	}
	if sum, ok, err := store.ReadJSON[report.Summary](ctx, rdb, store.SummaryKey(id)); err != nil {
		return Job{}, err
	} else if ok {
		j.Summary, j.Status = &sum, sum.Status
		return j, nil
	}
	status, err := tasks.Attach[report.Summary](r.client, id).Status(ctx)
	switch {
	case errors.Is(err, tasks.ErrUnknown):
		j.Status, j.Error = JobFailed, "it ended, and its result is not known"
	case err != nil:
		return Job{}, fmt.Errorf("look at job %s: %w", id, err)
	case status == tasktype.Revoked:
		j.Status = JobCanceled
	case status == tasktype.Failed || status == tasktype.Skipped:
		j.Status = JobFailed
		j.Error, err = r.failure(ctx, id)
	default:
		j.Status, err = r.progress(ctx, &j, req, status)
	}
	if err != nil {
		return Job{}, err
	}
	return j, nil
}

// progress returns the status of a job that has not failed, and sets Trouble or
// WaitsFor.
func (r *Reader) progress(ctx context.Context, j *Job, req store.Request, status tasktype.Status) (string, error) {
	if len(req.After) > 0 {
		j.WaitsFor = slices.Sorted(maps.Keys(req.After))
		return JobWaiting, nil
	}
	if j.Trouble != "" {
		return JobBlocked, nil
	}
	if !status.Terminal() { // when Redis refuses writes, the writer cannot store that
		if err := r.client.Writable(ctx); tasks.Refused(err) {
			j.Trouble = err.Error()
			return JobBlocked, nil
		}
	}
	if j.Pages.Paused {
		return JobPaused, nil
	}
	if j.Pages.Outputs > 0 {
		var err error
		if j.Trouble, err = r.recorder.Unwritten(ctx, req); err != nil {
			return "", err
		}
		if j.Trouble != "" {
			return JobBlocked, nil
		}
	}
	served, err := r.served(ctx)
	if err != nil {
		return "", err
	}
	begun := status != tasktype.Pending || j.Pages.Total > 0 || j.Pages.InProgress > 0
	if !served || !begun {
		return JobWaiting, nil
	}
	return JobRunning, nil
}

// served reports whether a running worker takes tasks of scrapes.
func (r *Reader) served(ctx context.Context) (bool, error) {
	workers, err := r.client.Workers(ctx)
	if err != nil {
		return false, fmt.Errorf("look for workers: %w", err)
	}
	return slices.ContainsFunc(workers, func(w tasktype.Worker) bool { return w.Queues[Queue] > 0 }), nil
}

// failure returns why a job failed.
func (r *Reader) failure(ctx context.Context, id string) (string, error) {
	_, err := tasks.Attach[report.Summary](r.client, id).Wait(ctx) // does not block: the job has ended
	if f, ok := errors.AsType[*tasks.Failure](err); ok {
		return f.Message, nil
	}
	if err != nil && !errors.Is(err, tasks.ErrUnknown) {
		return "", fmt.Errorf("look at job %s: %w", id, err)
	}
	return "", nil
}
