package orchestrator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/orchestrator/job"
	"muster/proxies"
	"muster/sites"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/workqueue"
)

func TestScrapeStateIsThatOfAJob(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		scrape sites.Job
		want   job.State
	}{
		"waits for a worker": {
			sites.Job{Status: sites.JobWaiting},
			job.State{Status: job.Created, Waiting: "for a worker"},
		},
		"waits for sites": {
			sites.Job{Status: sites.JobWaiting, WaitsFor: []string{"a.example", "b.example"}},
			job.State{Status: job.Created, Waiting: "for a.example, b.example"},
		},
		"runs": {
			sites.Job{Status: sites.JobRunning, Pages: workqueue.Stats{Total: 15, Queued: 5, InProgress: 4, Done: 3, Skipped: 2, Error: 1}},
			job.State{Status: job.Processing, Items: job.Counts{Total: 15, Pending: 5, Validating: 4, Integrated: 3, Rejected: 2, Failed: 1}},
		},
		"paused": {
			sites.Job{Status: sites.JobPaused},
			job.State{Status: job.Processing, Waiting: "the site is paused"},
		},
		"blocked": {
			sites.Job{Status: sites.JobBlocked, Trouble: "the disk is full"},
			job.State{Status: job.Processing, Waiting: "blocked: the disk is full"},
		},
		"complete": {
			sites.Job{Status: report.StatusComplete, Began: began, Summary: &report.Summary{Status: report.StatusComplete, Seconds: 90}},
			job.State{Status: job.Completed, Ended: began.Add(90 * time.Second)},
		},
		"incomplete": {
			sites.Job{Status: report.StatusIncomplete, Began: began, Summary: &report.Summary{Status: report.StatusIncomplete, Missing: []string{"/list"}}},
			job.State{Status: job.Failed, Error: "the scrape is INCOMPLETE, without 1 listing pages, such as /list", Ended: began},
		},
		"failed": {
			sites.Job{Status: sites.JobFailed, Error: "no start page could be fetched"},
			job.State{Status: job.Failed, Error: "no start page could be fetched"},
		},
		"canceled": {
			sites.Job{Status: sites.JobCanceled},
			job.State{Status: job.Cancelled},
		},
	} {
		if got := scrapeState(c.scrape); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// onSystem runs fn with a system that has no workers.
func onSystem(t *testing.T, fn func(context.Context, *Orchestrator)) {
	t.Helper()
	err := Run(t.Context(), settings(t), Options{}, func(ctx context.Context, o *Orchestrator) error {
		fn(ctx, o)
		return nil
	})
	if err != nil {
		t.Errorf("run: %v", err)
	}
}

func TestAJobThatIsNoLongerKnownHasFailed(t *testing.T) {
	t.Parallel()
	onSystem(t, func(ctx context.Context, o *Orchestrator) {
		for name, kind := range jobKinds(o.Client, o.Sites) {
			if got, err := kind.State(ctx, "none_1"); err != nil || got.Status != job.Failed || got.Error == "" {
				t.Errorf("%s: got %+v, %v, want a failed job that says why", name, got, err)
			}
		}
	})
}

// TestDeletedScrapeStaysDeleted has the sweep of an orchestrator that starts again look for the scrapes of the last week.
func TestDeletedScrapeStaysDeleted(t *testing.T) {
	t.Parallel()
	onSystem(t, func(ctx context.Context, o *Orchestrator) {
		run, err := o.Sites.Send(ctx, "quotes.toscrape.com", sites.ScrapeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Sites.Cancel(ctx, run.ID()); err != nil {
			t.Fatal(err)
		}
		again := o.reconcile()
		if err := again(ctx); err != nil {
			t.Fatal(err)
		}
		if j, err := o.Jobs.Get(ctx, run.ID()); err != nil || j.Status != job.Cancelled {
			t.Fatalf("got %+v, %v, want a cancelled job", j, err)
		}
		if err := o.Jobs.Delete(ctx, run.ID()); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second looks back for a minute only
			if err := again(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.reconcile()(ctx); err != nil {
			t.Fatal(err)
		}
		if j, err := o.Jobs.Get(ctx, run.ID()); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("got %+v, %v, want %v", j, err, job.ErrNotFound)
		}
	})
}

func TestRefreshIsAJobOfChunks(t *testing.T) {
	t.Parallel()
	cfg, _ := worldSettings(t)
	err := Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
		run, err := o.Refresh(ctx).Send(ctx, o.Client)
		if err != nil {
			return err
		}
		kind := refreshKind{o.Client}
		if got, err := kind.State(ctx, run.ID()); err != nil || got.Status != job.Created || got.Waiting == "" {
			t.Errorf("before a worker runs: got %+v, %v, want a created job that waits", got, err)
		}
		if err := o.Workers.Start(ctx); err != nil {
			return err
		}
		var r proxies.Report
		if r, err = run.Wait(ctx); err != nil {
			return err
		}
		got, err := kind.State(ctx, run.ID())
		if err != nil || got.Status != job.Completed || got.Items.Integrated == 0 || got.Items.Integrated != got.Items.Total || got.Ended.IsZero() {
			t.Errorf("after %+v: got %+v, %v, want a completed job with its chunks and end", r, got, err)
		}
		return nil
	})
	if err != nil {
		t.Errorf("run: %v", err)
	}
}

