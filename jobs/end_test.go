package jobs_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/tasks/workqueue"
)

// failOne runs the first segment of a job of pipeline long, in which one of two items fails.
func (w *world) failOne(j jobs.Job) {
	w.t.Helper()
	w.emit("a", "b")
	w.complete(w.take("enricher", "e"), jobs.Answer{})
	testutil.Ok(w.t, w.Fail(w.ctx, w.take("enricher", "e"), permanent{errors.New("no")}, 0, true))
	w.complete(w.take("validator", "v"), jobs.Answer{Verdict: "good"})
}

// finishOne works on the item that was given new attempts.
func (w *world) finishOne() {
	w.t.Helper()
	w.complete(w.take("enricher", "e"), jobs.Answer{})
	w.complete(w.take("validator", "v"), jobs.Answer{Verdict: "good"})
}

func TestItemsRetriedInALaterSegmentAreWaitedFor(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{Pipeline: "long"})
		w.failOne(j)
		last := w.take("publisher", "p")
		if n, err := w.Retry(w.ctx, j.ID); n != 1 || err != nil {
			t.Fatalf("retry: got %d, %v, want 1", n, err)
		}
		w.complete(last, jobs.Answer{})
		w.finishOne()
		done := w.until(j.ID, jobs.Completed)
		if want := (jobs.Counts{Total: 2, Integrated: 2}); done.Items != want {
			t.Errorf("items: got %+v, want %+v", done.Items, want)
		}
	})
}

// Agents settle items while a job ends: its counts agree with its items, however it ends.
func TestCountsOfAnEndedJobAgreeWithItsItems(t *testing.T) {
	for name, end := range map[string]func(w *world, id string) error{
		"cancel": func(w *world, id string) error { _, _, err := w.Cancel(w.ctx, id, false); return err },
		"fail":   func(w *world, id string) error { _, err := w.CompleteStage(w.ctx, id, "create", "no"); return err },
		"time": func(w *world, id string) error {
			if err := w.client.Redis().HSet(w.ctx, "muster:{jobs}:j:"+id, "timeout", 1).Err(); err != nil {
				return err
			}
			return w.Sweep(w.ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, nil, func(t *testing.T, w *world) {
				for range 5 {
					w.endWhileAgentsSettle(end)
				}
			})
		})
	}
}

func (w *world) endWhileAgentsSettle(end func(w *world, id string) error) {
	t := w.t
	t.Helper()
	j := w.create(jobs.Request{})
	held := w.take("creator", "c")
	var keys []string
	for i := range 60 {
		keys = append(keys, string(rune('A'+i)))
	}
	w.add(held, keys...)
	var agents sync.WaitGroup
	for range 4 {
		agents.Go(func() {
			for range 60 {
				work, _, err := w.Take(w.ctx, "validator", "v", 1)
				if err != nil || len(work) == 0 {
					return
				}
				_ = w.Complete(w.ctx, work[0], jobs.Answer{}) // lost once the job has ended
			}
		})
	}
	err := end(w, j.ID)
	agents.Wait()
	testutil.Ok(t, err)
	got, err := w.Get(w.ctx, j.ID)
	if err != nil || !got.Status.Terminal() {
		t.Fatalf("job: got %s, %v, want an ended one", got.Status, err)
	}
	want := jobs.Counts{}
	err = w.EachItem(w.ctx, j.ID, func(it jobs.Item) error {
		want.Total++
		switch it.Status {
		case jobs.ItemIntegrated:
			want.Integrated++
		case jobs.ItemPending:
			want.Pending++
		default:
			t.Errorf("item %s of an ended job is %s", it.Key, it.Status)
		}
		return nil
	})
	if err != nil || got.Items != want {
		t.Errorf("counts: got %+v, want the counts of the items %+v, %v", got.Items, want, err)
	}
}

func TestJobCanBeCancelledAndDeletedInAFullRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Server(t, "maxmemory-policy", "noeviction")
	w := newWorld(t, s.Client(), nil)
	j := w.create(jobs.Request{})
	held := w.take("creator", "c")
	w.add(held, "a")
	testutil.Ok(t, s.Client().ConfigSet(w.ctx, "maxmemory", "1").Err())
	if _, _, err := w.Create(w.ctx, jobs.Request{Prompt: "more"}); err == nil {
		t.Fatal("create in a full Redis: got no error")
	}
	got, _, err := w.Cancel(w.ctx, j.ID, false)
	if err != nil || got.Status != jobs.Cancelled || got.Items.Pending != 1 {
		t.Fatalf("cancel in a full Redis: got %+v, %v", got, err)
	}
	if _, err := w.Beat(w.ctx, held); err == nil {
		t.Error("beat of a cancelled job: got no error")
	}
	if err := w.Delete(w.ctx, j.ID); err != nil {
		t.Errorf("delete in a full Redis: %v", err)
	}
}

// A job that is cancelled while it is recovered gives out no work.
func TestRecoveryLeavesACancelledJobSealed(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		w.roles = map[string]int{"creator": 1, "validator": 1}
		for range 20 {
			j := w.create(jobs.Request{StuckAfter: time.Second})
			w.take("creator", "silent")
			testutil.Ok(t, w.client.Redis().HSet(w.ctx, "muster:{jobs}:j:"+j.ID, "progressed", 1).Err())
			var sweep sync.WaitGroup
			sweep.Go(func() { _ = w.Sweep(w.ctx) })
			if _, _, err := w.Cancel(w.ctx, j.ID, false); err != nil {
				t.Fatal(err)
			}
			sweep.Wait()
			q := workqueue.New(w.client.Redis(), "job:"+j.ID, workqueue.Config{})
			if s, err := q.Stats(w.ctx); err != nil || !s.Sealed {
				t.Fatalf("queue of a cancelled job: got %+v, %v, want it sealed", s, err)
			}
		}
	})
}
