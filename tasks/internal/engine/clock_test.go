package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/internal/engine"
	"muster/tasks/tasktype"
)

// hooked is a connection that keeps the engine and the handlers that are made with it.
type hooked struct {
	redis.UniversalClient
	engine   *engine.Engine
	handlers map[string]*engine.Handler
}

func (h *hooked) EngineMade(e *engine.Engine)                    { h.engine = e }
func (h *hooked) WorkerMade(handlers map[string]*engine.Handler) { h.handlers = handlers }

// The tasks of clocks.
var (
	poll  = tasks.New[int, int]("clock.poll")                                                                 // asks four times to be called again
	flaky = tasks.New[int, int]("clock.flaky", tasks.MaxRetry(2), tasks.ConstantBackoff(20*time.Millisecond)) // fails twice
	later = tasks.New[int, int]("clock.later", tasks.In(30*time.Millisecond), tasks.Expires(time.Minute))
	often = tasks.New[int, int]("clock.often", tasks.Limited[int](tasks.Rate("rate", 1, 20*time.Millisecond), nil))
	ask   = tasks.New[int, int]("clock.ask", tasks.External(), tasks.Timeout(30*time.Millisecond))
)

// watch is a worker that reads the agenda only when a timer is due, on a Redis whose clock differs.
type watch struct {
	rdb    redis.UniversalClient
	client *tasks.Client
}

func newWatch(t *testing.T, ahead time.Duration) *watch {
	rdb, jump := redistest.Clock(t)
	jump(ahead)
	w := &watch{rdb: rdb}
	h := &hooked{UniversalClient: rdb}
	w.client = tasks.NewClient(h)
	m := tasks.NewMux()
	var polls, tries atomic.Int64
	tasks.Handle(m, poll, func(context.Context, int) (int, error) {
		if polls.Add(1) <= 4 {
			return 0, tasks.Again(10 * time.Millisecond)
		}
		return 1, nil
	})
	tasks.Handle(m, flaky, func(context.Context, int) (int, error) {
		if tries.Add(1) <= 2 {
			return 0, errors.New("try again")
		}
		return 1, nil
	})
	one := func(context.Context, int) (int, error) { return 1, nil }
	tasks.Handle(m, later, one)
	tasks.Handle(m, often, one)
	if _, err := tasks.NewWorker(w.client, m, tasks.WorkerConfig{}); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	worker := engine.NewWorker(h.engine, h.handlers, engine.WorkerConfig{Queues: map[string]int{"default": 1}, Concurrency: 4, MaxConcurrency: 4,
		MaxResult: 1 << 20, Name: "w", Logger: slog.New(slog.DiscardHandler), Ready: func() { close(ready) }, SweepEvery: time.Hour})
	testutil.Background(t, worker.Run)
	t.Cleanup(func() { _ = w.client.Close() })
	<-ready
	return w
}

// now returns the time by the clock of Redis.
func (w *watch) now(t *testing.T) time.Time {
	t.Helper()
	now, err := w.rdb.Time(t.Context()).Result()
	testutil.Ok(t, err)
	return now
}

// timers runs a workflow with each kind of timer.
func (w *watch) timers(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, s := range map[string]tasks.Signature[int]{
		"Again": poll.S(0), "retry": flaky.S(0), "In": later.S(0), "later in a chain": tasks.Chain(poll.S(0), later),
		"rate": tasks.Chain(tasks.Chain(often.S(0), often), often),
	} {
		if got, err := s.Do(ctx, w.client); got != 1 || err != nil {
			t.Errorf("%s: got %v, %v, want 1", name, got, err)
		}
	}
	_, err := ask.S(0).Do(ctx, w.client)
	if f := (*tasks.Failure)(nil); !errors.As(err, &f) || f.Code != tasktype.CodeTimeout {
		t.Errorf("deadline of an external task: got %v, want code %s", err, tasktype.CodeTimeout)
	}
}

// Timers do not depend on the difference between the clocks of Redis and of the worker, and all times are from
// Redis's clock.
func TestClocksMayDiffer(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-10 * time.Minute, -time.Second, time.Second, 10 * time.Minute} {
		t.Run(fmt.Sprint("Redis ahead by ", ahead), func(t *testing.T) {
			t.Parallel()
			w := newWatch(t, ahead)
			w.timers(t)

			const slack = 100 * time.Millisecond // of a clock that the test sets at intervals
			before := w.now(t)
			run, err := tasks.Chain(flaky.S(0), later).Send(t.Context(), w.client)
			testutil.Ok(t, err)
			testutil.Ok(t, run.WaitAll(t.Context()))
			after := w.now(t)
			d, err := run.Detail(t.Context())
			testutil.Ok(t, err)
			times := []time.Time{before, d.Created}
			for _, n := range d.Nodes {
				times = append(times, n.Started, n.Ended)
			}
			times = append(times, d.Ended, after)
			for i := 1; i < len(times); i++ {
				if times[i].Before(times[i-1].Add(-slack)) {
					t.Errorf("time %d is %v before the one before it: %v", i, times[i-1].Sub(times[i]), times)
				}
			}
		})
	}
}
