package engine

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// The keys of queues that are not used any more are deleted, and no others. A queue that is used again is listed again.
func TestUnusedQueuesAreForgotten(t *testing.T) {
	t.Parallel()
	rdb, ctx := redistest.New(t), t.Context()
	e := New(rdb, store.DefaultNamespace, slog.New(slog.DiscardHandler))
	t.Cleanup(e.Close)
	send := func(queue string) string {
		t.Helper()
		id, err := e.Sender.Send(ctx, &graph.Sig{Shape: graph.Call, Task: "t", Opts: &graph.Opts{Queue: queue}, Input: []byte("1")}, graph.NoOpts)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	plain, old := asynq.NewClientFromRedisClient(rdb), float64(time.Now().Add(-2*time.Hour).Unix()/3600)
	for _, q := range []string{"unused", "waits", "fresh", "paused", "served", "plain", "grouped"} {
		id := send(q)
		if q != "waits" {
			if err := e.Operator.Revoke(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.store.Queues.Look(ctx, []string{q}); err != nil {
			t.Fatal(err)
		}
		if q != "fresh" {
			if err := rdb.ZAdd(ctx, "muster:{0}:queues", redis.Z{Score: old, Member: q}).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err := plain.EnqueueContext(ctx, asynq.NewTask("own", nil), asynq.Queue("plain"))
	for _, err := range []error{
		err,
		e.Fleet.Pause(ctx, "paused"),
		rdb.SAdd(ctx, "asynq:{grouped}:groups", "a").Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := e.store.Queues.Look(ctx, []string{"served"}); err != nil {
		t.Fatal(err)
	}
	if err := e.store.Queues.Forget(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	wantQueues := func(want ...string) {
		t.Helper()
		if got, err := e.Fleet.queues(ctx); err != nil || !slices.Equal(got, want) {
			t.Errorf("got the queues %v, %v, want %v", got, err, want)
		}
	}
	wantQueues("fresh", "grouped", "paused", "plain", "served", "waits")
	keys, err := rdb.Keys(ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(keys, func(k string) bool { return strings.Contains(k, "unused") }); i >= 0 {
		t.Errorf("got the key %s of a forgotten queue", keys[i])
	}
	send("unused")
	wantQueues("fresh", "grouped", "paused", "plain", "served", "unused", "waits")
}
