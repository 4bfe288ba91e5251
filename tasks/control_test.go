package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// gate is a fleet whose only task blocks until it is let go.
type gate struct {
	client *tasks.Client
	task   tasks.Task[int, int]
	open   chan struct{} // each value lets one run end
	now    atomic.Int64  // running
	most   atomic.Int64  // at once, since it was last set to zero
	ended  atomic.Int64
}

func newGate(t *testing.T, rdb redis.UniversalClient, cfg tasks.WorkerConfig) *gate {
	t.Helper()
	g := &gate{client: newClient(t, rdb), task: tasks.New[int, int]("gate.wait"), open: make(chan struct{})}
	mux := tasks.NewMux()
	tasks.Handle(mux, g.task, func(ctx context.Context, n int) (int, error) {
		now := g.now.Add(1)
		for most := g.most.Load(); now > most && !g.most.CompareAndSwap(most, now); most = g.most.Load() {
		}
		defer func() {
			g.now.Add(-1)
			g.ended.Add(1)
		}()
		select {
		case <-g.open:
			return n, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
	cfg.Grace = time.Millisecond
	runWorker(t, g.client, mux, cfg)
	return g
}

func TestConcurrencyGrowsAndShrinksExactly(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		g := newGate(t, rdb, tasks.WorkerConfig{Name: "gate", Concurrency: 3, MaxConcurrency: 10})
		run := started(t, g.client, tasks.Each(make([]int, 60), g.task))
		let := func(n int) {
			t.Helper()
			want := g.ended.Load() + int64(n)
			for range n {
				g.open <- struct{}{}
			}
			testutil.Eventually(t, "runs end", func() bool { return g.ended.Load() == want })
		}
		running := func(n int) {
			t.Helper()
			testutil.Eventually(t, "exactly so many run", func() bool { return g.now.Load() == int64(n) })
		}
		set := func(n int) {
			t.Helper()
			testutil.Ok(t, g.client.SetConcurrency(t.Context(), "gate", n))
		}
		most := func(n int) {
			t.Helper()
			if got := g.most.Swap(0); got > int64(n) {
				t.Errorf("got %d at once, want at most %d", got, n)
			}
		}
		running(3)
		let(3)
		running(3)
		most(3)
		set(7)
		running(7)
		let(7)
		running(7)
		most(7)
		// The tasks beyond two continue, and none starts before fewer than two are running.
		set(2)
		testutil.Eventually(t, "the worker knows", func() bool {
			ws, err := g.client.Inspect().Workers(t.Context())
			return err == nil && len(ws) == 1 && ws[0].Concurrency == 2
		})
		let(5)
		running(2)
		g.most.Store(0)
		let(6)
		running(2)
		most(2)
		set(10)
		running(10)
		most(10)
		go func() {
			for {
				select {
				case g.open <- struct{}{}:
				case <-t.Context().Done():
					return
				}
			}
		}()
		if _, err := run.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		most(10)
	})
}

func TestSetConcurrencyTellsWhatItCannotDo(t *testing.T) {
	t.Parallel()
	g := newGate(t, redistest.New(t), tasks.WorkerConfig{Name: "gate", Concurrency: 2, MaxConcurrency: 4})
	for _, c := range []struct {
		worker string
		n      int
		want   string
	}{
		{"gate", 5, "at most 4"},
		{"", 5, "at most 4"},
		{"fence", 2, "workers are gate"},
		{"gate", 0, "pause"},
	} {
		err := g.client.SetConcurrency(t.Context(), c.worker, c.n)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d for %q: got %v, want an error with %q", c.n, c.worker, err, c.want)
		}
	}
	idle := tasks.NewClient(redistest.New(t))
	if err := idle.SetConcurrency(t.Context(), "", 2); err == nil || !strings.Contains(err.Error(), "no worker") {
		t.Errorf("without workers: got %v, want an error with no worker", err)
	}
}

