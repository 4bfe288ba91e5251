package orchestrator

import (
	"context"
	"errors"
	"testing"
	"time"

	"muster/jobs"
	"muster/proxies"
	"muster/sites"
	"muster/sites/report"
	"muster/tasks/workqueue"
)

func TestScrapeStateIsConvertedToJobState(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		scrape sites.Job
		want   jobs.State
	}{
		"waits for a worker": {
			sites.Job{Status: sites.JobWaiting},
			jobs.State{Status: jobs.Created, Waiting: "for a worker"},
		},
		"waits for sites": {
			sites.Job{Status: sites.JobWaiting, WaitsFor: []string{"a.example", "b.example"}},
			jobs.State{Status: jobs.Created, Waiting: "for a.example, b.example"},
		},
		"runs": {
			sites.Job{Status: sites.JobRunning, Pages: workqueue.Stats{Total: 15, Queued: 5, InProgress: 4, Done: 3, Skipped: 2, Error: 1}},
			jobs.State{Status: jobs.Processing, Items: jobs.Counts{Total: 15, Pending: 5, Validating: 4, Integrated: 3, Rejected: 2, Failed: 1}},
		},
		"paused": {
			sites.Job{Status: sites.JobPaused},
			jobs.State{Status: jobs.Processing, Waiting: "the site is paused"},
		},
		"blocked": {
			sites.Job{Status: sites.JobBlocked, Trouble: "the disk is full"},
			jobs.State{Status: jobs.Processing, Waiting: "blocked: the disk is full"},
		},
		"complete": {
			sites.Job{Status: report.StatusComplete, Began: began, Summary: &report.Summary{Status: report.StatusComplete, Seconds: 90}},
			jobs.State{Status: jobs.Completed, Ended: began.Add(90 * time.Second)},
		},
		"incomplete": {
			sites.Job{Status: report.StatusIncomplete, Began: began, Summary: &report.Summary{Status: report.StatusIncomplete, Missing: []string{"/list"}}},
			jobs.State{Status: jobs.Failed, Error: "the scrape is INCOMPLETE, without 1 listing pages, such as /list", Ended: began},
		},
		"failed": {
			sites.Job{Status: sites.JobFailed, Error: "no start page could be fetched"},
			jobs.State{Status: jobs.Failed, Error: "no start page could be fetched"},
		},
		"canceled": {
			sites.Job{Status: sites.JobCanceled},
			jobs.State{Status: jobs.Cancelled},
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

func TestExpiredJobHasFailed(t *testing.T) {
	t.Parallel()
	onSystem(t, func(ctx context.Context, o *Orchestrator) {
		for name, kind := range jobKinds(o.Client, o.Sites) {
			if got, err := kind.State(ctx, "none_1"); err != nil || got.Status != jobs.Failed || got.Error == "" {
				t.Errorf("%s: got %+v, %v, want a failed job with an error", name, got, err)
			}
		}
	})
}

// TestDeletedScrapeStaysDeleted restarts the sweep of an orchestrator for the scrapes of the last week.
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
		if j, err := o.Jobs.Get(ctx, run.ID()); err != nil || j.Status != jobs.Cancelled {
			t.Fatalf("got %+v, %v, want a cancelled job", j, err)
		}
		if err := o.Jobs.Delete(ctx, run.ID()); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second call covers the last minute only
			if err := again(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.reconcile()(ctx); err != nil {
			t.Fatal(err)
		}
		if j, err := o.Jobs.Get(ctx, run.ID()); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("got %+v, %v, want %v", j, err, jobs.ErrNotFound)
		}
	})
}

func TestRefreshItemsAreChunks(t *testing.T) {
	t.Parallel()
	cfg, _ := worldSettings(t)
	err := Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
		run, err := o.Refresh(ctx).Send(ctx, o.Client)
		if err != nil {
			return err
		}
		kind := refreshKind{o.Client}
		if got, err := kind.State(ctx, run.ID()); err != nil || got.Status != jobs.Created || got.Waiting == "" {
			t.Errorf("before a worker runs: got %+v, %v, want a created job with a waiting reason", got, err)
		}
		if err := o.Workers.Start(ctx); err != nil {
			return err
		}
		var r proxies.Report
		if r, err = run.Wait(ctx); err != nil {
			return err
		}
		got, err := kind.State(ctx, run.ID())
		if err != nil || got.Status != jobs.Completed || got.Items.Integrated == 0 || got.Items.Integrated != got.Items.Total || got.Ended.IsZero() {
			t.Errorf("after %+v: got %+v, %v, want a completed job with its chunks and end", r, got, err)
		}
		return nil
	})
	if err != nil {
		t.Errorf("run: %v", err)
	}
}
