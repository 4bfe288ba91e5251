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

// jobKinds returns the kinds of jobs that do not run a pipeline.
func jobKinds(client *tasks.Client, scrapes *sites.Service) map[string]jobs.Kind {
	return map[string]jobs.Kind{
		jobs.KindScrape:  scrapeKind{scrapes},
		jobs.KindRefresh: refreshKind{client},
	}
}

// unknown returns the state of a job whose record has expired.
func unknown() jobs.State {
	return jobs.State{Status: jobs.Failed, Error: "result unknown: the record expired before the job was checked"}
}

// refreshName is the name of jobs that refresh the proxy pool.
const refreshName = "proxies"

// track adds a job to the job list. It logs errors, because the job runs nevertheless.
func (s *System) track(ctx context.Context, id, kind, name string) {
	if err := s.Jobs.Track(context.WithoutCancel(ctx), id, kind, name, time.Now()); err != nil {
		s.logger.WarnContext(ctx, "cannot add the running job to the job list", "job", id, "kind", kind, "err", err)
	}
}

// markFinished updates the job list after a job has finished, even if no orchestrator monitors it.
func (s *System) markFinished(ctx context.Context, id string) {
	if _, err := s.Jobs.Get(context.WithoutCancel(ctx), id); err != nil && !errors.Is(err, jobs.ErrNotFound) {
		s.logger.WarnContext(ctx, "cannot update the finished job in the job list", "job", id, "err", err)
	}
}

// TrackScrapes adds the scrapes that started after since to the job list, because the process that sent them may have
// stopped before it did. It is idempotent. Records of scrapes are kept for a week.
func (s *System) TrackScrapes(ctx context.Context, since time.Time) error {
	start, err := s.Sites.JobsSince(ctx, since)
	if err != nil {
		return err
	}
	for _, j := range start {
		if err := s.Jobs.Track(ctx, j.ID, jobs.KindScrape, j.Site, j.Began); err != nil {
			return fmt.Errorf("list scrape %s: %w", j.ID, err)
		}
	}
	return nil
}

// reconcile returns a function that adds scrapes to the job list: in the first call the scrapes of the last week, then
// the scrapes since the previous call. It must not be called concurrently.
func (s *System) reconcile() func(context.Context) error {
	since := time.Now().Add(-7 * 24 * time.Hour)
	return func(ctx context.Context) error {
		start := time.Now()
		if err := s.TrackScrapes(ctx, since); err != nil {
			return err
		}
		since = start.Add(-time.Minute) // the clocks of processes differ
		return nil
	}
}

// scrapeKind implements jobs.Kind for scrapes. Their items are pages.
type scrapeKind struct{ sites *sites.Service }

// State returns the state of a scrape.
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

// Cancel cancels a scrape. Fetched records are written.
func (k scrapeKind) Cancel(ctx context.Context, id string) error {
	err := k.sites.Cancel(ctx, id)
	if errors.Is(err, sites.ErrNoJob) {
		return fmt.Errorf("scrape %s: %w", id, jobs.ErrNotFound)
	}
	return err
}

// Forget removes a scrape from the list of scrapes. It can still be resumed by ID.
func (k scrapeKind) Forget(ctx context.Context, id string) error { return k.sites.Unlist(ctx, id) }

// scrapeState converts the state of a scrape to the state of a job.
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

// countsOf converts the counts of a queue to item counts of a job.
func countsOf(s workqueue.Stats) jobs.Counts {
	return jobs.Counts{
		Total: s.Total, Pending: s.Queued, Validating: s.InProgress,
		Integrated: s.Done, Rejected: s.Skipped, Failed: s.Error,
	}
}

// refreshKind implements jobs.Kind for refreshes of the proxy pool. Their items are chunks of candidates.
type refreshKind struct{ client *tasks.Client }

// State returns the state of a refresh.
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
	r, err := run.Wait(ctx) // does not block, because the workflow has finished
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

// Cancel revokes a refresh. The pool does not change.
func (k refreshKind) Cancel(ctx context.Context, id string) error { return k.client.Revoke(ctx, id) }

// Forget does nothing: the job list is the only list of refreshes.
func (k refreshKind) Forget(context.Context, string) error { return nil }

// workflowState converts the status of a workflow to the state of a job.
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

// endOf returns the time at which the last task of a workflow finished.
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
