package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/facttest"
	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const keys = "asynq:{default}:"

// silent is a log that nobody reads.
var silent = slog.New(slog.DiscardHandler)

// engineOn returns an engine that the end of the test closes.
func engineOn(t *testing.T, rdb redis.UniversalClient) *Engine {
	t.Helper()
	e := New(rdb, silent)
	t.Cleanup(e.Close)
	return e
}

// group sends n tasks that answer with what they get.
func group(t *testing.T, e *Engine, n int) string {
	t.Helper()
	return groupOf(t, e, n, &graph.Opts{}, &graph.Opts{})
}

// groupOf is group with options of the group and of each task.
func groupOf(t *testing.T, e *Engine, n int, all, each *graph.Opts) string {
	t.Helper()
	s := &graph.Sig{Shape: graph.Group, Opts: all}
	for range n {
		s.Kids = append(s.Kids, &graph.Sig{Shape: graph.Call, Task: "echo", Opts: each, Input: json.RawMessage("1")})
	}
	id, err := e.Send(t.Context(), s, &graph.Opts{})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func echo() map[string]*Handler {
	return map[string]*Handler{"echo": {Name: "echo", Run: func(_ context.Context, in []byte) (Answer, error) {
		return Answer{Value: in}, nil
	}}}
}

// work runs a worker until the test ends.
func work(t *testing.T, w *Worker) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("worker: %v", err)
		}
	})
}

func config(name string, log *slog.Logger) WorkerConfig {
	return WorkerConfig{Name: name, Queues: map[string]int{"default": 1}, Concurrency: 3, MaxConcurrency: 3, MaxResult: 1 << 20, Logger: log}
}

// dequeue does what asynq does to get a task.
func dequeue(w *Worker) *redis.Cmd {
	return w.seam.EvalSha(context.Background(), dequeueSHA, []string{keys + "pending", keys + "paused", keys + "active", keys + "lease"},
		time.Now().Add(30*time.Second).Unix(), keys+"t:")
}

// What a worker took and did not start is given back at once when it stops, or may run less.
func TestGivesBackWhatHasNotStarted(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		e := engineOn(t, rdb)
		id := group(t, e, 3)
		leaver := NewWorker(e, echo(), config("leaver", silent))
		if err := dequeue(leaver).Err(); err != nil {
			t.Fatal(err)
		}
		if hs, err := e.store.Running(t.Context()); err != nil || len(hs) != 3 {
			t.Fatalf("begun %v, %v; want all three that it took", hs, err)
		}
		if n := rdb.ZCard(t.Context(), keys+"lease").Val(); n != 3 {
			t.Fatalf("%d leases, want 3", n)
		}
		leaver.seam.giveBack()
		if hs, err := e.store.Running(t.Context()); err != nil || len(hs) != 1 || hs[0].Worker != "leaver" {
			t.Fatalf("after it was given back %v runs, %v; want the one that has a slot", hs, err)
		}
		if n := rdb.LLen(t.Context(), keys+"active").Val(); n != 1 {
			t.Errorf("%d tasks are active in asynq, want 1", n)
		}
		work(t, NewWorker(e, echo(), config("other", silent)))
		done := func(n int) {
			t.Helper()
			facttest.Eventually(t, "the other worker runs it", func() bool {
				p, err := e.Progress(t.Context(), id)
				return err == nil && p.Done == n
			})
		}
		done(2)
		if err := e.ExpireWorkers(t.Context(), []string{"leaver"}); err != nil {
			t.Fatal(err)
		}
		done(3)
	})
}

// A worker that takes less than it could begin keeps to what it may run.
func TestTakesAsMuchAsItMayRun(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		e := engineOn(t, rdb)
		group(t, e, 5)
		w := NewWorker(e, echo(), config("one", silent))
		w.SetConcurrency(2)
		for range 2 {
			if err := dequeue(w).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if n := rdb.LLen(t.Context(), keys+"pending").Val(); n != 3 {
			t.Errorf("%d tasks wait, want 3", n)
		}
	})
}

