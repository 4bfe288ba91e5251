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
		if err := rdb.HSet(t.Context(), key, "ready:n", 1, "pending", c.asked.UnixMilli()).Err(); err != nil {
			t.Fatal(err)
		}
		if !c.take.IsZero() {
			if err := rdb.HSet(t.Context(), key, "taken", c.take.UnixMilli()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		depths, err := store.New(rdb, store.DefaultNamespace).Queues.Depths(t.Context(), []string{c.name})
		if err != nil {
			t.Fatal(err)
		}
		if got := depths[c.name]; got.Ready != 1 || got.Since.UnixMilli() != c.want.UnixMilli() {
			t.Errorf("queue %s: %d ready since %s, want 1 since %s", c.name, got.Ready, got.Since, c.want)
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
