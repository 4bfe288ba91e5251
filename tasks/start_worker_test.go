package tasks_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// A started worker is listed immediately, finishes running tasks when it is stopped, and is not listed after that.
func TestStoppedWorkerFinishesRunningTasks(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.New(t))
	slow := tasks.New[int, int]("background.slow")
	begun, release := make(chan struct{}), make(chan struct{})
	mux := tasks.NewMux()
	tasks.Handle(mux, slow, func(_ context.Context, n int) (int, error) {
		close(begun)
		<-release
		return n + 1, nil
	})
	called := false
	worker := testutil.Must(tasks.StartWorker(t.Context(), client, mux, tasks.WorkerConfig{Ready: func() { called = true }}))(t)
	if !called {
		t.Error("Ready was not called before StartWorker returned")
	}
	if got := len(listed(t, client)); got != 1 {
		t.Errorf("workers: got %d, want 1", got)
	}
	run := started(t, client, slow.S(1))
	<-begun
	stopped := make(chan error, 1)
	go func() { stopped <- worker.Stop() }()
	close(release)
	if err := <-stopped; err != nil {
		t.Errorf("Stop: got %v, want nil", err)
	}
	if err := worker.Stop(); err != nil {
		t.Errorf("second Stop: got %v, want nil", err)
	}
	wantValue(t, run, 2)
	if got := len(listed(t, client)); got != 0 {
		t.Errorf("workers after Stop: got %d, want 0", got)
	}
}

