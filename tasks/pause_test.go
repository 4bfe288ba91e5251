package tasks_test

import (
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
)

func TestPause(t *testing.T) {
	t.Parallel()
	runStories(t, []story{
		{"pause while a header runs", func(t *testing.T, w *world) {
			ctx := t.Context()
			run := sent(t, w, tasks.Chord(tasks.Group(Hold.S("a"), Hold.S("b")), Total))
			testutil.Eventually(t, "the header runs", func() bool { return len(w.noted("at a"))+len(w.noted("at b")) == 2 })
			if err := run.Pause(ctx); err != nil {
				t.Fatal(err)
			}
			w.open("a")
			w.open("b")
			parked := func() bool {
				return w.client.Redis().LLen(ctx, flowKey(t, w.client.Redis(), run.ID())+":paused").Val() == 1
			}
			testutil.Eventually(t, "the body is parked", parked)
			if p, err := run.Progress(ctx); err != nil || p.Done != 2 || !p.Paused {
				t.Errorf("progress: got %+v, %v", p, err)
			}
			if ready, err := w.client.Reserved(ctx, 10); err != nil || len(ready) != 0 {
				t.Errorf("ready nodes: got %v, %v, want none", ready, err)
			}
			if err := run.Resume(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := run.Wait(limited(t)); err != nil {
				t.Fatal(err)
			}
			ended(t, w, run.ID())
		}},
		{"pause before the tasks run", func(t *testing.T, w *world) {
			ctx := t.Context()
			run := sent(t, w, tasks.Chord(tasks.Each(make([]int, 300), Inc), Total), tasks.In(300*time.Millisecond))
			if err := run.Pause(ctx); err != nil {
				t.Fatal(err)
			}
			testutil.Eventually(t, "they are parked", func() bool {
				return w.client.Redis().Exists(ctx, flowKey(t, w.client.Redis(), run.ID())+":paused").Val() == 1
			})
			if p, err := run.Progress(ctx); err != nil || p.Done != 0 {
				t.Errorf("progress: got %+v, %v", p, err)
			}
			if err := run.Resume(ctx); err != nil {
				t.Fatal(err)
			}
			if got, err := run.Wait(limited(t)); err != nil || got != 300 {
				t.Errorf("got %d, %v, want 300", got, err)
			}
			ended(t, w, run.ID())
		}},
	})
}
