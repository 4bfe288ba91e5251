package crawl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/wrap"
	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/internal/store"
	"muster/sites/render"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// handlers implements the tasks of scrapes.
type handlers struct {
	client *tasks.Client
	rdb    redis.UniversalClient
	jobs   *localJobs
}

func (h *handlers) register(mux *tasks.Mux) {
	tasks.HandlePlan(mux, store.Collect, h.collect)
	tasks.Handle(mux, store.Crawl, h.crawl)
	tasks.Handle(mux, store.Aggregate, h.aggregate)
}

// collect starts a job after its dependencies have completed, and returns its crawlers.
func (h *handlers) collect(ctx context.Context, req store.Request) (tasks.Signature[[]tasks.Outcome[int]], error) {
	var none tasks.Signature[[]tasks.Outcome[int]]
	info := tasks.InfoFrom(ctx)
	if err := h.awaitDependencies(ctx, info.Workflow, req); err != nil {
		return none, taskError(err)
	}
	tasks.PublishKey(ctx, "status", "COLLECTING")
	j, err := h.begin(ctx, info.Workflow, req)
	if err != nil {
		return none, taskError(err)
	}
	if err := j.awaitKnown(ctx); err != nil {
		return none, taskError(err)
	}
	if err := j.collect(ctx); err != nil {
		return none, taskError(err)
	}
	if err := j.applyPause(ctx); err != nil { // after collect: a queue without items cannot be paused
		return none, taskError(err)
	}
	crawlers, err := crawlersFor(ctx, h.client, j.def)
	if err != nil {
		return none, taskError(err)
	}
	j.publish(ctx)
	tasks.PublishKey(ctx, "status", "PROCESSING")
	return tasks.Settle(tasks.Each(crawlers, store.Crawl)), nil
}

// crawl processes pages of a job.
func (h *handlers) crawl(ctx context.Context, c store.Crawler) (int, error) {
	info := tasks.InfoFrom(ctx)
	j, err := h.jobs.get(ctx, info.Workflow)
	if err != nil {
		return 0, taskError(err)
	}
	n, err := j.crawler.crawl(ctx, info.Key, c)
	if n > 0 {
		j.publish(ctx)
	}
	return n, crawlError(err)
}

// crawlError is taskError for a crawler. Redis may fail often during a long job, so its errors do not count as attempts.
func crawlError(err error) error {
	if ended := taskError(err); !tasks.Unavailable(err) || !tasks.IsFailure(ended) {
		return ended
	}
	return fmt.Errorf("%w: %w", tasks.Again(time.Second), err)
}

// aggregate closes a job.
func (h *handlers) aggregate(ctx context.Context, crawlers []tasks.Outcome[int]) (report.Summary, error) {
	tasks.PublishKey(ctx, "status", "AGGREGATING")
	j, err := h.jobs.get(ctx, tasks.InfoFrom(ctx).Workflow)
	if err != nil {
		return report.Summary{}, taskError(err)
	}
	var lost []string
	for _, c := range crawlers {
		if c.Err != nil {
			lost = append(lost, c.Err.Error())
		}
	}
	sum, err := j.aggregate(ctx, lost)
	if err != nil {
		return report.Summary{}, h.taskError(ctx, j, err)
	}
	if err := store.Close(ctx, j.rdb, j.run); err != nil {
		return report.Summary{}, err
	}
	j.publish(ctx)
	tasks.PublishKey(ctx, "result_count", fmt.Sprint(sum.Records))
	tasks.PublishKey(ctx, "error_count", fmt.Sprint(sum.Errors))
	h.jobs.forget(j)
	return sum, nil
}

// begin stores the request of a job and returns the job. It is idempotent.
func (h *handlers) begin(ctx context.Context, id string, req store.Request) (*job, error) {
	if err := req.CheckNames(id); err != nil {
		return nil, err
	}
	if err := store.AddJob(ctx, h.rdb, id, req); err != nil {
		return nil, err
	}
	if err := store.Open(ctx, h.rdb, id); err != nil {
		return nil, err
	}
	return h.jobs.get(ctx, id)
}

