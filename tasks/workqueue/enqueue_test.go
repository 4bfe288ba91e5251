package workqueue_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

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
		longest := workqueue.Item{ID: strings.Repeat("x", workqueue.MaxID), ResourceKeys: slices.Repeat([]string{"h"}, workqueue.MaxResourceKeys)}
		if err := k.Check(longest); err != nil {
			k.t.Errorf("an item at the limits: got %.100v, want nil", err)
		}
		s, _ := k.Stats(k.t.Context())
		if s.Total > 1 { // the good one may be in before an item too long to encode is met
			k.t.Fatalf("got %+v, want one item at most", s)
		}
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
		if n, err := k.EnqueueUnder(k.t.Context(), workqueue.Leased{}, items...); n != 0 || err == nil {
			k.t.Fatalf("without a lease: got %d, %v; want an error", n, err)
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
