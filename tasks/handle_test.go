package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

func TestHandlesOfWorkflows(t *testing.T) {
	t.Parallel()
	runStories(t, resultStories)
}

// resultStories check more than one value.
var resultStories = []story{
	{"a wait that ends before the workflow", func(t *testing.T, w *world) {
		for _, s := range []tasks.Signature[int]{
			Fail.S(1, tasks.MaxRetry(3), tasks.ConstantBackoff(time.Hour)),
			tasks.Chord(tasks.Each(ints(3), ID, tasks.In(time.Hour)), Sum),
		} {
			run := sent(t, w, s)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := run.Wait(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v, want %v", err, context.DeadlineExceeded)
			}
			if p, err := run.Progress(t.Context()); err != nil || p.Ended || p.Done != 0 || p.Status.Terminal() {
				t.Fatalf("got %+v, %v, want nothing done", p, err)
			}
			testutil.Ok(t, run.Revoke(t.Context()))
		}
	}},
	{"a failure is returned without waiting for running tasks", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.Chord(tasks.Group(Hold.S("late"), tasks.Chain(Fail.S(1), Inc)), Sum))
		_, err := run.Wait(limited(t))
		wantFailure(t, err, "E1")
		if p, err := run.Progress(t.Context()); err != nil || p.Ended || p.Status != tasktype.Failed {
			t.Fatalf("got %+v, %v, want FAILURE and not ended", p, err)
		}
		w.open("late")
		ended(t, w, run.ID())
	}},
	{"a handle by its id, until the results are forgotten", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.Each([]int{5, 6}, Slow2))
		if err := run.Forget(t.Context()); err == nil {
			t.Fatal("forget a running workflow: got no error, want one")
		}
		w.open("slow2")
		again := tasks.Attach[[]int](w.client, run.ID())
		if got, err := again.Wait(limited(t)); err != nil || !slices.Equal(got, []int{5, 6}) {
			t.Fatalf("got %v, %v, want [5 6]", got, err)
		}
		ended(t, w, run.ID())
		testutil.Ok(t, again.Forget(t.Context()))
		if _, err := w.client.Nodes(t.Context(), run.ID()); !errors.Is(err, tasks.ErrUnknown) {
			t.Fatalf("after Forget: got %v, want ErrUnknown", err)
		}
		if err := again.Forget(t.Context()); !errors.Is(err, tasks.ErrUnknown) {
			t.Fatalf("second Forget: got %v, want ErrUnknown", err)
		}
	}},
	{"the tree of a plan has every value", func(t *testing.T, w *world) {
		run := sent(t, w, ChordPlan.S(3))
		if _, err := run.Wait(limited(t)); err != nil {
			t.Fatal(err)
		}
		ended(t, w, run.ID())
		var inside []string
		for _, n := range nodes(t, w, run.ID()) {
			if strings.HasPrefix(n.ID, "0:") {
				inside = append(inside, n.Task)
			}
		}
		if !slices.Equal(inside, []string{"t.id", "t.id", "t.id", "t.sum"}) {
			t.Fatalf("nodes of the plan: got %v, want t.id three times and t.sum", inside)
		}
	}},
	{"unknown id", func(t *testing.T, w *world) {
		if _, err := tasks.Attach[int](w.client, "unknown").Status(t.Context()); !errors.Is(err, tasks.ErrUnknown) {
			t.Fatalf("got %v, want ErrUnknown", err)
		}
		if _, err := tasks.Attach[int](w.client, "unknown").Wait(t.Context()); !errors.Is(err, tasks.ErrUnknown) {
			t.Fatalf("got %v, want ErrUnknown", err)
		}
	}},
	{"send by name", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.New[json.RawMessage, json.RawMessage]("t.add").S([]byte(`{"A":1,"B":2}`)))
		if raw, err := run.Wait(limited(t)); err != nil || string(raw) != "3" {
			t.Fatalf("got %s, %v", raw, err)
		}
	}},
}
