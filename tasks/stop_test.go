package tasks_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

// busyWorld is a worker with much to do; each task counts when it begins.
type busyWorld struct {
	client *tasks.Client
	worker *tasks.Worker
	task   tasks.Task[int, int]
	began  atomic.Int64
	stop   context.CancelFunc
	ended  chan error
}

func newBusyWorld(t *testing.T, rdb redis.UniversalClient, took time.Duration) *busyWorld {
	t.Helper()
	b := &busyWorld{client: tasks.NewClient(rdb), task: tasks.New[int, int]("fleet.busy"), ended: make(chan error, 1)}
	mux := tasks.NewMux()
	tasks.Handle(mux, b.task, func(ctx context.Context, n int) (int, error) {
		b.began.Add(1)
		select {
		case <-time.After(took):
		case <-ctx.Done():
		}
		return n, nil
	})
	worker, err := tasks.NewWorker(b.client, mux, tasks.WorkerConfig{Name: "busy", Concurrency: 8, Grace: 10 * time.Second})
	testutil.Ok(t, err)
	b.worker = worker
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	go func() { b.ended <- worker.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := b.client.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// A pause and a graceful stop act while the backlog is long, and unstarted tasks are in Redis for other workers.
func TestPauseAndStopActAtOnce(t *testing.T) {
	t.Parallel()
	const all = 100_000
	for _, took := range []time.Duration{time.Millisecond, 200 * time.Millisecond} {
		t.Run(took.String(), func(t *testing.T) {
			t.Parallel()
			b := newBusyWorld(t, redistest.New(t), took)
			run := started(t, b.client, tasks.Each(ints(all), b.task))
			goesOn := func() {
				before := b.began.Load()
				testutil.Eventually(t, "tasks run", func() bool { return b.began.Load() > before+20 })
			}
			idle := func() {
				testutil.Eventually(t, "none runs", func() bool { busy, _ := b.worker.Slots(); return busy == 0 })
			}
			goesOn()
			testutil.Ok(t, b.client.PauseQueue(t.Context(), "default"))
			idle()
			b.accounted(t, run, all)
			testutil.Ok(t, b.client.ResumeQueue(t.Context(), "default"))
			goesOn()
			b.stop()
			if err := <-b.ended; err != nil {
				t.Error(err)
			}
			b.accounted(t, run, all)
		})
	}
}

// accounted checks that every task has ended or is ready, and that most are ready.
func (b *busyWorld) accounted(t *testing.T, run *tasks.AsyncResult[[]int], all int) {
	t.Helper()
	qs, err := b.client.Queues(t.Context())
	if err != nil || len(qs) != 1 {
		t.Fatalf("queues %+v, %v", qs, err)
	}
	p, err := run.Progress(t.Context())
	if err != nil || int(qs[0].Pending)+p.Done != all || qs[0].Active != 0 || p.Done > all/2 {
		t.Errorf("%d tasks are ready, %d in batches and %d have ended, %v, want %d in all, none in batches and half of them ready", qs[0].Pending, qs[0].Active, p.Done, err, all)
	}
}

// A worker that is stopped while a task runs returns the rest of its batch immediately.
func TestDrainedWorkerHandsBack(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		other := &world{client: w.client, notes: map[string][]int{}, hold: make(chan struct{})}
		worker, err := tasks.NewWorker(w.client, other.mux(), tasks.WorkerConfig{Name: "drained", Concurrency: 1, Grace: waitLimit, Queues: map[string]int{"drain": 1}})
		testutil.Ok(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- worker.Run(ctx) }()
		var members []tasks.Signature[int]
		for i := range 60 {
			s := ID.S(i, tasks.Queue("drain"))
			if i == 20 {
				s = Hold.S("drain", tasks.Queue("drain"))
			}
			members = append(members, s)
		}
		run := sent(t, w, tasks.Group(members...))
		testutil.Eventually(t, "one task runs on", func() bool { return len(other.noted("at drain")) == 1 })
		stop()
		testutil.Eventually(t, "the rest is ready for others", func() bool {
			ready, err := w.client.Reserved(t.Context(), 100)
			active, aerr := w.client.Active(t.Context())
			return err == nil && aerr == nil && len(ready) == 39 && len(active) == 1
		})
		other.open("drain")
		if err := <-done; err != nil {
			t.Error(err)
		}
		if p, err := run.Progress(t.Context()); err != nil || p.Done != 21 {
			t.Errorf("got %+v, %v, want 21 tasks that have ended", p, err)
		}
		if err := run.Revoke(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A worker that is stopped returns the tasks that it cannot finish.
func TestStoppedWorkerGivesBack(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		other := &world{client: w.client, notes: map[string][]int{}, hold: make(chan struct{})}
		must, mux := tasks.NewAction[int]("t.must"), other.mux()
		tasks.HandleAction(mux, must, func(ctx context.Context, _ int) error { <-ctx.Done(); panic(ctx.Err()) })
		worker, err := tasks.NewWorker(w.client, mux, tasks.WorkerConfig{Grace: 10 * time.Millisecond, Name: "leaver", Queues: map[string]int{"away": 1, "default": 1}})
		testutil.Ok(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- worker.Run(ctx) }()
		run := sent(t, w, tasks.Join(Slow.S(AB{1, 2000}, tasks.Queue("away")), must.S(1, tasks.Queue("away"))))
		testutil.Eventually(t, "both run", func() bool {
			as, err := w.client.Active(t.Context())
			return err == nil && len(as) == 2 && as[0].Worker == "leaver"
		})
		stop()
		testutil.Ok(t, <-done)
		if as, err := w.client.Active(t.Context()); err != nil || len(as) != 0 {
			t.Fatalf("after the stop %v runs, %v", as, err)
		}
		nodes, err := w.client.Nodes(t.Context(), run.ID())
		for _, n := range nodes {
			if n.Status != tasktype.Pending || n.Attempts != 0 {
				t.Errorf("returned node: got %+v, want it pending", n)
			}
		}
		testutil.Ok(t, err)
		if ws, err := w.client.Workers(t.Context()); err != nil || len(ws) != 1 {
			t.Fatalf("workers %v, %v", ws, err)
		}
		testutil.Ok(t, run.Revoke(t.Context()))
	})
}
