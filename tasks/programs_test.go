package tasks_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

// program is a worker of the queue default with handlers for its tasks, and a client.
type program struct {
	client *tasks.Client
	step   tasks.Task[int, int]
	total  tasks.Task[[]int, int]
	stop   func()
	ran    atomic.Int64
}

// runProgram starts a program. Its tasks begin with its name.
func runProgram(t *testing.T, rdb redis.UniversalClient, name string, also ...*program) *program {
	t.Helper()
	p := &program{client: tasks.NewClient(rdb), step: tasks.New[int, int](name + ".step"), total: tasks.New[[]int, int](name + ".total")}
	m := tasks.NewMux()
	for _, of := range append(also, p) {
		tasks.Handle(m, of.step, func(_ context.Context, n int) (int, error) { p.ran.Add(1); return n + 1, nil })
		tasks.Handle(m, of.total, func(_ context.Context, ns []int) (int, error) { return len(ns), nil })
	}
	worker, err := tasks.NewWorker(p.client, m, tasks.WorkerConfig{Name: fmt.Sprintf("%s-%d", name, len(also)), Concurrency: 2, Grace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	p.stop = during(t, worker.Run)
	t.Cleanup(func() { _ = p.client.Close() })
	return p
}

// do runs a workflow of the program.
func (p *program) do(t *testing.T) {
	t.Helper()
	if got, err := tasks.Chord(tasks.Map(tasks.Each(ints(20), p.step), p.step), p.total).Do(limited(t), p.client); err != nil || got != 20 {
		t.Errorf("got %d, %v, want 20", got, err)
	}
}

// Programs with different handlers share a queue: each runs its tasks, and none fails or waits for time to pass.
func TestProgramsShareAQueue(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(testing.TB) redis.UniversalClient{"miniredis": redistest.Mini, "redis": redistest.New, "cluster": redistest.Cluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := connect(t)
			a, b := runProgram(t, at, "a"), runProgram(t, at, "b")
			for range 3 {
				a.do(t)
				b.do(t)
			}
			newer := runProgram(t, at, "c", a) // a release that adds tasks
			newer.do(t)
			a.do(t)
			a.stop()
			before := newer.ran.Load()
			if got, err := a.step.S(1).Do(limited(t), a.client); err != nil || got != 2 || newer.ran.Load() == before {
				t.Errorf("got %d, %v, want that the newer release runs tasks of the older one", got, err)
			}
		})
	}
}

// A worker with the only handler of a task comes and goes: the task runs each time, and nothing of a pool is left to grow.
func TestWorkerWithAHandlerComesAndGoes(t *testing.T) {
	t.Parallel()
	at := redistest.New(t)
	b := runProgram(t, at, "b")
	for range 5 {
		run, err := tasks.New[int, int]("a.step").S(1).Send(t.Context(), b.client)
		if err != nil {
			t.Fatal(err)
		}
		a := runProgram(t, at, "a")
		if got, err := run.Wait(limited(t)); err != nil || got != 2 {
			t.Errorf("got %d, %v, want 2", got, err)
		}
		a.do(t)
		a.stop()
	}
	for _, shard := range shards(t, at) {
		if pools := at.SMembers(t.Context(), shard+"pools").Val(); len(pools) > 2 {
			t.Errorf("got the pools %q, want at most one for each program", pools)
		}
	}
	b.do(t)
}

// A queue has many tasks without a handler. Others run, and these run once there is a worker.
func TestManyTasksWithoutAHandler(t *testing.T) {
	t.Parallel()
	at := redistest.New(t)
	b := runProgram(t, at, "b")
	const n = 2000
	m := tasks.NewMux()
	var ran atomic.Int64
	sends := make([]tasks.Sending, n)
	for i := range n {
		late := tasks.New[int, int](fmt.Sprint("late ", i))
		tasks.Handle(m, late, func(context.Context, int) (int, error) { ran.Add(1); return 0, nil })
		sends[i] = tasks.Sending{Work: late.S(i)}
	}
	if _, err := b.client.SendMany(t.Context(), sends); err != nil {
		t.Fatal(err)
	}
	b.do(t)
	testutil.Eventually(t, "they wait", func() bool {
		qs, err := b.client.Queues(t.Context())
		return err == nil && len(qs) == 1 && len(qs[0].Unhandled) == n
	})
	worker, err := tasks.NewWorker(b.client, m, tasks.WorkerConfig{Name: "late", Concurrency: 4, Grace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	during(t, worker.Run)
	testutil.Eventually(t, "they run", func() bool { return ran.Load() >= n })
}

// The nodes of a program whose workers have stopped wait for a worker with handlers.
func TestNodesOfAStoppedProgramWait(t *testing.T) {
	t.Parallel()
	at := redistest.New(t)
	a, b := runProgram(t, at, "a"), runProgram(t, at, "b")
	a.do(t)
	a.stop()
	run, err := a.step.S(1).Send(t.Context(), b.client)
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "it waits for a handler", func() bool {
		ns, err := b.client.Nodes(t.Context(), run.ID())
		return err == nil && ns[0].Waits == "no live worker of queue default has a handler for a.step" && ns[0].Status == tasktype.Pending
	})
	again := runProgram(t, at, "a", b)
	if got, err := run.Wait(limited(t)); err != nil || got != 2 {
		t.Errorf("got %d, %v, want 2 from %v", got, err, again)
	}
}

// The first node of a workflow is an element of the ring of its queue, which needs fewer commands than a ready list.
func TestFirstNodeNeedsNoReadyList(t *testing.T) {
	t.Parallel()
	at := redistest.New(t)
	client := tasks.NewClient(at)
	t.Cleanup(func() { _ = client.Close() })
	if _, err := ID.S(1).Send(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	for _, shard := range shards(t, at) {
		if lists := at.Keys(t.Context(), shard+"ready:*").Val(); len(lists) > 0 {
			t.Errorf("got the ready lists %q, want none", lists)
		}
	}
}
