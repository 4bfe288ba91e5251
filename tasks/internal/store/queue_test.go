package store_test

import (
	"testing"
	"time"

	"muster/tasks/internal/store"
	"muster/tasks/redistest"
)

// The depth of a queue has the workflows of one node on its ring and the nodes of ready lists. The age is of the first workflow of
// one node at the head, else since the last take.
func TestDepths(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	hourAgo, second := time.Now().Add(-time.Hour), time.Now().Add(-time.Second)
	single := store.GeneratedReference(store.NewID(second, [9]byte{}))
	for _, c := range []struct {
		name  string
		ring  []any
		nodes int
		ready int64
		since time.Time
	}{
		{"singles", []any{single, single + "@1"}, 0, 2, second},
		{"keys", []any{"=a", "b~/0-4"}, 8, 8, hourAgo},
		{"both", []any{single, "+"}, 3, 4, second},
		{"none", nil, 0, 0, time.Time{}},
	} {
		keys := len(c.ring)
		for _, e := range c.ring {
			if store.IsSingle(e.(string)) {
				keys--
			}
		}
		if err := rdb.HSet(t.Context(), "muster:{0}:queue:"+c.name, "ready:n", c.nodes, "ready:k", keys, "taken", hourAgo.UnixMilli()).Err(); err != nil {
			t.Fatal(err)
		}
		if len(c.ring) > 0 {
			rdb.RPush(t.Context(), "muster:{0}:ring:"+c.name, c.ring...)
		}
		depths, err := store.New(rdb, store.DefaultNamespace).Queues.Depths(t.Context(), []string{c.name})
		if err != nil {
			t.Fatal(err)
		}
		if got := depths[c.name]; got.Ready != c.ready || !c.since.IsZero() && got.Since.UnixMilli() != c.since.UnixMilli() {
			t.Errorf("queue %s: %d ready since %s, want %d since %s", c.name, got.Ready, got.Since, c.ready, c.since)
		}
	}
}

// A queue from which asynq processed a task today is in use, also in the first hours of the day.
func TestQueueIsUsedWhateverTheTimeOfDay(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	midnight := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	if err := rdb.Set(t.Context(), "asynq:{q}:processed:2026-11-27", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		since time.Duration
		want  bool
	}{{time.Minute, true}, {23 * time.Hour, true}, {24*time.Hour + 30*time.Minute, true}, {50 * time.Hour, false}} {
		used, err := store.New(rdb, store.DefaultNamespace).Queues.UsedByAsynq(t.Context(), "q", midnight.Add(c.since), time.Hour)
		if err != nil || used != c.want {
			t.Errorf("%s after midnight: got used %t, %v, want %t", c.since, used, err, c.want)
		}
	}
}