// Channels of Redis are shared by its databases: a change in one does not reach a worker of the same name, or a workflow of the same ID, in another.
func TestDatabasesShareNoMessages(t *testing.T) {
	t.Parallel()
	address := "redis://" + redistest.Server(t).Addr
	var gates []*gate
	for db := range 2 {
		client := testutil.Must(tasks.Connect(t.Context(), fmt.Sprintf("%s/%d", address, db)))(t)
		t.Cleanup(func() { _ = client.Close() })
		gates = append(gates, newGate(t, client.Redis(), tasks.WorkerConfig{Name: "gate", Concurrency: 1, MaxConcurrency: 4}))
	}
	var runs []*tasks.Run[int]
	for _, g := range gates {
		runs = append(runs, started(t, g.client, g.task.S(1), tasks.ID("same")))
		started(t, g.client, g.task.S(2))
		testutil.Eventually(t, "one runs", func() bool { return g.now.Load() == 1 })
	}
	testutil.Ok(t, gates[0].client.SetConcurrency(t.Context(), "gate", 2))
	testutil.Ok(t, runs[0].Revoke(t.Context()))
	if pongs, err := gates[1].client.Inspect().PingWorkers(t.Context(), 20*time.Second); err != nil || len(pongs) != 1 { // it hears messages in their order
		t.Errorf("ping: got %+v, %v", pongs, err)
	}
	if n := gates[1].now.Load(); n != 1 {
		t.Errorf("%d tasks run at once in the other database, want 1", n)
	}
	gates[1].open <- struct{}{}
	if _, err := runs[1].Wait(limited(t)); err != nil {
		t.Errorf("the workflow of the other database: got %v, want a success", err)
	}
}

func TestInspectTellsWhereNodesAre(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		g := newGate(t, rdb, tasks.WorkerConfig{Name: "gate", Concurrency: 1, MaxConcurrency: 4})
		pongs, err := g.client.Inspect().PingWorkers(ctx, 20*time.Second)
		if err != nil || len(pongs) != 1 || !pongs[0].Answered || pongs[0].Worker != "gate" {
			t.Errorf("ping: got %+v, %v, want a reply of gate", pongs, err)
		}
		group := started(t, g.client, tasks.Each([]int{1, 2, 3}, g.task))
		later := started(t, g.client, g.task.S(4, tasks.Queue("late")), tasks.In(time.Hour))
		testutil.Eventually(t, "one runs", func() bool { return g.now.Load() == 1 })
		g.wantActiveAndReserved(t, group.ID())
		g.wantDue(t, later.ID())
		g.pauseAndResume(t)
		for range 3 {
			g.open <- struct{}{}
		}
		if _, err := group.Wait(ctx); err != nil {
			t.Error(err)
		}
		testutil.Eventually(t, "the worker counts", func() bool {
			ws, err := g.client.Inspect().Workers(ctx)
			return err == nil && len(ws) == 1 && ws[0].Stats.Succeeded == 3 && ws[0].Stats.Begun == 3 && ws[0].MaxConcurrency == 4
		})
	})
}

// wantActiveAndReserved checks that one node of a group of three runs, and the others are ready.
func (g *gate) wantActiveAndReserved(t *testing.T, group string) {
	t.Helper()
	active, err := g.client.Inspect().Active(t.Context())
	if err != nil || len(active) != 1 {
		t.Fatalf("active: got %+v, %v, want one node", active, err)
	}
	want := tasktype.Task{Workflow: group, Node: active[0].Node, Task: "gate.wait", Queue: "default", Status: tasktype.Started, Worker: "gate", Started: active[0].Started}
	if active[0] != want {
		t.Errorf("active: got %+v, want %+v", active[0], want)
	}
	reserved, err := g.client.Inspect().Reserved(t.Context(), "", 10)
	if err != nil || len(reserved) != 2 {
		t.Errorf("reserved: got %+v, %v, want two nodes", reserved, err)
	}
	if other, err := g.client.Inspect().Reserved(t.Context(), "late", 10); err != nil || len(other) != 0 {
		t.Errorf("reserved in another queue: got %+v, %v, want none", other, err)
	}
	for _, r := range reserved {
		want := tasktype.Task{Workflow: group, Node: r.Node, Task: "gate.wait", Queue: "default", Status: tasktype.Pending}
		if r != want || r.Node == active[0].Node {
			t.Errorf("reserved: got %+v, want %+v, not node %s", r, want, active[0].Node)
		}
	}
}

