package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// all reads the items of a queue, by id.
func all(t *testing.T, q *workqueue.Queue) map[string]workqueue.Info {
	t.Helper()
	out := map[string]workqueue.Info{}
	for cursor := ""; ; {
		items, next, err := q.Scan(t.Context(), cursor, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range items {
			out[it.ID] = it
		}
		if cursor = next; next == "" {
			return out
		}
	}
}

// Restored items are as they were, but for leases.
func TestRestoredItemsAreAsTheyWere(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		cfg := workqueue.Config{CountLanes: true, MaxAttempts: 2}
		from, to := workqueue.New(rdb, "from", cfg), workqueue.New(rdb, "to", cfg)
		var items []workqueue.Item
		for _, id := range []string{"done", "skipped", "error", "tried", "leased", "ready"} {
			items = append(items, workqueue.Item{ID: id, Kind: "k", Payload: []byte("payload of " + id), ResourceKeys: []string{"lane:" + id[:1]},
				Labels: map[string]string{"a": "b"}, Priority: 5, MaxAttempts: 3})
		}
		items = append(items, workqueue.Item{ID: "delayed", NotBefore: time.Now().Add(time.Hour)})
		if _, err := from.Enqueue(ctx, items...); err != nil {
			t.Fatal(err)
		}
		held, _, _, err := from.LeaseIDs(ctx, "w", []string{"done", "skipped", "error", "tried", "leased"})
		if err != nil || len(held) != 5 {
			t.Fatalf("lease: got %d items, %v, want 5", len(held), err)
		}
		for _, it := range held {
			switch it.ID {
			case "done":
				err = from.Settle(ctx, it, workqueue.Done().With([]byte("result")))
			case "skipped":
				err = from.Settle(ctx, it, workqueue.Skipped("not needed").With([]byte{}))
			case "error":
				err = from.Settle(ctx, it, workqueue.Failed(errors.New("broken")))
			case "tried":
				_, err = from.Retry(ctx, it, errors.New("once"), 0, true)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		want := all(t, from)
		var list []workqueue.Info
		for _, it := range want {
			list = append(list, it)
		}
		for _, n := range []int{7, 0} { // the second time changes nothing
			if added, err := to.Restore(ctx, list...); err != nil || added != n {
				t.Fatalf("restore: got %d new, %v, want %d", added, err, n)
			}
		}
		got := all(t, to)
		for id, w := range want {
			g := got[id]
			if w.Token = 0; w.State == workqueue.StateInProgress {
				w.State, w.Worker, w.Expires, w.Updated = workqueue.StateQueued, "", time.Time{}, w.Ready
			}
			if d := g.Available.Sub(w.Available); d > time.Second || d < -time.Second {
				t.Errorf("%s: got it available at %v, want %v", id, g.Available, w.Available)
			}
			g.Available, w.Available = time.Time{}, time.Time{}
			if fmt.Sprintf("%+v", g) != fmt.Sprintf("%+v", w) {
				t.Errorf("%s:\ngot  %+v\nwant %+v", id, g, w)
			}
		}
		if _, err := to.Verify(ctx); err != nil {
			t.Errorf("verify: %v", err)
		}
		leased, err := to.Lease(ctx, "v", 10)
		if err != nil || len(leased) != 3 {
			t.Errorf("lease: got %d items, %v, want those that were ready, tried and leased", len(leased), err)
		}
	})
}

func TestRestoreRefusesWhatNoQueueHas(t *testing.T) {
	t.Parallel()
	q := workqueue.New(redistest.Mini(t), "q", workqueue.Config{MaxPayload: 3})
	for name, it := range map[string]workqueue.Info{
		"no id":     {State: workqueue.StateDone},
		"no state":  {Item: workqueue.Item{ID: "a"}},
		"bad state": {Item: workqueue.Item{ID: "a"}, State: "lost"},
		"payload":   {Item: workqueue.Item{ID: "a", Payload: []byte("long")}, State: workqueue.StateDone},
		"result":    {Item: workqueue.Item{ID: "a"}, State: workqueue.StateDone, Result: []byte("long")},
		"attempts":  {Item: workqueue.Item{ID: "a"}, State: workqueue.StateDone, Attempts: -1},
	} {
		if n, err := q.Restore(t.Context(), it); err == nil || n != 0 {
			t.Errorf("%s: got %d new, %v, want an error", name, n, err)
		}
	}
	if err := q.Seal(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Restore(t.Context(), workqueue.Info{Item: workqueue.Item{ID: "a"}, State: workqueue.StateDone}); !errors.Is(err, workqueue.ErrSealed) {
		t.Errorf("sealed: got %v, want %v", err, workqueue.ErrSealed)
	}
}