// While all slots are busy with short tasks, the next ones are taken. Others get them when no slot becomes
// free soon.
func TestTakesAheadOfFreeSlots(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		e := engineOn(t, rdb)
		group(t, e, 30)
		w := NewWorker(e, echo(), config("one", silent))
		for range 3 {
			if err := dequeue(w).Err(); err != nil {
				t.Fatal(err)
			}
		}
		w.seam.mean.Store(1)
		runs := func(n int) func() bool {
			return func() bool {
				hs, err := e.store.Running(t.Context())
				return err == nil && len(hs) == n
			}
		}
		if !runs(3)() {
			t.Fatal("more was begun than there are slots, before it was known that the queue has more")
		}
		next, given := make(chan error, 1), make(chan int, 1)
		back := w.seam.back
		w.seam.back = func(queue string, k store.QueueKeys, ps []store.Popped) { back(queue, k, ps); given <- len(ps) }
		go func() { next <- dequeue(w).Err() }()
		if n := <-given; n != aheadMost*3 {
			t.Errorf("%d waited for slots, want four times as many as there are", n)
		}
		facttest.Eventually(t, "none of them runs", runs(3))
		if w.seam.mean.Load() != int64(time.Second) {
			t.Error("the worker would take ahead again, though its tasks are not short")
		}
		w.seam.done("default", time.Second)
		if err := <-next; err != nil {
			t.Errorf("got %v once there is a slot", err)
		}
	})
}

// What a worker has taken ahead does not start once it is revoked.
func TestRevokedAhead(t *testing.T) {
	t.Parallel()
	e := engineOn(t, redistest.New(t))
	w := NewWorker(e, echo(), config("one", silent))
	for _, task := range []string{"a.1.0", "a.2.0", "b.1.0", "c.1.0"} {
		w.ahead[task] = &begun{Begun: store.Begun{Status: "run"}}
	}
	w.hear("n a 2,3")
	w.hear("x b")
	for task, want := range map[string]bool{"a.1.0": true, "a.2.0": false, "b.1.0": false, "c.1.0": true} {
		if got := w.startAhead(task).Status == "run"; got != want {
			t.Errorf("%s runs: %v, want %v", task, got, want)
		}
	}
}

// A queue that is paused gives nothing, and a push wakes who found it empty.
func TestPausedAndEmptyQueues(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		e := engineOn(t, rdb)
		w := NewWorker(e, echo(), config("one", silent))
		w.seam.poll = time.Millisecond
		group(t, e, 1)
		if err := e.PauseQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		if err := dequeue(w).Err(); err != redis.Nil {
			t.Fatalf("a paused queue gave %v", err)
		}
		if err := e.ResumeQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		if err := dequeue(w).Err(); err != nil {
			t.Fatal(err)
		}
		if err := dequeue(w).Err(); err != redis.Nil {
			t.Fatalf("an empty queue gave %v", err)
		}
		bus := rdb.Subscribe(t.Context(), "muster:bus")
		t.Cleanup(func() { _ = bus.Close() })
		if _, err := bus.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		group(t, e, 1)
		if m, err := bus.ReceiveMessage(t.Context()); err != nil || m.Payload != "q default" {
			t.Fatalf("heard %v, %v", m, err)
		}
		group(t, e, 1) // nobody sleeps: it is not told
		if n := rdb.Exists(t.Context(), "muster:{default}:bell").Val(); n != 0 {
			t.Error("the bell waits although nobody sleeps")
		}
	})
}

// notes is a log that can be read while it is written.
type notes struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.Write(p)
}

func (n *notes) has(s string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return bytes.Contains(n.b.Bytes(), []byte(s))
}

// An asynq whose scripts are not the ones we know runs them as they are, and the worker says so.
func TestUnknownScriptsOfAsynq(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		said := &notes{}
		log := slog.New(slog.NewTextHandler(said, nil))
		e := New(rdb, log)
		t.Cleanup(e.Close)
		w := NewWorker(e, echo(), config("plain", log))
		w.seam.knownDequeue, w.seam.knownDone = "another", "another"
		work(t, w)
		id := group(t, e, 10)
		facttest.Eventually(t, "all is done", func() bool {
			p, err := e.Progress(t.Context(), id)
			return err == nil && p.Ended
		})
		facttest.Eventually(t, "asynq forgets it", func() bool { return rdb.LLen(t.Context(), keys+"active").Val() == 0 })
		if !said.has("polls its queues") {
			t.Error("the worker did not say that it polls")
		}
	})
}

// The asynq that this program is built with has the scripts we know, so that none of it is slow unseen.
func TestKnownScriptsOfAsynq(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		said := &notes{}
		log := slog.New(slog.NewTextHandler(said, nil))
		e := New(rdb, log)
		t.Cleanup(e.Close)
		w := NewWorker(e, echo(), config("known", log))
		work(t, w)
		id := group(t, e, 10)
		facttest.Eventually(t, "all is done", func() bool {
			p, err := e.Progress(t.Context(), id)
			return err == nil && p.Ended && rdb.LLen(t.Context(), keys+"active").Val() == 0
		})
		w.seam.mu.Lock()
		left := len(w.seam.begun)
		w.seam.mu.Unlock()
		if w.seam.plain.Load() || left != 0 || said.has("WARN") {
			t.Errorf("plain %v, %d tasks not forgotten by us, log: %s", w.seam.plain.Load(), left, said.b.String())
		}
	})
}
