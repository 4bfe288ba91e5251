package tasks_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/redistest"
)

// A worker can die with tasks in its hands that it took from a queue and did not begin. They run again
// when its leases are expired, as those do that it had begun.
func TestTakenButNotBegun(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		c := tasks.NewClient(rdb)
		t.Cleanup(func() { _ = c.Close() })
		run, err := tasks.Chord(tasks.Each(ints(5), ID), Sum).Send(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		took := take(t, rdb)
		if took != 5 {
			t.Fatalf("took %d tasks, want 5", took)
		}
		newWorld(t, rdb)
		began := time.Now()
		if err := tasks.ExpireLeases(t.Context(), c, "dead"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		if got, err := run.Wait(ctx); err != nil || got != 10 {
			t.Fatalf("got %v, %v", got, err)
		}
		if d := time.Since(began); d > 15*time.Second { // half a lease of asynq's
			t.Errorf("what a dead worker had taken was done after %v", d)
		}
	})
}

// A Redis that lost its last writes can remember that a worker began a node and not that it ended it: the
// worker lives and does not run it.
func TestEndThatRedisLost(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		run, err := tasks.Chain(ID.S(1, tasks.Queue("elsewhere")), Inc).Send(t.Context(), w.client)
		if err != nil {
			t.Fatal(err)
		}
		// It was in hand here, as far as Redis knows.
		flow, name := flowKey(t, rdb, run.ID()), w.worker.Name()
		rdb.HSet(t.Context(), flow, "0", "R|3|0|0|"+strconv.FormatInt(time.Now().UnixMilli(), 10)+"|"+name)
		rdb.HSet(t.Context(), shards(t, rdb)[0]+"running", run.ID()+"/0", name)
		rdb.ZRem(t.Context(), shards(t, rdb)[0]+"agenda", run.ID()+"/0")
		newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Queues = map[string]int{"elsewhere": 1} })
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		if got, err := run.Wait(ctx); err != nil || got != 2 {
			t.Fatalf("got %v, %v", got, err)
		}
	})
}

// take does with the default queue what a worker does that dies right after.
func take(t *testing.T, rdb redis.UniversalClient) int {
	t.Helper()
	for n := 0; ; n++ {
		id, err := rdb.RPopLPush(t.Context(), "asynq:{default}:pending", "asynq:{default}:active").Result()
		if err == redis.Nil {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		rdb.HSet(t.Context(), "asynq:{default}:t:"+id, "state", "active")
		rdb.HDel(t.Context(), "asynq:{default}:t:"+id, "pending_since")
		rdb.ZAdd(t.Context(), "asynq:{default}:lease", redis.Z{Score: float64(time.Now().Add(30 * time.Second).Unix()), Member: id})
		if strings.Count(id, ".") < 2 {
			t.Fatalf("task %s is not of a workflow", id)
		}
	}
}