// StartWorker returns the error that prevents a worker from running.
func TestStartWorkerReturnsStartError(t *testing.T) {
	t.Parallel()
	client := tasks.NewClient(redistest.New(t))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tasks.StartWorker(over, client, tasks.NewMux(), tasks.WorkerConfig{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a ctx that is done: got %v, want context.Canceled", err)
	}
	for field, cfg := range map[string]tasks.WorkerConfig{
		"Queues": {Queues: map[string]int{"a b": 1}}, "Grace": {Grace: -1}, "MaxResult": {MaxResult: -1},
	} {
		if _, err := tasks.StartWorker(t.Context(), client, tasks.NewMux(), cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("got %v, want an error that names %s", err, field)
		}
	}
	if _, err := tasks.StartWorker(t.Context(), client, tasks.NewMux(), tasks.WorkerConfig{Concurrency: -1}); err == nil {
		t.Error("with a wrong Concurrency: got nil, want an error")
	}
	testutil.Ok(t, client.Close())
	if _, err := tasks.StartWorker(t.Context(), client, tasks.NewMux(), tasks.WorkerConfig{}); err == nil {
		t.Error("with a closed client: got nil, want an error")
	}
	worker := testutil.Must(tasks.NewWorker(client, tasks.NewMux(), tasks.WorkerConfig{}))(t)
	if err := worker.Stop(); err == nil {
		t.Error("Stop of a worker that was not started: got nil, want an error")
	}
}

// A worker that is stopped at any moment of its start stops cleanly, and leaves no heartbeat.
func TestWorkerStopsWhileItStarts(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	for n, up := 1, false; !up; n++ {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f := redistest.NewFault(redistest.Slow, n)
		client := tasks.NewClient(f.Client(t, url))
		f.Arm()
		go func() {
			<-f.Hit()
			cancel()
			f.Release()
		}()
		worker, err := tasks.NewWorker(client, tasks.NewMux(), tasks.WorkerConfig{
			Name: "brief", Ready: func() { up = ctx.Err() == nil; cancel() },
		})
		testutil.Ok(t, err)
		if err := worker.Run(ctx); err != nil {
			t.Fatalf("stopped before exchange %d: %v", n, err)
		}
		if left, err := client.Inspect().Workers(t.Context()); err != nil || len(left) > 0 {
			t.Fatalf("stopped before exchange %d: it is still listed: %v, %v", n, left, err)
		}
		_ = client.Close()
	}
}

// A program may close its client while a worker of the client runs: the worker stops first, and another worker runs
// its tasks.
func TestCloseStopsTheWorkersOfTheClient(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	step := tasks.New[int, int]("close.step", tasks.Queue("close"))
	running, release := make(chan struct{}, 1), make(chan struct{})
	start := func() (*tasks.Client, chan error) {
		client := testutil.Must(tasks.Connect(t.Context(), url))(t)
		mux := tasks.NewMux()
		tasks.Handle(mux, step, func(ctx context.Context, n int) (int, error) {
			running <- struct{}{}
			select {
			case <-release:
				return n + 1, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		})
		worker := testutil.Must(tasks.NewWorker(client, mux, tasks.WorkerConfig{Queues: map[string]int{"close": 1}}))(t)
		ended := make(chan error, 1)
		go func() { ended <- worker.Run(context.WithoutCancel(t.Context())) }()
		return client, ended
	}

	client, ended := start()
	run := started(t, client, step.S(1))
	<-running
	for range 2 {
		if err := client.Close(); err != nil {
			t.Errorf("Close: got %v, want nil", err)
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
	late := testutil.Must(tasks.NewWorker(client, tasks.NewMux(), tasks.WorkerConfig{}))(t)
	if err := late.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "client is closed") {
		t.Errorf("Run after Close: got %v, want an error about a closed client", err)
	}

	close(release)
	client, ended = start()
	wantValue(t, tasks.Attach[int](client, run.ID()), 2)
	if err := client.Close(); err != nil {
		t.Errorf("Close: got %v, want nil", err)
	}
	<-ended
}

// A pause and a graceful stop act while the backlog is long, and unstarted tasks are in Redis for other workers.
func TestPauseAndStopActAtOnce(t *testing.T) {
	t.Parallel()
	const all = 100_000
	for _, took := range []time.Duration{time.Millisecond, 200 * time.Millisecond} {
		t.Run(took.String(), func(t *testing.T) {
			t.Parallel()
			busy := tasks.New[int, int]("fleet.busy")
			var began atomic.Int64
			client, worker := startMux(t, redistest.New(t), func(m *tasks.Mux) {
				tasks.Handle(m, busy, func(ctx context.Context, n int) (int, error) {
					began.Add(1)
					select {
					case <-time.After(took):
					case <-ctx.Done():
					}
					return n, nil
				})
			}, func(c *tasks.WorkerConfig) { c.Concurrency, c.Grace = 8, 10*time.Second })
			run := started(t, client, tasks.Each(ints(all), busy))
			goesOn := func() {
				before := began.Load()
				testutil.Eventually(t, "tasks run", func() bool { return began.Load() > before+20 })
			}
			accounted := func() { // every task has ended or is ready, and most are ready
				t.Helper()
				qs, err := client.Inspect().Queues(t.Context())
				if err != nil || len(qs) != 1 {
					t.Fatalf("queues %+v, %v", qs, err)
				}
				p, err := run.Progress(t.Context())
				if err != nil || int(qs[0].Pending)+p.Done != all || qs[0].Active != 0 || p.Done > all/2 {
					t.Errorf("%d tasks are ready, %d in batches and %d have ended, %v, want %d in all, none in batches and half of them ready", qs[0].Pending, qs[0].Active, p.Done, err, all)
				}
			}
			goesOn()
			testutil.Ok(t, client.PauseQueue(t.Context(), "default"))
			testutil.Eventually(t, "none runs", func() bool { busy, _ := worker.Slots(); return busy == 0 })
			accounted()
			testutil.Ok(t, client.ResumeQueue(t.Context(), "default"))
			goesOn()
			testutil.Ok(t, worker.Stop())
			accounted()
		})
	}
}

// A worker that is stopped returns the tasks that it cannot finish.
func TestStoppedWorkerGivesBack(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		other := &world{client: w.client, notes: map[string][]int{}, hold: make(chan struct{})}
		must, mux := tasks.New[int, struct{}]("t.must"), other.mux()
		tasks.HandleAction(mux, must, func(ctx context.Context, _ int) error { <-ctx.Done(); panic(ctx.Err()) })
		worker := runWorker(t, w.client, mux, tasks.WorkerConfig{Grace: 10 * time.Millisecond, Name: "leaver", Queues: map[string]int{"away": 1, "default": 1}})
		run := sent(t, w, tasks.Join(Slow.S(AB{1, 600_000}, tasks.Queue("away")), must.S(1, tasks.Queue("away"))))
		testutil.Eventually(t, "both run", func() bool {
			as, err := w.client.Inspect().Active(t.Context())
			return err == nil && len(as) == 2 && as[0].Worker == "leaver"
		})
		testutil.Ok(t, worker.Stop())
		if as, err := w.client.Inspect().Active(t.Context()); err != nil || len(as) != 0 {
			t.Fatalf("after the stop %v runs, %v", as, err)
		}
		nodes, err := run.Nodes(t.Context())
		for _, n := range nodes {
			if n.Status != tasktype.Pending || n.Attempts != 0 {
				t.Errorf("returned node: got %+v, want it pending", n)
			}
		}
		testutil.Ok(t, err)
		if ws, err := w.client.Inspect().Workers(t.Context()); err != nil || len(ws) != 1 {
			t.Fatalf("workers %v, %v", ws, err)
		}
		testutil.Ok(t, run.Revoke(t.Context()))
	})
}

// A node that no live worker would take has a reason, instead of looking like one that is about to start.
func TestNodeWithoutWorkerHasReason(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		unheard := tasks.New[int, int]("t.unheard")
		why := func(s tasks.Signature[int]) (out []string) {
			run := sent(t, w, s)
			for _, n := range nodes(t, w, run.ID()) {
				out = append(out, n.Waits)
			}
			testutil.Ok(t, run.Revoke(t.Context()))
			return out
		}
		want := func(got []string, want ...string) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		want(why(tasks.Chain(ID.S(1, tasks.Queue("unserved")), Inc)), "no live worker takes from queue unserved", "")
		want(why(ID.S(1, tasks.In(time.Hour))), "") // time will bring it
		resume := pause(t, w)
		want(why(ID.S(1)), "queue default is paused")
		want(why(tasks.Chain(unheard.S(1), Inc)), "no live worker of queue default has a handler for t.unheard", "")
		w.worker.Kill()
		testutil.Eventually(t, "the worker is gone", func() bool {
			ws, err := w.client.Inspect().Workers(t.Context())
			return err == nil && len(ws) == 0
		})
		want(why(ID.S(1)), "no worker is live")
		resume()
	})
}

