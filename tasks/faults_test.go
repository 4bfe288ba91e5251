package tasks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// Any call of a worker can fail, including its start and the calls of asynq: each workflow ends with one value, if
// necessary by another worker, and no key is left.
func TestWorkerSurvivesAFaultAtAnyCall(t *testing.T) {
	t.Parallel()
	redistest.EachFault(t, map[redistest.Kind]int{
		redistest.Refused: 20, redistest.ReplyLost: 20, redistest.Repeated: 12, redistest.Crash: 12, redistest.CrashAfter: 12, redistest.Slow: 6, redistest.Frozen: 8,
	}, func(t *testing.T, f *redistest.Fault) { workWithFault(t, f) })
}

// The same holds for tasks with limits per key.
func TestLimitsPerKeySurviveAFaultAtAnyCall(t *testing.T) {
	t.Parallel()
	redistest.EachFault(t, map[redistest.Kind]int{
		redistest.Refused: 12, redistest.ReplyLost: 20, redistest.Repeated: 12, redistest.Crash: 8, redistest.CrashAfter: 12, redistest.Frozen: 8,
	}, func(t *testing.T, f *redistest.Fault) {
		key := func(int) string { return "key" }
		workWithFault(t, f, tasks.ConcurrencyPerKey(1, key), tasks.RatePerKey(3, 50*time.Millisecond, key))
	})
}

func workWithFault(t *testing.T, f *redistest.Fault, limits ...tasks.TaskOption) {
	ctx := limited(t)
	url := redistest.URL(t)
	c := connect(t, url)
	world := &cutWorld{runs: map[ran]int{}, limits: limits}
	run := started(t, c, witness())
	fails, err := skipper().Send(ctx, c)
	testutil.Ok(t, err)
	f.Arm()
	first, ready, over := startWithFault(ctx, t, f, world, "first", tasks.NewClient(f.Client(t, url)))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = run.Wait(ctx)
		_, _ = fails.Wait(ctx)
	}()
	select {
	case <-f.Hit():
	case <-ended:
	}
	refused := false // at its start
	switch f.Kind {
	case redistest.Frozen:
	case redistest.Slow:
		select {
		case <-ready:
		default:
			f.Release() // at its start it makes one call after the other
		}
	default:
		select {
		case <-ready:
		case err := <-over:
			refused = true
			if !f.Fails() || !errors.Is(err, redistest.ErrFault) {
				t.Errorf("worker: got %v, want the error of its fault", err)
			}
			over <- nil
		}
	}
	if f.Deadly() {
		first.Kill()
	}
	helped := refused || f.Deadly() || f.Kind == redistest.Frozen
	if helped {
		startWithFault(ctx, t, f, world, "second", c)
		testutil.Ok(t, tasks.ExpireLeases(ctx, c, "first"))
	}
	testutil.Ok(t, cutValues(ctx, run, fails))
	f.Release()
	if err := nothingLeft(ctx, c.Redis()); err != nil {
		t.Error(err)
	}
	testutil.Eventually(t, "no slot is in use", func() bool { busy, _ := first.Slots(); return busy == 0 })
	world.mu.Lock()
	defer world.mu.Unlock()
	for r, n := range world.runs {
		if n > 1 && (r.worker != "first" || f.Kind != redistest.Frozen) { // a thawed worker runs the batches that it had taken
			t.Errorf("node %s ran %d times on worker %s", r.node, n, r.worker)
		}
	}
}

// startWithFault starts a worker, which ends with the test.
func startWithFault(ctx context.Context, t *testing.T, f *redistest.Fault, world *cutWorld, name string, c *tasks.Client) (w *tasks.Worker, ready chan struct{}, over chan error) {
	t.Helper()
	ready, over = make(chan struct{}), make(chan error, 1)
	w, err := tasks.NewWorker(c, world.mux(), tasks.WorkerConfig{Name: name, Concurrency: 2, Grace: time.Second, Ready: func() { close(ready) }})
	testutil.Ok(t, err)
	running, stop := context.WithCancel(ctx)
	go func() { over <- w.Run(running) }()
	t.Cleanup(func() {
		f.Release()
		stop()
		if err := <-over; err != nil {
			t.Errorf("worker %s: %v", name, err)
		}
	})
	return w, ready, over
}
