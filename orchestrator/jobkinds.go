package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"muster/jobs"
	"muster/proxies"
	"muster/sites"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/tasktype"
	"muster/tasks/workqueue"
)

// jobKinds are the kinds of jobs that something else than a pipeline runs.
func jobKinds(client *tasks.Client, scrapes *sites.Service) map[string]jobs.Kind {
	return map[string]jobs.Kind{
		jobs.KindScrape:  scrapeKind{scrapes},
		jobs.KindRefresh: refreshKind{client},
	}
}

// unknown is the state of a job that is no longer kept where it ran.
func unknown() jobs.State {
	return jobs.State{Status: jobs.Failed, Error: "how it ended was not noticed in time, and is no longer known"}
}

// refreshName is the name of the jobs that refresh the pool of proxies.
const refreshName = "proxies"

// track adds a job that was sent to the list of all jobs. A job that cannot be
// listed runs nevertheless.
func (s *System) track(ctx context.Context, id, kind, name string) {
	if err := s.Jobs.Track(context.WithoutCancel(ctx), id, kind, name, time.Now()); err != nil {
		s.logger.WarnContext(ctx, "the job runs, and is not in the list of jobs", "job", id, "kind", kind, "err", err)
	}
}

// ended has the list of all jobs notice that a job has ended, also where no
// orchestrator looks after it.
func (s *System) ended(ctx context.Context, id string) {
	if _, err := s.Jobs.Get(context.WithoutCancel(ctx), id); err != nil && !errors.Is(err, jobs.ErrNotFound) {
		s.logger.WarnContext(ctx, "the job has ended, and is listed as before", "job", id, "err", err)
	}
}

// TrackScrapes adds the scrapes that began after since to the list of all jobs:
// those of processes that ended before they did so. Listing one again changes
// nothing. The records of scrapes are kept for a week.
func (s *System) TrackScrapes(ctx context.Context, since time.Time) error {
	began, err := s.Sites.JobsSince(ctx, since)
	if err != nil {
		return err
	}
	for _, j := range began {
		if err := s.Jobs.Track(ctx, j.ID, jobs.KindScrape, j.Site, j.Began); err != nil {
			return fmt.Errorf("list scrape %s: %w", j.ID, err)
		}
	}
	return nil
}

// reconcile returns a function that adds the scrapes of the last week to the list of
// all jobs, and then those since its last call. It may be called by one goroutine
// at a time.
func (s *System) reconcile() func(context.Context) error {
	since := time.Now().Add(-7 * 24 * time.Hour)
	return func(ctx context.Context) error {
		began := time.Now()
		if err := s.TrackScrapes(ctx, since); err != nil {
			return err
		}
		since = began.Add(-time.Minute) // the clocks of processes differ
		return nil
	}
}

// scrapeKind are the scrapes of sites. Their items are pages.
type scrapeKind struct{ sites *sites.Service }

// State returns how far a scrape is.
func (k scrapeKind) State(ctx context.Context, id string) (jobs.State, error) {
	j, err := k.sites.Job(ctx, id)
	if errors.Is(err, sites.ErrNoJob) {
		return unknown(), nil
	}
	if err != nil {
		return jobs.State{}, err
	}
	return scrapeState(j), nil
}

// Cancel ends a scrape. What it has fetched is written.
func (k scrapeKind) Cancel(ctx context.Context, id string) error {
	err := k.sites.Cancel(ctx, id)
	if errors.Is(err, sites.ErrNoJob) {
		return fmt.Errorf("scrape %s: %w", id, jobs.ErrNotFound)
	}
	return err
}

// Forget takes a scrape off the list of scrapes. It can still be resumed by its id.
func (k scrapeKind) Forget(ctx context.Context, id string) error { return k.sites.Unlist(ctx, id) }

