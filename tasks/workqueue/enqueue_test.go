package workqueue_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

func TestEnqueueReportsNew(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		if n := k.enqueue("x"); n != 1 {
			k.t.Fatalf("%d new, want 1", n)
		}
		k.wantStats("1 0 0 0 0")
	})
}

func TestEnqueueAgainReportsPresent(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("x")
		if n := k.enqueue("x", "x"); n != 0 {
			k.t.Fatalf("%d new, want 0", n)
		}
		k.wantStats("1 0 0 0 0")
	})
}

func TestEnqueueAgainKeepsThePayload(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		ctx := k.t.Context()
		_, _ = k.Enqueue(ctx, workqueue.Item{ID: "x", Payload: []byte("P")})
		_, _ = k.Enqueue(ctx, workqueue.Item{ID: "x", Payload: []byte("Q"), Priority: 9})
		if got := k.leaseOne("w"); string(got.Payload) != "P" {
			k.t.Fatalf("payload is %q, want P", got.Payload)
		}
	})
}

func TestEnqueueOfATerminalItemChangesNothing(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		for i, o := range []workqueue.Outcome{workqueue.Done(), workqueue.Skipped("s"), workqueue.Failed(errors.New("e"))} {
			id := fmt.Sprint(i)
			k.enqueue(id)
			k.settle(k.leaseOne("w"), o)
			if k.enqueue(id) != 0 || len(k.lease("w", 9)) != 0 {
				k.t.Fatalf("leased an item in %s, want none", o.State)
			}
		}
		k.wantStats("0 0 1 1 1")
	})
}

func TestOneOfManyConcurrentEnqueuesIsNew(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		added := make([]int, 50)
		var wg sync.WaitGroup
		for i := range added {
			wg.Go(func() { added[i], _ = k.Enqueue(k.t.Context(), workqueue.Item{ID: "x"}) })
		}
		wg.Wait()
		if i := slices.Index(added, 1); i < 0 || slices.Contains(added[i+1:], 1) {
			k.t.Fatalf("new counts are %v, want one 1", added)
		}
	})
}

func TestPayloadsAreUnchanged(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		big := append(append([]byte(`{"a":[1,{"b":null}],"ü":"\u0000 €","n":12345678901234567,"e":[],"s":"`),
			bytes.Repeat([]byte("x"), 1<<20)...), `"}`...)
		for i, p := range [][]byte{big, nil, []byte("not json\nat all"), {0, 255, '\n'}} {
			item := workqueue.Item{ID: fmt.Sprint(i), Kind: "k", Payload: p, ResourceKeys: []string{"h:ü", "r"},
				Labels: map[string]string{"a": "b\nc"}, Priority: -3, MaxAttempts: 7}
			if _, err := k.Enqueue(k.t.Context(), item); err != nil {
				k.t.Fatal(err)
			}
			got := k.leaseOne("w")
			if !bytes.Equal(got.Payload, p) || got.Kind != "k" || !slices.Equal(got.ResourceKeys, item.ResourceKeys) ||
				!maps.Equal(got.Labels, item.Labels) {
				k.t.Fatalf("got %.200q, want %.200q", got.Payload, p)
			}
			if info := k.get(item.ID); info.Priority != -3 || info.MaxAttempts != 7 || !bytes.Equal(info.Payload, p) {
				k.t.Fatalf("got %+v, want %+v", info.Item, item)
			}
		}
	})
}

func TestBadItemsAreRejectedAndNothingIsAdded(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxPayload: 100}, func(k *kit) {
		for _, bad := range []workqueue.Item{
			{}, {ID: strings.Repeat("x", 10<<20)}, {ID: "a\xff"}, {ID: "a\x00b"}, {ID: "a", Payload: make([]byte, 101)},
			{ID: "a", Priority: 101}, {ID: "a", MaxAttempts: -1}, {ID: "a", Kind: "\xff"},
			{ID: "a", ResourceKeys: []string{""}}, {ID: "a", ResourceKeys: []string{"a\x1fb"}},
			{ID: "a", ResourceKeys: make([]string, 9)}, {ID: "a", Labels: map[string]string{"x": "\xff"}},
			{ID: "a", Kind: strings.Repeat("k", 100<<10)},
		} {
			n, err := k.Enqueue(k.t.Context(), workqueue.Item{ID: "good"}, bad)
			if err == nil || len(err.Error()) > 400 {
				k.t.Errorf("%.100q: got %d, %v; want a short error", bad.ID, n, err)
			}
		}
		s, _ := k.Stats(k.t.Context())
		if s.Total > 1 { // the good one may be in before an item too long to encode is met
			k.t.Fatalf("got %+v, want one item at most", s)
		}
	})
}