// begin runs a QueueRun until stop is called, which returns what Run did.
func begin(ctx context.Context, t *testing.T, o *Orchestrator, queue string) (r *QueueRun, stop func() error) {
	t.Helper()
	r, err := o.NewQueueRun(ctx, queue)
	if err != nil {
		t.Fatal(err)
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(running) }()
	return r, func() error { cancel(); return <-ended }
}

func TestRunOfAQueueIsAJob(t *testing.T) {
	t.Parallel()
	onSystem(t, func(ctx context.Context, o *Orchestrator) {
		queue := workqueue.New(o.Client.Redis(), "files", workqueue.Config{})
		if _, err := queue.Enqueue(ctx, workqueue.Item{ID: "a", Kind: "x"}); err != nil {
			t.Fatal(err)
		}
		kind := queueKind{o.Client}
		r, stop := begin(ctx, t, o, "files")
		var got job.State
		testutil.Eventually(t, "the job to be under way", func() bool {
			var err error
			got, err = kind.State(ctx, r.ID())
			return err == nil && got.Status == job.Processing
		})
		if want := (job.Counts{Total: 1, Pending: 1}); got.Items != want {
			t.Errorf("got %+v, want %+v", got.Items, want)
		}
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		if err := r.End(ctx, workqueue.Stats{Total: 2, Done: 2}, nil); err != nil {
			t.Errorf("end: %v", err)
		}
		got, err := kind.State(ctx, r.ID())
		if want := (job.Counts{Total: 2, Integrated: 2}); err != nil || got.Status != job.Completed || got.Items != want || got.Ended.IsZero() {
			t.Errorf("after the end: got %+v, %v, want a completed job with %+v", got, err, want)
		}
	})
}

func TestRunOfAQueueThatFailsIsAFailedJob(t *testing.T) {
	t.Parallel()
	onSystem(t, func(ctx context.Context, o *Orchestrator) {
		r, err := o.NewQueueRun(ctx, "files") // it ends before it is open
		if err != nil {
			t.Fatal(err)
		}
		if err := r.End(ctx, workqueue.Stats{}, errors.New("no disk")); err != nil {
			t.Errorf("end: %v", err)
		}
		got, err := queueKind{o.Client}.State(ctx, r.ID())
		if err != nil || got.Status != job.Failed || got.Error != "no disk" {
			t.Errorf("got %+v, %v, want a job that failed with: no disk", got, err)
		}
	})
}

func TestRunOfAQueueStopsWhenItsJobIsCancelled(t *testing.T) {
	t.Parallel()
	onSystem(t, func(ctx context.Context, o *Orchestrator) {
		kind := queueKind{o.Client}
		r, err := o.NewQueueRun(ctx, "files")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		testutil.Eventually(t, "the job to be under way", func() bool {
			s, err := kind.State(ctx, r.ID())
			return err == nil && s.Status == job.Processing
		})
		if err := kind.Cancel(ctx, r.ID()); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, ErrRunEnded) {
			t.Errorf("run: got %v, want %v", err, ErrRunEnded)
		}
		if err := r.End(ctx, workqueue.Stats{}, nil); err != nil {
			t.Errorf("end of a cancelled run: %v", err)
		}
		if got, err := kind.State(ctx, r.ID()); err != nil || got.Status != job.Cancelled {
			t.Errorf("got %+v, %v, want a cancelled job", got, err)
		}
	})
}

func TestRunOfAQueueThatIsKilledIsAFailedJob(t *testing.T) {
	t.Parallel()
	onSystem(t, func(ctx context.Context, o *Orchestrator) {
		if err := o.Workers.Start(ctx); err != nil {
			t.Fatal(err)
		}
		r, err := o.newQueueRun(ctx, "files", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.open(ctx); err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, "the job to fail", func() bool {
			s, err := queueKind{o.Client}.State(ctx, r.ID())
			return err == nil && s.Status == job.Failed && strings.Contains(s.Error, "killed")
		})
	})
}

// The worker that a run of a queue has for a moment is none that could scrape.
func TestOpeningARunOfAQueueIsNoWorker(t *testing.T) {
	t.Parallel()
	onSystem(t, func(ctx context.Context, o *Orchestrator) {
		worker, err := tasks.StartWorker(ctx, o.Client, tasks.NewMux(), tasks.WorkerConfig{Queues: map[string]int{queueRuns: 1}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = worker.Stop() }()
		if others, err := o.Workers.Elsewhere(ctx); err != nil || others {
			t.Errorf("got %v, %v, want no workers elsewhere", others, err)
		}
	})
}
