package jobs_test

import (
	"errors"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/pipeline"
)

// The work of an agent is read from the lease in the queue.
func TestFindReturnsTheWorkOfALease(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		w.create(jobs.Request{})
		w.emit("a", "b")
		work := w.take("validator", "v")
		find := func() (jobs.Work, error) { return w.Find(w.ctx, work.JobID, work.QueueItem, work.Fence) }
		got, err := find()
		if err != nil || got.Agent != "v" || got.Nonce != work.Nonce || got.Nonce == "" || got.Key != work.Key || got.Item.Text != work.Item.Text ||
			!got.Deadline.Equal(work.Deadline) || got.Attempt != 1 || got.Done {
			t.Errorf("got %+v, %v, want %+v", got, err, work)
		}
		if _, err := w.Find(w.ctx, work.JobID, work.QueueItem, work.Fence+1); !errors.Is(err, jobs.ErrLeaseLost) {
			t.Errorf("another fence: got %v, want %v", err, jobs.ErrLeaseLost)
		}
		if _, err := w.Find(w.ctx, work.JobID, "item/none", 1); !errors.Is(err, jobs.ErrNoItem) {
			t.Errorf("no such item: got %v, want %v", err, jobs.ErrNoItem)
		}
		w.complete(work, jobs.Answer{})
		if got, err := find(); err != nil || !got.Done {
			t.Errorf("completed: got %+v, %v, want done", got, err)
		}
		work = w.take("validator", "v")
		testutil.Ok(t, w.Fail(w.ctx, work, errors.New("no"), 0, true))
		if _, err := find(); !errors.Is(err, jobs.ErrLeaseLost) {
			t.Errorf("failed: got %v, want %v", err, jobs.ErrLeaseLost)
		}
	})
}

// A lease lasts until the deadline of its work at most, however often it is extended.
func TestALeaseEndsAtTheDeadline(t *testing.T) {
	pipe := &pipeline.Pipeline{Name: "default", Stages: []pipeline.Stage{
		{Name: "create", Role: "creator", Takes: pipeline.TakesJob, Timeout: 2 * time.Second, MaxRetries: new(5)},
	}}
	both(t, func(cfg *jobs.Config) {
		cfg.Pipelines = func(string) (*pipeline.Pipeline, error) { return pipe, nil }
	}, func(t *testing.T, w *world) {
		w.create(jobs.Request{})
		work := w.take("creator", "slow")
		if got := work.Expires.Sub(work.Begun); got > 3*time.Second {
			t.Errorf("the lease lasts %v, want about the timeout of 2s", got)
		}
		if until, err := w.Beat(w.ctx, work); err != nil || until.After(work.Deadline.Add(time.Second)) {
			t.Errorf("beat: got %v, %v, want a lease until %v", until, err, work.Deadline)
		}
		again := w.take("creator", "other")
		if again.Fence <= work.Fence || again.Attempt != 2 || time.Now().Before(work.Deadline) {
			t.Errorf("got %+v, want the second attempt after %v", again, work.Deadline)
		}
		if _, err := w.Beat(w.ctx, work); !errors.Is(err, jobs.ErrLeaseLost) {
			t.Errorf("beat after the deadline: got %v, want %v", err, jobs.ErrLeaseLost)
		}
	})
}

// New work wakes one of the processes that wait for it, and work that is left wakes the next one.
func TestWorkWakesOneAfterTheOther(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		w.create(jobs.Request{})
		waits := func() bool {
			t.Helper()
			got, err := w.WaitForWork(w.ctx, []string{"enricher", "validator"}, time.Second)
			if err != nil || got == "enricher" {
				t.Fatalf("got %q, %v", got, err)
			}
			return got != ""
		}
		w.emit("a", "b")
		for i, want := range []int{1, 1, 0} {
			if !waits() {
				t.Fatalf("wait %d: got no token", i)
			}
			if work, _, err := w.Take(w.ctx, "validator", "v", 1); err != nil || len(work) != want {
				t.Errorf("take %d: got %d, %v, want %d", i, len(work), err, want)
			}
		}
		if waits() {
			t.Error("got a token, although no work is left")
		}
		if err := w.PassOn(w.ctx, "validator"); err != nil || !waits() {
			t.Errorf("passed on: got %v and no token", err)
		}
	})
}
