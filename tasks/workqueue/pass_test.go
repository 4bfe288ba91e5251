package workqueue_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/tasks/workqueue"
)

func (k *kit) pass(l workqueue.Leased, to workqueue.Item) {
	k.t.Helper()
	testutil.Ok(k.t, k.Pass(k.t.Context(), l, to))
}

func TestPassMakesTheItemReadyAsAnother(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{CountLanes: true, MaxAttempts: 3}, func(k *kit) {
		ctx := k.t.Context()
		k.add([]string{"one"}, "a", "b")
		k.retry(k.leaseOne("w"), 0)
		k.retry(k.leaseOne("w"), 0)
		l := k.leaseOne("w")
		to := workqueue.Item{
			ID: "a", Kind: "next", Payload: []byte("{\"passed\":7}\n\x00"), ResourceKeys: []string{"two"},
			Labels: map[string]string{"x": "y"}, Priority: 5, MaxAttempts: 1,
		}
		k.pass(l, to)
		k.wantLanes(map[string]string{"one": "1 0 0 0 0", "two": "1 0 0 0 0"})
		got := k.get("a")
		if got.State != workqueue.StateQueued || got.Attempts != 0 || got.Note != "" || got.Worker != "" || got.MaxAttempts != 1 {
			k.t.Fatalf("got %+v, want it queued without attempts, note and worker", got)
		}
		next := k.leaseOne("w2") // its priority is higher
		if next.ID != "a" || next.Kind != "next" || string(next.Payload) != string(to.Payload) || !slices.Equal(next.ResourceKeys, to.ResourceKeys) ||
			!maps.Equal(next.Labels, to.Labels) || next.Token <= l.Token {
			k.t.Fatalf("leased %+v, want %+v", next, to)
		}
		if got := k.get("a"); got.Priority != 5 {
			k.t.Fatalf("got priority %d, want 5", got.Priority)
		}
		if s := k.retry(next, 0); s != workqueue.StateError {
			k.t.Fatalf("the item is %s after its one attempt, want %s", s, workqueue.StateError)
		}
		if n, err := k.Enqueue(ctx, workqueue.Item{ID: "a"}); n != 0 || err != nil {
			k.t.Fatalf("enqueue again: got %d, %v; want 0", n, err)
		}
		k.wantLanes(map[string]string{"one": "1 0 0 0 0", "two": "0 0 0 0 1"})
	})
}

func TestPassRejectsBadItems(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxPayload: 100}, func(k *kit) {
		k.enqueue("a")
		l := k.leaseOne("w")
		for _, to := range []workqueue.Item{
			{}, {ID: "b"}, {ID: "a", Payload: make([]byte, 101)}, {ID: "a", Kind: strings.Repeat("k", 100<<10)},
		} {
			if err := k.Pass(k.t.Context(), l, to); err == nil || errors.Is(err, workqueue.ErrLeaseLost) || len(err.Error()) > 400 {
				k.t.Errorf("%.80q: got %v, want a short error with the reason", to.ID, err)
			}
		}
		if err := k.Pass(k.t.Context(), workqueue.Leased{Item: workqueue.Item{ID: "unknown"}, Token: 1}, workqueue.Item{ID: "unknown"}); err != nil {
			k.t.Errorf("an unknown item: got %v, want nil", err)
		}
		k.wantStats("0 1 0 0 0")
	})
}
