package store_test

import (
	"testing"
	"time"

	"muster/tasks/internal/store"
	"muster/tasks/redistest"
)

// The last take may be long ago: the queue was empty since.
func TestDepthIsNoOlderThanWhatIsReady(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	hourAgo, second := time.Now().Add(-time.Hour), time.Now().Add(-time.Second)
	for _, c := range []struct {
		name        string
		take, asked time.Time
		want        time.Time
	}{
		{"idle", hourAgo, second, second},
		{"busy", second, hourAgo, second},
		{"new", time.Time{}, second, second},
	} {
		key := "muster:{0}:wake:" + c.name
		if err := rdb.HSet(t.Context(), key, "dn", 1, "p", c.asked.UnixMilli()).Err(); err != nil {
			t.Fatal(err)
		}
		if !c.take.IsZero() {
			if err := rdb.HSet(t.Context(), key, "t", c.take.UnixMilli()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		depths, err := store.New(rdb).Queues.Depths(t.Context(), []string{c.name})
		if err != nil {
			t.Fatal(err)
		}
		if got := depths[c.name]; got.Ready != 1 || got.Since.UnixMilli() != c.want.UnixMilli() {
			t.Errorf("queue %s: %d ready since %s, want 1 since %s", c.name, got.Ready, got.Since, c.want)
		}
	}
}
