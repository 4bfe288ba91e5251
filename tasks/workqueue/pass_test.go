package workqueue_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/tasks/workqueue"
)

func (k *kit) pass(l workqueue.Leased, to workqueue.Item) {
	k.t.Helper()
	if err := k.Pass(k.t.Context(), l, to); err != nil {
		k.t.Fatal(err)
	}
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

// The item is queued after the ready items of its new lane, or waits for its time.
func TestPassQueuesTheItemAfterTheOthers(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a", "b", "c", "d")
		ls := k.lease("w", 2)
		k.pass(ls[0], workqueue.Item{ID: "a", ResourceKeys: []string{"h"}})
		k.pass(ls[1], workqueue.Item{ID: "b", NotBefore: time.Now().Add(time.Hour)})
		if got := k.lease("w", 9); ids(got) != "c d a" {
			k.t.Fatalf("leased %s, want c d a", ids(got))
		}
		if info := k.get("b"); info.Available.IsZero() || !info.Ready.IsZero() {
			k.t.Fatalf("got %+v, want it delayed", info)
		}
		k.wantStats("1 3 0 0 0")
	})
}

func TestPassAgainSucceedsUntilAnotherLeasePasses(t *testing.T) {
	t.Parallel()
	every(t, byLane, func(k *kit) {
		to := workqueue.Item{ID: "a", Payload: []byte("2")}
		k.enqueue("a")
		first := k.leaseOne("w")
		k.pass(first, to)
		k.pass(first, to)
		k.wantStats("1 0 0 0 0")
		second := k.leaseOne("w")
		k.pass(first, to) // a call whose reply was lost long ago
		k.wantStats("0 1 0 0 0")
		k.pass(second, workqueue.Item{ID: "a", Payload: []byte("3")})
		k.wantLost(first)
		third := k.leaseOne("w")
		k.wantLost(first)
		k.settle(third, workqueue.Done())
		k.pass(second, to)
		if got := k.get("a"); got.State != workqueue.StateDone || string(got.Payload) != "3" {
			k.t.Fatalf("got %+v, want it done with the last payload", got)
		}
		if err := k.Pass(k.t.Context(), third, to); !errors.Is(err, workqueue.ErrLeaseLost) {
			k.t.Fatalf("a settled lease passes: got %v, want %v", err, workqueue.ErrLeaseLost)
		}
	})
}

// A lease that was passed can do nothing else.
func TestPassEndsTheLease(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		ctx := k.t.Context()
		k.enqueue("a")
		l := k.leaseOne("w")
		k.pass(l, l.Item)
		if err := k.Settle(ctx, l, workqueue.Done()); !errors.Is(err, workqueue.ErrLeaseLost) {
			k.t.Fatalf("settle: got %v, want %v", err, workqueue.ErrLeaseLost)
		}
		if _, err := k.Retry(ctx, l, nil, 0, true); !errors.Is(err, workqueue.ErrLeaseLost) {
			k.t.Fatalf("retry: got %v, want %v", err, workqueue.ErrLeaseLost)
		}
		if lost, err := k.Heartbeat(ctx, l); len(lost) != 1 || err != nil {
			k.t.Fatalf("heartbeat: got %v, %v; want it lost", lost, err)
		}
		if err := k.Return(ctx, l); err != nil {
			k.t.Fatalf("return: got %v, want nil", err)
		}
		k.wantStats("1 0 0 0 0")
		// A lease that was returned has not passed the item.
		returned := k.leaseOne("w")
		if err := k.Return(ctx, returned); err != nil {
			k.t.Fatal(err)
		}
		if err := k.Pass(ctx, returned, returned.Item); !errors.Is(err, workqueue.ErrLeaseLost) {
			k.t.Fatalf("pass: got %v, want %v", err, workqueue.ErrLeaseLost)
		}
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
