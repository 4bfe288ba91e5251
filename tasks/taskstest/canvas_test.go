package taskstest_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"strings"
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

// A random workflow has the same result and runs the same tasks as its direct evaluation, also if it begins later. One of four has a limit on
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
	run, err := s.Signature().Send(t.Context(), f.Client(), opts...)
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
		run, err := tasks.Map(tasks.Value([]int{1}), inc).Send(t.Context(), f.Client(), o)
		testutil.Ok(t, err)
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
	panics = tasks.New[int, int]("s.panics")
	polls  = tasks.New[int, int]("s.polls")
	rated  = tasks.New[int, int]("s.inc", tasks.Limited[int](tasks.Rate("inc", 1, 20*time.Millisecond), nil))
	keyed  = tasks.New[int, int]("s.keyed", tasks.Limited(tasks.Concurrency("concurrency", 1), parity), tasks.Limited(tasks.Rate("rate", 2, 20*time.Millisecond), parity))
	absent = tasks.New[int, int]("s.absent")
	marked = tasks.New[string, int]("s.marked", tasks.MaxRetry(1), tasks.ConstantBackoff(time.Hour))
)

// parity is a key function; it panics for negative numbers.
func parity(n int) string {
	if n < 0 {
		panic("negative")
	}
	return fmt.Sprint(n % 2)
}

func stories() *tasks.Mux {
	mux := tasks.NewMux()
	tasks.Handle(mux, keyed, func(_ context.Context, n int) (int, error) { return n + 1, nil })
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
	tasks.Handle(mux, panics, func(context.Context, int) (int, error) { panic("oh") })
	asked := map[string]int{}
	tasks.Handle(mux, polls, func(ctx context.Context, n int) (int, error) {
		key := tasks.InfoFrom(ctx).Key
		if asked[key]++; asked[key] < n {
			return 0, tasks.Again(time.Millisecond)
		}
		return tasks.InfoFrom(ctx).Attempt, nil
	})
	tasks.Handle(mux, marked, func(ctx context.Context, how string) (int, error) {
		again := fmt.Errorf("poll: %w", tasks.Again(time.Millisecond))
		switch how {
		case "again":
			key := tasks.InfoFrom(ctx).Key
			if asked[key]++; asked[key] == 1 {
				return 0, again
			}
			return tasks.InfoFrom(ctx).Attempt, nil
		case "permanent":
			return 0, errors.Join(errors.New("also"), tasks.RetryIn(time.Hour, tasks.Permanent(again)))
		case "negative":
			return 0, tasks.Again(-time.Second)
		}
		return 0, tasks.RetryIn(time.Millisecond, tasks.WithCode(how, errors.New("coded")))
	})
	return mux
}

// story is a signature with functions that run it on both fleets.
type story struct {
	name string
	real func(*testing.T, *tasks.Client) string
	test func(*testing.T) string
}

func of[O any](name string, s tasks.Signature[O]) story {
	tell := func(t *testing.T, c *tasks.Client, run *tasks.Run[O], out O, err error) string {
		t.Helper()
		value, jsonErr := json.Marshal(out)
		if jsonErr != nil {
			t.Fatal(jsonErr)
		}
		text := fmt.Sprintf("%s %v", value, err)
		var f *tasks.Failure
		if errors.As(err, &f) {
			text = fmt.Sprintf("%s %d %s %s", f.Task, f.Attempts, f.Code, f.Message)
			if f.Code == tasktype.CodeUnregistered {
				text, _, _ = strings.Cut(text, "?") // the remainder names the worker
			}
		}
		nodes, err := c.Workflow(run.ID()).Nodes(t.Context())
		testutil.Ok(t, err)
		for _, n := range nodes {
			text += fmt.Sprintf("\n%s %s %s %d", n.ID, n.Task, n.Status, n.Attempts)
		}
		return text
	}
	return story{name,
		func(t *testing.T, c *tasks.Client) string {
			run, err := s.Send(t.Context(), c)
			testutil.Ok(t, err)
			for p, err := range run.Watch(t.Context()) {
				testutil.Ok(t, err)
				_ = p
			}
			out, err := run.Wait(t.Context())
			return tell(t, c, run, out, err)
		},
		func(t *testing.T) string {
			f := taskstest.New(t, stories())
			out, err := taskstest.Do(f, s, tasks.ID("story"))
			return tell(t, f.Client(), tasks.Attach[O](f.Client(), "story"), out, err)
		},
	}
}

// A workflow has the same results in a test fleet and on a real Redis.
func TestSameAsOnRedis(t *testing.T) {
	t.Parallel()
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	worker, err := tasks.NewWorker(client, stories(), tasks.WorkerConfig{Concurrency: 1, HandlerWait: time.Second})
	testutil.Ok(t, err)
	testutil.Background(t, worker.Run)
	for _, s := range []story{
		of("polls", tasks.Chain(polls.S(4), inc)),
		of("marked again", marked.S("again")),
		of("marked permanent", marked.S("permanent")),
		of("marked negative", marked.S("negative")),
		of("marked with a code", marked.S("closed")),
		of("panics", tasks.Chain(panics.S(1), inc)),
		of("expired", tasks.Chain(polls.S(4, tasks.Expires(time.Millisecond)), inc)),
		of("absent", absent.S(1)),
		of("rate", tasks.Each([]int{1, 2, 3}, rated)),
		of("limits per key", tasks.Chord(tasks.Each([]int{1, 2, 3, 4, 5, 7, 9}, keyed), sum)),
		of("key function panics", keyed.S(-1)),
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if real, test := s.real(t, client), s.test(t); real != test {
				t.Errorf("on Redis:\n%s\nin the test:\n%s", real, test)
			}
		})
	}
}
