package tasks_test

import (
	"errors"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
)

// overlapping sends Hold with a unique key and a policy.
func overlapping(t *testing.T, w *world, key, value string, p tasks.OverlapPolicy, opts ...tasks.SendOption) *tasks.Run[int] {
	t.Helper()
	run, err := Hold.S(value).Send(t.Context(), w.client, append(opts, tasks.Unique(key, time.Hour), tasks.Overlap(p))...)
	if err != nil {
		t.Fatalf("send %s: %v", value, err)
	}
	return run
}

// refused sends Hold with a unique key and a policy, and expects that it is refused because of other.
func refused(t *testing.T, w *world, key, value string, p tasks.OverlapPolicy, other *tasks.Run[int]) {
	t.Helper()
	run, err := Hold.S(value).Send(t.Context(), w.client, tasks.Unique(key, time.Hour), tasks.Overlap(p))
	if !errors.Is(err, tasks.ErrDuplicate) || run.ID() != other.ID() {
		t.Errorf("send %s: got %v, %v, want ErrDuplicate of %s", value, run, err, other.ID())
	}
}

func held(t *testing.T, w *world, value string) {
	t.Helper()
	testutil.Eventually(t, value+" runs", func() bool { return len(w.noted("at "+value)) > 0 })
}

func wantQueued(t *testing.T, run *tasks.Run[int], queued bool) {
	t.Helper()
	if p, err := run.Progress(t.Context()); err != nil || p.Queued != queued {
		t.Errorf("got progress %+v, %v, want queued %t", p, err, queued)
	}
}

func wantReplaced(t *testing.T, run *tasks.Run[int]) {
	t.Helper()
	if _, err := run.Wait(limited(t)); !errors.Is(err, tasks.ErrRevoked) {
		t.Errorf("replaced workflow: got %v, want ErrRevoked", err)
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	runStories(t, []story{
		{"queue: one waits", func(t *testing.T, w *world) {
			a := overlapping(t, w, "queue", "a", tasks.OverlapQueue)
			b := overlapping(t, w, "queue", "b", tasks.OverlapQueue)
			refused(t, w, "queue", "c", tasks.OverlapQueue, b)
			refused(t, w, "queue", "c", tasks.OverlapSkip, b)
			held(t, w, "a")
			wantQueued(t, b, true)
			w.open("a")
			held(t, w, "b")
			wantQueued(t, b, false)
			ended(t, w, a.ID())
			c := overlapping(t, w, "queue", "c", tasks.OverlapQueue)
			w.open("b")
			w.open("c")
			ended(t, w, b.ID())
			ended(t, w, c.ID())
		}},
		{"replace: the latest waits", func(t *testing.T, w *world) {
			a := overlapping(t, w, "replace", "ra", tasks.OverlapReplace)
			held(t, w, "ra")
			b := overlapping(t, w, "replace", "rb", tasks.OverlapReplace)
			c := overlapping(t, w, "replace", "rc", tasks.OverlapReplace)
			wantReplaced(t, b)
			wantQueued(t, c, true)
			w.open("ra")
			held(t, w, "rc")
			w.open("rc")
			ended(t, w, a.ID())
			ended(t, w, c.ID())
			if ran := w.noted("at rb"); len(ran) > 0 {
				t.Error("the replaced workflow ran")
			}
		}},
		{"replace a workflow with a delay", func(t *testing.T, w *world) {
			first := overlapping(t, w, "debounce", "d1", tasks.OverlapReplace, tasks.In(time.Hour))
			second := overlapping(t, w, "debounce", "d2", tasks.OverlapReplace, tasks.In(time.Millisecond))
			wantReplaced(t, first)
			w.open("d2")
			if _, err := second.Wait(limited(t)); err != nil {
				t.Error(err)
			}
			ended(t, w, first.ID())
			ended(t, w, second.ID())
		}},
		{"cancel: the running one and the waiting one", func(t *testing.T, w *world) {
			a := overlapping(t, w, "cancel", "ca", tasks.OverlapQueue)
			held(t, w, "ca")
			b := overlapping(t, w, "cancel", "cb", tasks.OverlapQueue)
			c := overlapping(t, w, "cancel", "cc", tasks.OverlapCancel)
			w.open("cc")
			if _, err := c.Wait(limited(t)); err != nil {
				t.Error(err)
			}
			for _, run := range []*tasks.Run[int]{a, b} {
				if _, err := run.Wait(limited(t)); !errors.Is(err, tasks.ErrCancelled) {
					t.Errorf("got %v, want ErrCancelled", err)
				}
				ended(t, w, run.ID())
			}
			ended(t, w, c.ID())
		}},
		{"a waiting workflow is paused, resumed, revoked", func(t *testing.T, w *world) {
			a := overlapping(t, w, "paused", "pa", tasks.OverlapQueue)
			held(t, w, "pa")
			b := overlapping(t, w, "paused", "pb", tasks.OverlapQueue)
			testutil.Ok(t, b.Pause(t.Context()))
			wantQueued(t, b, false)
			testutil.Ok(t, b.Resume(t.Context()))
			wantQueued(t, b, true)
			testutil.Ok(t, b.Revoke(t.Context()))
			c := overlapping(t, w, "paused", "pc", tasks.OverlapQueue) // waits for a
			wantQueued(t, c, true)
			refused(t, w, "paused", "pd", tasks.OverlapQueue, c)
			testutil.Ok(t, c.Pause(t.Context()))
			w.open("pa")
			ended(t, w, a.ID())
			testutil.Ok(t, c.Resume(t.Context()))
			w.open("pc")
			ended(t, w, c.ID())
		}},
		{"workflows that waited are forgotten", func(t *testing.T, w *world) {
			a := overlapping(t, w, "forgotten", "fa", tasks.OverlapReplace)
			held(t, w, "fa")
			b := overlapping(t, w, "forgotten", "fb", tasks.OverlapReplace)
			c := overlapping(t, w, "forgotten", "fc", tasks.OverlapReplace)
			wantReplaced(t, b)
			ended(t, w, b.ID())
			testutil.Ok(t, b.Delete(t.Context()))
			wantQueued(t, c, true)
			testutil.Ok(t, c.Revoke(t.Context()))
			ended(t, w, c.ID())
			testutil.Ok(t, c.Delete(t.Context()))
			d := overlapping(t, w, "forgotten", "fd", tasks.OverlapReplace)
			wantQueued(t, d, true)
			w.open("fa")
			w.open("fd")
			ended(t, w, a.ID())
			ended(t, w, d.ID())
		}},
		{"invalid policies", func(t *testing.T, w *world) {
			for _, opts := range [][]tasks.SendOption{{tasks.Overlap(tasks.OverlapQueue)}, {tasks.Unique("invalid", time.Hour), tasks.Overlap(tasks.OverlapAllow)}} {
				if _, err := Hold.S("x").Send(t.Context(), w.client, opts...); !errors.Is(err, tasks.ErrInvalid) {
					t.Errorf("got %v, want ErrInvalid", err)
				}
			}
		}},
	})
}
