package store_test

import (
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/tasks/internal/store"
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