// scrapeState returns the state of a scrape as that of a job.
func scrapeState(j sites.Job) jobs.State {
	s := jobs.State{Status: jobs.Processing, Items: countsOf(j.Pages), Error: j.Error}
	switch j.Status {
	case sites.JobWaiting:
		if s.Status = jobs.Created; len(j.WaitsFor) > 0 {
			s.Waiting = "for " + strings.Join(j.WaitsFor, ", ")
		} else {
			s.Waiting = "for a worker"
		}
	case sites.JobRunning:
	case sites.JobPaused:
		s.Waiting = "the site is paused"
	case sites.JobBlocked:
		s.Waiting = "blocked: " + j.Trouble
	case sites.JobCanceled:
		s.Status = jobs.Cancelled
	case report.StatusComplete:
		s.Status = jobs.Completed
	default: // failed, or not complete
		s.Status = jobs.Failed
		if j.Summary != nil {
			s.Error = "the scrape is " + j.Summary.Status + reasons(*j.Summary)
		}
	}
	if j.Summary != nil {
		s.Ended = j.Began.Add(time.Duration(j.Summary.Seconds * float64(time.Second)))
	}
	return s
}

// countsOf returns the items of a queue as those of a job.
func countsOf(s workqueue.Stats) jobs.Counts {
	return jobs.Counts{
		Total: s.Total, Pending: s.Queued, Validating: s.InProgress,
		Integrated: s.Done, Rejected: s.Skipped, Failed: s.Error,
	}
}

// refreshKind are the refreshes of the pool of proxies. Their items are chunks of
// candidates.
type refreshKind struct{ client *tasks.Client }

// State returns how far a refresh is.
func (k refreshKind) State(ctx context.Context, id string) (jobs.State, error) {
	run := tasks.Attach[proxies.Report](k.client, id)
	p, err := run.Progress(ctx)
	if errors.Is(err, tasks.ErrUnknown) {
		return unknown(), nil
	}
	if err != nil {
		return jobs.State{}, err
	}
	s := workflowState(p.Status)
	s.Items = jobs.Counts{Total: int64(p.Chunks), Pending: int64(p.Chunks - p.ChunksDone), Integrated: int64(p.ChunksDone)}
	if !p.Status.Terminal() {
		return s, nil
	}
	r, err := run.Wait(ctx) // does not block: it has ended
	failure, failed := errors.AsType[*tasks.Failure](err)
	switch {
	case failed:
		s.Error = failure.Message
	case err != nil:
		return jobs.State{}, err
	}
	failedChunks := min(int64(r.Errors), s.Items.Integrated)
	s.Items.Integrated -= failedChunks
	s.Items.Failed = failedChunks
	s.Ended, err = endOf(ctx, k.client, id)
	return s, err
}

// Cancel revokes a refresh. The pool stays as it is.
func (k refreshKind) Cancel(ctx context.Context, id string) error { return k.client.Revoke(ctx, id) }

// Forget does nothing: no list but that of all jobs has a refresh.
func (k refreshKind) Forget(context.Context, string) error { return nil }

// workflowState returns the state of a workflow as that of a job.
func workflowState(s tasktype.Status) jobs.State {
	switch s {
	case tasktype.Success:
		return jobs.State{Status: jobs.Completed}
	case tasktype.Failed, tasktype.Skipped:
		return jobs.State{Status: jobs.Failed}
	case tasktype.Revoked:
		return jobs.State{Status: jobs.Cancelled}
	case tasktype.Pending:
		return jobs.State{Status: jobs.Created, Waiting: "for a worker"}
	}
	return jobs.State{Status: jobs.Processing}
}

// endOf returns when the last task of a workflow ended.
func endOf(ctx context.Context, client *tasks.Client, id string) (time.Time, error) {
	nodes, err := client.Nodes(ctx, id)
	if err != nil {
		return time.Time{}, err
	}
	var end time.Time
	for _, n := range nodes {
		if n.Ended.After(end) {
			end = n.Ended
		}
	}
	return end, nil
}
