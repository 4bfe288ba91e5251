package engine

import (
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/store"
)

// A slot of a strict worker gives way only to queues that come before its own.
func TestStrictSlotsGiveWayToHeavierQueuesOnly(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // is not asked
	t.Cleanup(func() { _ = rdb.Close() })
	queues := map[string]int{"a": 3, "b": 2, "c": 1}
	for strict, want := range map[bool]map[string][]string{
		false: {"a": {"b", "c"}, "b": {"a", "c"}, "c": {"a", "b"}},
		true:  {"b": {"a"}, "c": {"a", "b"}},
	} {
		w := NewWorker(New(rdb, store.DefaultNamespace, slog.New(slog.DiscardHandler), nil), nil, WorkerConfig{Queues: queues, Strict: strict, Concurrency: 1})
		if got := w.taker.others; !maps.EqualFunc(got, want, slices.Equal) {
			t.Errorf("strict %t: got %v, want %v", strict, got, want)
		}
	}
}
