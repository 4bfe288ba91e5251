package engine

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/store"
)

// A slot of a strict worker takes from heavier queues first. It leaves out other queues that have a limit.
func TestOrderOfQueues(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // is not asked
	t.Cleanup(func() { _ = rdb.Close() })
	w := NewWorker(New(rdb, store.DefaultNamespace, slog.New(slog.DiscardHandler)), nil,
		WorkerConfig{Queues: map[string]int{"a": 3, "b": 2, "c": 1}, QueueLimits: map[string]int{"b": 1}, Strict: true, Concurrency: 1})
	for queue, want := range map[string][]string{"a": {"a", "c"}, "b": {"a", "b", "c"}} {
		if got := w.rings.order(queue, false); !slices.Equal(got, want) {
			t.Errorf("queue %s: got %v, want %v", queue, got, want)
		}
	}
}
