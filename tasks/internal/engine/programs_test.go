package engine

import (
	"log/slog"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

// A worker that serves the pool of another program leaves it once a worker of that program is live.
func TestPoolIsLeftToItsProgram(t *testing.T) {
	t.Parallel()
	rdb, ctx := redistest.New(t), t.Context()
	e := New(rdb, store.DefaultNamespace, slog.New(slog.DiscardHandler), nil)
	t.Cleanup(e.Close)
	if _, _, err := e.store.Workers.Beat(ctx, "other", true, tasktype.Worker{Name: "other", Queues: map[string]int{"default": 1}, Tasks: []string{"t"}}, deadAfter, deadConfirm); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Sender.Send(ctx, &graph.Sig{Shape: graph.Call, Task: "t", Input: []byte("1")}, graph.NoOpts); err != nil {
		t.Fatal(err)
	}
	w := NewWorker(e, nil, WorkerConfig{Name: "w", Queues: map[string]int{"default": 1}, Concurrency: 1, Manual: true, Logger: slog.New(slog.DiscardHandler)})
	pool := store.PoolOf("default", store.Program([]string{"t"}))
	w.Serve(ctx, Wake{Queue: "default", Gen: "0"})
	if depths, err := e.store.Queues.Ready(ctx, pool, 10); err != nil || len(depths) != 1 {
		t.Fatalf("ready in the pool: got %v, %v, want the task", depths, err)
	}
	calls := redistest.NewFault(redistest.Slow, 0)
	calls.Match = func(cmd redis.Cmder) bool { return cmd.Name() == "evalsha" || cmd.Name() == "eval" }
	rdb.AddHook(calls)
	calls.Arm()
	w.Serve(ctx, Wake{Queue: pool, Gen: "0"})
	if n := calls.Calls(); n > 6 {
		t.Errorf("got %d calls of scripts, want a few", n)
	}
}