// A task that no live worker has a handler for waits for one, and says so. A worker of another queue with the handler does not take it.
func TestTaskWaitsForAWorkerThatHandlesIt(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		late := tasks.New[int, int]("t.deployed")
		run := sent(t, w, tasks.Chain(late.S(1), Inc))
		waits := func() (n tasktype.Node, ok bool) {
			n = nodes(t, w, run.ID())[0]
			return n, time.Until(n.Due) > 23*time.Hour
		}
		testutil.Eventually(t, "it waits", func() bool { _, ok := waits(); return ok })
		if n, _ := waits(); n.Waits != "no live worker of queue default has a handler for t.deployed" || n.Status != tasktype.Pending {
			t.Errorf("got %+v, want that it waits for a handler", n)
		}
		if qs, err := w.client.Inspect().Queues(t.Context()); err != nil || len(qs) != 1 || !maps.Equal(qs[0].Unhandled, map[string]int64{"t.deployed": 1}) {
			t.Errorf("got %+v, %v, want one task without a handler", qs, err)
		}
		m := tasks.NewMux()
		tasks.Handle(m, late, func(_ context.Context, n int) (int, error) { return n, nil })
		runWorker(t, w.client, m, tasks.WorkerConfig{Name: "late", Concurrency: 1, Grace: time.Second})
		wantValue(t, run, 2)
		ended(t, w, run.ID())
	})
}

// A task without a handler can be cancelled, and expires.
func TestTaskWithoutAHandlerEnds(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		unheard := tasks.New[int, int]("t.unheard")
		run := sent(t, w, tasks.Chain(unheard.S(1), Inc))
		testutil.Eventually(t, "it waits", func() bool { return !nodes(t, w, run.ID())[0].Due.IsZero() })
		testutil.Ok(t, run.Cancel(t.Context()))
		_, err := run.Wait(limited(t))
		if f := wantFailure(t, err, "cancelled"); f.Code != tasktype.CodeCancelled {
			t.Errorf("got code %q, want %q", f.Code, tasktype.CodeCancelled)
		}
		_, err = sent(t, w, unheard.S(1, tasks.Expires(100*time.Millisecond))).Wait(limited(t))
		if f := wantFailure(t, err, "expired"); f.Code != tasktype.CodeExpired {
			t.Errorf("got code %q, want %q", f.Code, tasktype.CodeExpired)
		}
	})
}