// wantDue checks that the node of a workflow waits for its time.
func (g *gate) wantDue(t *testing.T, workflow string) {
	t.Helper()
	due, err := g.client.Inspect().Due(t.Context(), 10)
	if err != nil || len(due) != 1 {
		t.Fatalf("due: got %+v, %v, want one node", due, err)
	}
	counts, err := g.client.Inspect().CountDue(t.Context(), 10)
	if want := []tasktype.DueCount{{Queue: "default"}, {Queue: "late", Scheduled: 1}}; err != nil || !slices.Equal(counts, want) {
		t.Errorf("scheduled tasks by queue: got %+v, %v, want %+v", counts, err, want)
	}
	want := tasktype.Task{Workflow: workflow, Node: due[0].Node, Task: "gate.wait", Queue: "late", Status: tasktype.Pending, Due: due[0].Due}
	if due[0] != want || time.Until(due[0].Due) < 50*time.Minute {
		t.Errorf("due: got %+v, want %+v, in an hour", due[0], want)
	}
}

// pauseAndResume pauses queues and resumes them: repetitions succeed, also for unused queues.
func (g *gate) pauseAndResume(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	for range 2 {
		if err := errors.Join(g.client.PauseQueue(ctx, "default"), g.client.PauseQueue(ctx, "unused")); err != nil {
			t.Error(err)
		}
	}
	if g.client.PauseQueue(ctx, "") == nil || g.client.ResumeQueue(ctx, " ") == nil {
		t.Error("pause or resume a queue without a name: got no error, want one")
	}
	queues, err := g.client.Inspect().Queues(ctx)
	if err != nil || len(queues) != 1 || !queues[0].Paused || queues[0].Active < 1 || queues[0].Active+queues[0].Pending != 3 {
		t.Errorf("queues: got %+v, %v, want one that is paused with 3 nodes", queues, err)
	}
	for range 2 {
		if err := errors.Join(g.client.ResumeQueue(ctx, "default"), g.client.ResumeQueue(ctx, "unused")); err != nil {
			t.Error(err)
		}
	}
}

// A worker that hangs is still listed for a while, but does not reply.
func TestPingReportsSilentWorkers(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	client := connect(t, url)
	cmd := child(t, url, "frozen")
	testutil.Eventually(t, "it answers", func() bool {
		ps, err := client.Inspect().PingWorkers(t.Context(), time.Second)
		return err == nil && len(ps) == 1 && ps[0].Answered
	})
	freeze(t, cmd)
	ps, err := client.Inspect().PingWorkers(t.Context(), 200*time.Millisecond)
	if err != nil || len(ps) != 1 || ps[0].Answered || ps[0].Worker != "frozen" {
		t.Errorf("ping: got %+v, %v, want no reply of frozen", ps, err)
	}
}

func freeze(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	testutil.Ok(t, cmd.Process.Signal(syscall.SIGSTOP))
}

func TestHeadersReachEveryTaskAndAreBounded(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.New(t))
	who := tasks.New[string, string]("headers.who")
	mux := tasks.NewMux()
	tasks.Handle(mux, who, func(ctx context.Context, s string) (string, error) {
		return s + tasks.InfoFrom(ctx).Headers["who"], nil
	})
	runWorker(t, client, mux, tasks.WorkerConfig{})
	run, err := tasks.Chain(who.S(""), who).Send(t.Context(), client, tasks.Headers(map[string]string{"who": "ann"}))
	testutil.Ok(t, err)
	if out, err := run.Wait(t.Context()); err != nil || out != "annann" {
		t.Errorf("got %q, %v, want annann", out, err)
	}
	_, err = who.S("").Send(t.Context(), client, tasks.Headers(map[string]string{"who": strings.Repeat("x", 9000)}))
	if err == nil || !strings.Contains(err.Error(), "headers") {
		t.Errorf("headers of 9000 bytes: got %v, want an error that names the headers", err)
	}
}

