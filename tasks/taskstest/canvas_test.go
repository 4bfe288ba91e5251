package taskstest_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"testing"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/internal/canvas"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

var canvases = flag.Uint64("canvases", 100, "number of random workflows that TestRandomWorkflows runs")

// seeded is a source of random choices for a canvas.
type seeded struct{ *rand.Rand }

// Int implements canvas.Source.
func (s seeded) Int(lo, hi int, _ string) int { return lo + s.IntN(hi-lo+1) }

// canvasFleet returns a fleet for canvases and a map with the number of runs of each task.
func canvasFleet(t *testing.T, mended func(id string) bool) (*taskstest.Fleet, map[string]int) {
	mux := tasks.NewMux()
	runs := map[string]int{}
	mux.Use(func(ctx context.Context, info tasktype.Info, next func(context.Context) error) error {
		runs[info.Task]++
		return next(ctx)
	})
	canvas.Handle(mux, nil, mended)
	return taskstest.New(t, mux), runs
}

// A random workflow has the same result and runs the same tasks as its direct evaluation. One of four has a limit on
// every group.
func TestRandomWorkflows(t *testing.T) {
	t.Parallel()
	f, runs := canvasFleet(t, nil)
	for seed := range *canvases {
		s := canvas.Draw(seeded{rand.New(rand.NewPCG(seed, 0))}, 1)
		clear(runs)
		for _, problem := range differences(t, f, s, runs) {
			raw, _ := json.Marshal(s)
			t.Errorf("seed %d: %s\n%s", seed, problem, raw)
		}
	}
}

// differences runs a canvas and returns the differences from the reference.
func differences(t *testing.T, f *taskstest.Fleet, s *canvas.Scope, runs map[string]int) []string {
	want := canvas.NewRuns()
	res := canvas.Evaluate(s, want)
	run, err := s.Signature().Send(t.Context(), f.Client())
	if err != nil {
		return []string{"send: " + err.Error()}
	}
	f.Drain()
	if p, err := run.Progress(t.Context()); err != nil || !p.Ended {
		testutil.Ok(t, run.Revoke(t.Context()))
		return []string{"not completed, and no task is ready"}
	}
	got, err := run.Wait(t.Context())
	failure := &tasks.Failure{}
	failed := errors.As(err, &failure)
	if err != nil && !failed {
		t.Fatal(err)
	}
	testutil.Ok(t, run.Forget(t.Context()))
	if *want.Fast {
		return nil
	}
	out := want.Differs(runs)
	if diff := res.Differs(got, failed, failure.Message); diff != "" {
		out = append(out, diff)
	}
	return out
}

// A failed or cancelled workflow has the result after a retry that it would have without failures. Tasks whose input is the same
// do not run again.
func TestRetriedWorkflows(t *testing.T) {
	t.Parallel()
	mended := ""
	f, runs := canvasFleet(t, func(id string) bool { return id == mended })
	for seed := range *canvases {
		s := canvas.Draw(seeded{rand.New(rand.NewPCG(seed, 0))}, 1)
		clear(runs)
		want := canvas.NewRuns()
		want.Mended = true
		res := canvas.Evaluate(s, want)
		run, err := s.Signature().Send(t.Context(), f.Client())
		testutil.Ok(t, err)
		if seed%4 == 0 {
			testutil.Ok(t, run.Cancel(t.Context()))
		}
		f.Drain()
		_, err = run.Wait(t.Context())
		mended = run.ID()
		switch retried := run.Retry(t.Context()); {
		case errors.Is(retried, tasks.ErrSucceeded) && err == nil:
			continue
		case retried != nil:
			t.Fatalf("seed %d: %v", seed, retried)
		}
		if err := run.Retry(t.Context()); !errors.Is(err, tasks.ErrRunning) {
			t.Errorf("seed %d: a second retry: got %v, want %v", seed, err, tasks.ErrRunning)
		}
		f.Drain()
		raw, _ := json.Marshal(s)
		p, err := run.Progress(t.Context())
		if err != nil || !p.Ended || p.Done != p.Total || p.ChunksDone != p.Chunks {
			t.Fatalf("seed %d: got %+v, %v\n%s", seed, p, err, raw)
		}
		got, err := run.Wait(t.Context())
		failure := &tasks.Failure{}
		failed := errors.As(err, &failure)
		if diff := res.Differs(got, failed, failure.Message); diff != "" && !*want.Fast {
			t.Errorf("seed %d: %s\n%s", seed, diff, raw)
		}
	}
}