func TestEnqueueUnderALeaseAddsWhileItHolds(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		ctx := k.t.Context()
		add := func(l workqueue.Leased, id string) (int, error) {
			return k.EnqueueUnder(ctx, l, workqueue.Item{ID: id})
		}
		k.enqueue("a")
		old := k.leaseOne("w1")
		if n, err := add(old, "b"); n != 1 || err != nil {
			k.t.Fatalf("under a lease: got %d, %v; want 1", n, err)
		}
		if n, err := add(old, "b"); n != 0 || err != nil {
			k.t.Fatalf("again: got %d, %v; want 0", n, err)
		}
		lost := func(what string, l workqueue.Leased) {
			k.t.Helper()
			if n, err := add(l, "never"); n != 0 || !errors.Is(err, workqueue.ErrLeaseLost) {
				k.t.Fatalf("%s: got %d, %v; want 0, %v", what, n, err, workqueue.ErrLeaseLost)
			}
		}
		if _, err := k.ExpireWorker(ctx, "w1"); err != nil {
			k.t.Fatal(err)
		}
		lost("an expired lease", old)
		k.settle(k.leaseOne("w2"), workqueue.Done()) // b, which was ready first
		now := k.leaseOne("w2")
		lost("the lease of another worker", old)
		if n, err := add(now, "c"); n != 1 || err != nil {
			k.t.Fatalf("under the new lease: got %d, %v; want 1", n, err)
		}
		k.settle(now, workqueue.Done())
		lost("a settled lease", now)
		lost("an unknown item", workqueue.Leased{Item: workqueue.Item{ID: "unknown"}, Token: 1})
		if n, err := add(workqueue.Leased{}, "never"); n != 0 || err == nil {
			k.t.Fatalf("without a lease: got %d, %v; want an error", n, err)
		}
		k.wantStats("1 0 2 0 0")
	})
}

// More items than one script takes are added, and none after the lease has ended.
func TestEnqueueUnderALeaseOfManyItems(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		l := k.leaseOne("w")
		items := make([]workqueue.Item, 1200)
		for i := range items {
			items[i].ID = fmt.Sprint("n", i)
		}
		if n, err := k.EnqueueUnder(k.t.Context(), l, items[:700]...); n != 700 || err != nil {
			k.t.Fatalf("got %d, %v; want 700", n, err)
		}
		k.settle(l, workqueue.Done())
		if n, err := k.EnqueueUnder(k.t.Context(), l, items...); n != 0 || !errors.Is(err, workqueue.ErrLeaseLost) {
			k.t.Fatalf("got %d, %v; want 0, %v", n, err, workqueue.ErrLeaseLost)
		}
		k.wantStats("700 0 1 0 0")
	})
}

func TestItemThatIsDoneIsNotLeased(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		q := workqueue.New(rdb, "q", workqueue.Config{})
		done := workqueue.Item{ID: "a", Done: true, Result: []byte("r"), Payload: []byte("p")}
		for _, want := range []int{1, 0} {
			if n, err := q.Enqueue(t.Context(), done); n != want || err != nil {
				t.Errorf("enqueue: got %d, %v, want %d", n, err, want)
			}
		}
		if got, err := q.Lease(t.Context(), "w", 1); len(got) != 0 || err != nil {
			t.Errorf("lease: got %v, %v, want none", got, err)
		}
		infos, err := q.Get(t.Context(), "a")
		if err != nil || len(infos) != 1 || infos[0].State != workqueue.StateDone || string(infos[0].Result) != "r" {
			t.Errorf("item: got %+v, %v, want done with a result", infos, err)
		}
		if s, err := q.Stats(t.Context()); err != nil || s.Done != 1 || s.Queued != 0 {
			t.Errorf("stats: got %+v, %v, want 1 done", s, err)
		}
		if _, err := q.Enqueue(t.Context(), workqueue.Item{ID: "b", Done: true}); err == nil {
			t.Error("an item that is done without a result was added")
		}
	})
}
