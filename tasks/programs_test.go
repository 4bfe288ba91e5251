package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
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

// Programs with different handlers share a queue: each runs its tasks, and none fails.
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

// A worker with the only handler of a task comes and goes: the task runs each time.
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
	b.do(t)
}

// Workers of two programs come and go while workflows run whose tasks belong to both. Each workflow finishes, each task runs once,
// and no ready node is left.
func TestProgramsComeAndGo(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(testing.TB) redis.UniversalClient{"redis": redistest.New, "cluster": redistest.Cluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := connect(t)
			client := tasks.NewClient(at)
			t.Cleanup(func() { _ = client.Close() })
			first, second := tasks.New[int, int]("first.step"), tasks.New[int, int]("second.step")
			var mu sync.Mutex // guards ran
			ran := map[string]int{}
			count := func(ctx context.Context, n int) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				ran[tasks.InfoFrom(ctx).Key]++
				return n + 1, nil
			}
			start := func(of tasks.Task[int, int], worker string) *tasks.Worker {
				m := tasks.NewMux()
				tasks.Handle(m, of, count)
				w, err := tasks.StartWorker(t.Context(), client, m, tasks.WorkerConfig{Name: worker, Concurrency: 2, Grace: 5 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				return w
			}
			const most = 60
			var runs []*tasks.Run[int]
			var sending sync.WaitGroup
			sending.Go(func() {
				for i := range most {
					s := tasks.Chain(tasks.Chain(tasks.Chain(first.S(i), second), first), second)
					run, err := s.Send(t.Context(), client)
					if err != nil {
						t.Error(err)
						return
					}
					runs = append(runs, run)
					<-time.After(10 * time.Millisecond)
				}
			})
			var churn sync.WaitGroup
			for _, of := range []tasks.Task[int, int]{first, second} {
				churn.Go(func() {
					for i := range 12 {
						if err := start(of, fmt.Sprint(of.Name(), i)).Stop(); err != nil && !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
					}
				})
			}
			churn.Wait()
			sending.Wait()
			a, b := start(first, "last-first"), start(second, "last-second")
			for i, run := range runs {
				if got, err := run.Wait(limited(t)); err != nil || got != i+4 {
					t.Errorf("got %d, %v, want %d", got, err, i+4)
				}
			}
			if err := errors.Join(a.Stop(), b.Stop()); err != nil {
				t.Error(err)
			}
			if len(ran) != 4*most {
				t.Errorf("got %d tasks that ran, want %d", len(ran), 4*most)
			}
			for key, n := range ran {
				if n != 1 {
					t.Errorf("task %s ran %d times, want once", key, n)
				}
			}
			for _, shard := range shards(t, at) {
				testutil.Eventually(t, "no node is ready", func() bool {
					n := at.HGet(t.Context(), shard+"queue:default", "ready:n").Val()
					return n == "" || n == "0"
				})
			}
		})
	}
}

// A queue has many tasks without a handler. Others run, and these run once there is a worker.
func TestManyTasksWithoutAHandler(t *testing.T) {
	t.Parallel()
	at := redistest.New(t)
	b := runProgram(t, at, "b")
	const n = 200
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
		qs, err := b.client.Inspect().Queues(t.Context())
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
		ns, err := run.Nodes(t.Context())
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
