package taskstest_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/internal/canvas"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

var canvases = flag.Uint64("canvases", 100, "number of random workflows that TestRandomWorkflows runs")

// canvasFleet returns a fleet for canvases and a map with the number of runs of each task.
func canvasFleet(t *testing.T, mended func(id string) bool) (*taskstest.Fleet, map[string]int) {
	mux := tasks.NewMux()
	runs := map[string]int{}
	var mu sync.Mutex // the nodes of a batch run together
	mux.Use(func(ctx context.Context, info tasktype.Info, next func(context.Context) error) error {
		mu.Lock()
		runs[info.Task]++
		mu.Unlock()
		return next(ctx)
	})
	canvas.Handle(mux, nil, mended)
	return taskstest.New(t, mux), runs
}

// A random workflow that was data has the same result and runs the same tasks as its direct evaluation, also if it begins later. One of four has a limit on
// every group.
func TestRandomWorkflows(t *testing.T) {
	t.Parallel()
	f, runs := canvasFleet(t, nil)
	for seed := range *canvases {
		s := canvas.Draw(canvas.Seeded(seed), 1)
		clear(runs)
		opts := []tasks.SendOption{tasks.Name("now"), tasks.In(time.Second)}
		for _, problem := range differences(t, f, s, runs, opts[seed%2]) {
			raw, _ := json.Marshal(s)
			t.Errorf("seed %d: %s\n%s", seed, problem, raw)
		}
	}
}

// differences runs a canvas and returns the differences from the reference.
func differences(t *testing.T, f *taskstest.Fleet, s *canvas.Scope, runs map[string]int, opts ...tasks.SendOption) []string {
	want := canvas.NewRuns()
	res := canvas.Evaluate(s, want)
	raw := testutil.Must(json.Marshal(tasks.Sending{Work: s.Signature(), Options: opts}))(t)
	var data tasks.Sending
	testutil.Ok(t, json.Unmarshal(raw, &data))
	results, err := f.Client().SendMany(t.Context(), []tasks.Sending{data})
	if err != nil {
		return []string{"send: " + err.Error()}
	}
	run := tasks.Attach[int](f.Client(), results[0].ID)
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
	testutil.Ok(t, run.Delete(t.Context()))
	if *want.Fast {
		return nil
	}
	out := want.Differs(runs)
	if diff := res.Differs(got, failed, failure.Message); diff != "" {
		out = append(out, diff)
	}
	return out
}

// A workflow that begins with a map runs it when it is due, and if it may expire.
func TestWorkflowBeginsWithAMap(t *testing.T) {
	t.Parallel()
	inc := tasks.New[int, int]("inc")
	mux := tasks.NewMux()
	tasks.Handle(mux, inc, func(_ context.Context, n int) (int, error) { return n + 1, nil })
	f := taskstest.New(t, mux)
	for _, o := range []tasks.SendOption{tasks.In(time.Hour), tasks.Expires(time.Hour)} {
		run := testutil.Must(tasks.Map(tasks.Value([]int{1}), inc).Send(t.Context(), f.Client(), o))(t)
		f.Drain()
		if got, err := run.Wait(t.Context()); err != nil || len(got) != 1 || got[0] != 2 {
			t.Errorf("got %v, %v, want [2]", got, err)
		}
	}
}

// A failed or cancelled workflow has the result after a retry that it would have without failures. Tasks whose input is the same
// do not run again.
func TestRetriedWorkflows(t *testing.T) {
	t.Parallel()
	mended := ""
	f, runs := canvasFleet(t, func(id string) bool { return id == mended })
	for seed := range *canvases {
		s := canvas.Draw(canvas.Seeded(seed), 1)
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
		case errors.Is(retried, tasks.ErrEnded) && err == nil:
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

func TestMain(m *testing.M) { redistest.Main(m) }

var (
	inc    = tasks.New[int, int]("s.inc")
	sum    = tasks.New[[]int, int]("s.sum")
	count  = tasks.New[int, []int]("s.count")
	flaky  = tasks.New[int, int]("s.flaky", tasks.MaxRetry(3), tasks.Backoff(time.Millisecond, 10*time.Millisecond))
	absent = tasks.New[int, int]("s.absent")
)

func stories() *tasks.Mux {
	mux := tasks.NewMux()
	tasks.Handle(mux, inc, func(_ context.Context, n int) (int, error) { return n + 1, nil })
	tasks.Handle(mux, sum, func(_ context.Context, ns []int) (int, error) {
		total := 0
		for _, n := range ns {
			total += n
		}
		return total, nil
	})
	tasks.Handle(mux, count, func(_ context.Context, n int) ([]int, error) {
		out := make([]int, n)
		for i := range out {
			out[i] = i
		}
		return out, nil
	})
	tasks.Handle(mux, flaky, func(ctx context.Context, n int) (int, error) {
		if a := tasks.InfoFrom(ctx).Attempt; a < 3 {
			return 0, fmt.Errorf("attempt %d", a)
		}
		return n, nil
	})
	return mux
}
