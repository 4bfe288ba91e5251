package sites

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/sites/definition"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks"
)

// handlers runs the tasks of scrapes.
type handlers struct {
	client *tasks.Client
	rdb    redis.UniversalClient
	jobs   *localJobs
}

func (h *handlers) register(mux *tasks.Mux) {
	tasks.Handle(mux, store.Collect, h.collect)
	tasks.Handle(mux, store.Scrape, h.scrape)
	tasks.Handle(mux, store.Aggregate, h.aggregate)
}

// collect begins a job when the jobs that it waits for are complete, and returns
// its chunks.
func (h *handlers) collect(ctx context.Context, req store.Request) ([]store.Chunk, error) {
	info := tasks.InfoFrom(ctx)
	if err := h.awaitDependencies(ctx, info.Workflow, req); err != nil {
		return nil, taskError(err)
	}
	tasks.PublishKey(ctx, "status", "COLLECTING")
	j, err := h.begin(ctx, info.Workflow, req)
	if err != nil {
		return nil, taskError(err)
	}
	if err := j.applyPause(ctx); err != nil {
		return nil, taskError(err)
	}
	chunks, err := j.collect(ctx, info.Key)
	j.publish(ctx)
	if err != nil {
		return nil, h.ended(ctx, j, err)
	}
	total := 0
	for _, c := range chunks {
		total += c.Pages
	}
	tasks.PublishKey(ctx, "total_urls", fmt.Sprint(total))
	return chunks, nil
}

// scrape fetches the pages of a chunk.
func (h *handlers) scrape(ctx context.Context, c store.Chunk) (report.Counts, error) {
	info := tasks.InfoFrom(ctx)
	j, err := h.jobs.get(ctx, info.Workflow)
	if err != nil {
		return report.Counts{}, taskError(err)
	}
	counts, err := j.chunk(ctx, info.Key, c)
	j.publish(ctx)
	return counts, h.ended(ctx, j, err)
}

// aggregate closes a job.
func (h *handlers) aggregate(ctx context.Context, chunks []tasks.Outcome[report.Counts]) (report.Summary, error) {
	tasks.PublishKey(ctx, "status", "AGGREGATING")
	j, err := h.jobs.get(ctx, tasks.InfoFrom(ctx).Workflow)
	if err != nil {
		return report.Summary{}, taskError(err)
	}
	var counts []report.Counts
	var lost []string
	for _, c := range chunks {
		if c.Err != nil {
			lost = append(lost, c.Err.Error())
			continue
		}
		counts = append(counts, c.Value)
	}
	sum, err := j.aggregate(ctx, counts, lost)
	if err != nil {
		return report.Summary{}, h.ended(ctx, j, err)
	}
	if err := errors.Join(store.Close(ctx, j.rdb, j.run), j.rdb.Unlink(ctx, store.ChunksKey(j.run)).Err()); err != nil {
		return report.Summary{}, err
	}
	tasks.PublishKey(ctx, "result_count", fmt.Sprint(sum.Records))
	tasks.PublishKey(ctx, "error_count", fmt.Sprint(sum.Errors))
	h.jobs.forget(j)
	if err := sum.Err(); err != nil {
		return report.Summary{}, tasks.Permanent(err)
	}
	return sum, nil
}

// begin stores what a job scrapes and returns the job. A second call with the
// same job changes nothing.
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

// ended returns the error of a step of a job as the error of its task. When
// the job ends with it, it closes the job.
func (h *handlers) ended(ctx context.Context, j *job, err error) error {
	if errors.Is(err, errNoStart) {
		if jerr := h.judgeFailed(ctx, j, err); jerr != nil {
			return jerr // the task is retried
		}
		if cerr := store.Close(ctx, j.rdb, j.run); cerr != nil {
			return errors.Join(err, cerr)
		}
		h.jobs.forget(j)
	}
	return taskError(err)
}

// judgeFailed stores the health of a site whose job could not begin, and reports it.
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

// taskError returns the error of a task for an error of its job: one that runs
// the task again later, one that ends it, or err itself, which is retried.
func taskError(err error) error {
	if l, ok := errors.AsType[later](err); ok {
		return tasks.Again(max(l.after, 10*time.Millisecond))
	}
	_, wrong := errors.AsType[definition.Problems](err)
	if wrong || errors.Is(err, store.ErrNoJob) || errors.Is(err, errNoStart) || errors.Is(err, errNoChunk) || errors.Is(err, errDepends) || errors.Is(err, store.ErrNames) {
		return tasks.Permanent(err) // a retry would fail alike
	}
	return err
}