// taskError converts the error of a step of a job to the error of its task. If the job terminates with it, taskError closes the job.
func (h *handlers) taskError(ctx context.Context, j *job, err error) error {
	if errors.Is(err, errNoStart) {
		if jerr := h.judgeFailed(ctx, j, err); jerr != nil {
			return jerr // retries the task
		}
		if cerr := errors.Join(j.queue.Expire(ctx, store.Keep), store.Close(ctx, j.rdb, j.run)); cerr != nil {
			return errors.Join(err, cerr)
		}
		h.jobs.forget(j)
	}
	return taskError(err)
}

// judgeFailed stores and reports the health of a site after a job without a fetched page.
func (h *handlers) judgeFailed(ctx context.Context, j *job, err error) error {
	health := report.FailedHealth(j.def.Site, j.run, time.Now(), err.Error())
	before, serr := store.HealthOf(ctx, h.rdb, j.def.Site)
	if serr == nil {
		serr = store.SaveHealth(ctx, h.rdb, health, before)
	}
	if serr != nil || h.jobs.cfg.Judged == nil {
		return serr
	}
	return h.jobs.cfg.Judged(ctx, health, store.StatusBefore(before, j.run))
}

// taskError converts an error of a job to an error of its task: it runs the task again later, fails it permanently, or returns
// err, which is retried.
func taskError(err error) error {
	if l, ok := errors.AsType[later](err); ok {
		return tasks.Again(l.after)
	}
	_, wrong := errors.AsType[definition.Problems](err)
	if wrong || errors.Is(err, store.ErrNoJob) || errors.Is(err, errNoStart) || errors.Is(err, errDepends) || errors.Is(err, render.ErrUnavailable) || errors.Is(err, fetch.ErrNoExtractor) || errors.Is(err, store.ErrNames) {
		return tasks.Permanent(err) // a retry would fail again
	}
	return err
}

// Statuses of a job that terminated without a summary.
const (
	StatusFailed   = "FAILED"
	StatusCanceled = "CANCELED"
)

// waitForOthers is the interval at which a job polls its dependencies.
const waitForOthers = time.Second

// errDepends fails a job with an incomplete dependency.
var errDepends = errors.New("not started")

// awaitDependencies returns nil once the dependencies of a job are complete, later while one of them is running, and errDepends
// if one has terminated otherwise. On success it removes them from the stored request: a started job does not wait again.
func (h *handlers) awaitDependencies(ctx context.Context, id string, req store.Request) error {
	if len(req.After) == 0 {
		return nil
	}
	if err := store.AddJob(ctx, h.rdb, id, req); err != nil {
		return err
	}
	stored, err := store.ReadRequest(ctx, h.rdb, id)
	if err != nil || len(stored.After) == 0 {
		return err
	}
	wait := false
	for site, job := range stored.After {
		status, over, err := h.outcome(ctx, job)
		switch {
		case err != nil:
			return err
		case !over:
			wait = true
		case status != report.StatusComplete:
			return fmt.Errorf("%w: it depends on %s, and its job %s has the status %s", errDepends, site, job, status)
		}
	}
	if wait {
		return later{after: waitForOthers}
	}
	stored.After, stored.Began = nil, time.Now().UnixMilli() // the duration of the job counts from here
	spec, err := json.Marshal(stored)
	if err != nil {
		return fmt.Errorf("encode job %s: %w", id, err)
	}
	return wrap.Err(h.rdb.Set(ctx, store.RequestKey(id), spec, store.Keep).Err(), "store job %s", id)
}

// outcome returns the status of a job and whether it has terminated. Unlike Service.Job of package sites it needs no stored request: the sender may
// have crashed before it stored one.
func (h *handlers) outcome(ctx context.Context, id string) (status string, over bool, err error) {
	sum, closed, err := store.ReadJSON[report.Summary](ctx, h.rdb, store.SummaryKey(id))
	if err != nil || closed {
		return sum.Status, closed, err
	}
	switch st, err := h.client.Workflow(id).Status(ctx); {
	case errors.Is(err, tasks.ErrNotFound):
		return "UNKNOWN", true, nil
	case err != nil:
		return "", false, fmt.Errorf("read job %s: %w", id, err)
	case st == tasktype.Revoked:
		return StatusCanceled, true, nil
	case st.Terminal():
		return StatusFailed, true, nil
	}
	return "", false, nil
}