// A workflow runs again in its shard, wherever that is on a Cluster, and its output is read from the start.
func TestRunAgainWithOutput(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		client := newClient(t, rdb)
		say := tasks.New[int, int]("step.say")
		mux := tasks.NewMux()
		tasks.Handle(mux, say, func(ctx context.Context, n int) (int, error) {
			return n + 1, errors.Join(tasks.Emit(ctx, n), tasks.Emit(ctx, n+1))
		})
		runWorker(t, client, mux, tasks.WorkerConfig{})
		for range 5 { // on several shards
			run := started(t, client, tasks.Chain(say.S(1), say))
			for i, want := range []string{"1 2 2 3", "1 2 2 3", "2 3"} {
				var err error
				switch i {
				case 1:
					run, err = run.RunAgain(t.Context())
				case 2:
					run, err = run.RunAgain(t.Context(), tasks.FromNode("1"))
				}
				testutil.Ok(t, err)
				wantValue(t, run, 3)
				testutil.Ok(t, run.WaitAll(t.Context()))
				var got []string
				for c, err := range run.Output(limited(t)) {
					testutil.Ok(t, err)
					got = append(got, string(c.Value))
				}
				if strings.Join(got, " ") != want {
					t.Errorf("run %d: got the output %q, want %s", i+1, got, want)
				}
			}
		}
	})
}

// Output that Redis did not take is lost, and no other. A call that its connection repeats adds nothing twice.
func TestOutputBesideFaults(t *testing.T) {
	t.Parallel()
	for kind, want := range map[redistest.Kind]string{redistest.Refused: "0+0 2+1", redistest.Repeated: "0+0 1+0 2+0"} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			f := redistest.NewFault(kind, 2)
			f.Match = func(cmd redis.Cmder) bool {
				return len(cmd.Args()) > 1 && store.ScriptName(fmt.Sprint(cmd.Args()[1])) == "emit"
			}
			f.Arm()
			client := newClient(t, f.Client(t, redistest.URL(t)))
			say := tasks.New[int, int]("output.faults")
			mux := tasks.NewMux()
			tasks.Handle(mux, say, func(ctx context.Context, n int) (int, error) {
				for i := range n {
					if err := tasks.Emit(ctx, i); err != nil || !testutil.Becomes(func() bool { return f.Calls() > i }) {
						return 0, fmt.Errorf("chunk %d: %w", i, err)
					}
				}
				return n, nil
			})
			runWorker(t, client, mux, tasks.WorkerConfig{})
			run := started(t, client, say.S(3))
			wantValue(t, run, 3)
			var got []string
			for c, err := range run.Output(limited(t)) {
				testutil.Ok(t, err)
				got = append(got, fmt.Sprintf("%s+%d", c.Value, c.Lost))
			}
			if strings.Join(got, " ") != want {
				t.Errorf("got the chunks, with the lost ones before each, %q, want %s", got, want)
			}
		})
	}
}

// A retry of a cancelled workflow that has its value ends as a success.
func TestRetryKeepsTheOutcome(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		run := sent(t, w, tasks.OnSuccess(ID.S(1), Note.With(tasks.In(time.Hour))))
		wantValue(t, run, 1)
		testutil.Ok(t, run.Cancel(t.Context()))
		_ = run.WaitAll(limited(t))
		testutil.Ok(t, run.Retry(t.Context()))
		testutil.Ok(t, run.WaitAll(limited(t)))
		list, _, err := w.client.Inspect().Workflows(t.Context(), tasktype.WorkflowFilter{})
		if err != nil || len(list) != 1 || list[0].State != tasktype.WorkflowSucceeded {
			t.Errorf("got %+v, %v, want a success", list, err)
		}
	})
}
