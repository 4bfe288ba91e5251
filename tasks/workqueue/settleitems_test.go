package workqueue_test

import (
	"errors"
	"fmt"
	"testing"

	"muster/tasks/workqueue"
)

// itemsOf returns items with the IDs prefix0, prefix1, ….
func itemsOf(prefix string, n int) []workqueue.Item {
	items := make([]workqueue.Item, n)
	for i := range items {
		items[i] = workqueue.Item{ID: fmt.Sprint(prefix, i)}
	}
	return items
}

func TestSettleAddsItems(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a", "b")
		l := k.leaseOne("w")
		o := workqueue.Done().With([]byte("r"), []byte("out"))
		o.Items = append(itemsOf("new", 2), workqueue.Item{ID: "b"}, workqueue.Item{ID: "new0"})
		k.settle(l, o)
		k.settle(l, o) // the reply was lost
		k.wantStats("3 0 1 0 0")
		if got := ids(k.lease("w", 9)); got != "b new0 new1" {
			k.t.Errorf("leased %s, want b new0 new1", got)
		}
		if _, err := k.Verify(k.t.Context()); err != nil {
			k.t.Error(err)
		}
	})
}

func TestSettleWithALostLeaseAddsNothing(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		l := k.leaseOne("w")
		if _, err := k.ExpireWorker(k.t.Context(), "w"); err != nil {
			k.t.Fatal(err)
		}
		for _, n := range []int{1, 2000} {
			o := workqueue.Done()
			o.Items = itemsOf("new", n)
			if err := k.Settle(k.t.Context(), l, o); !errors.Is(err, workqueue.ErrLeaseLost) {
				k.t.Errorf("%d items: got %v, want ErrLeaseLost", n, err)
			}
		}
		k.wantStats("1 0 0 0 0")
	})
}

func TestSettleAddsManyItemsInTheirOrder(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		l := k.leaseOne("w")
		o := workqueue.Done()
		o.Items = itemsOf("new", 1300)
		k.settle(l, o)
		k.settle(l, o)
		k.wantStats("1300 0 1 0 0")
		for i, got := range k.lease("w", 1300) {
			if want := fmt.Sprint("new", i); got.ID != want {
				k.t.Fatalf("item %d is %s, want %s", i, got.ID, want)
			}
		}
	})
}

func TestFullQueueCountsRefusedItemsOnce(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxItems: 3}, func(k *kit) {
		k.enqueue("a", "b")
		o := workqueue.Done()
		o.Items = append(itemsOf("new", 4), workqueue.Item{ID: "b"})
		k.settle(k.leaseOne("w"), o)
		k.settle(k.leaseOne("w"), o)
		if n := k.enqueue("new3", "other", "new0"); n != 0 {
			k.t.Errorf("%d items added to a full queue, want 0", n)
		}
		k.wantStats("1 0 2 0 0")
		if s, err := k.Stats(k.t.Context()); err != nil || s.Refused != 4 {
			k.t.Errorf("got %+v, %v, want 4 refused items", s, err)
		}
	})
}

func TestMaxInProgressBoundsAllWorkers(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		if _, err := k.Enqueue(k.t.Context(), itemsOf("i", 20)...); err != nil {
			k.t.Fatal(err)
		}
		lease := func(worker string, want, room int, own ...workqueue.Leased) []workqueue.Leased {
			k.t.Helper()
			ids := make([]string, len(own))
			for i, l := range own {
				ids[i] = l.ID
			}
			got, err := k.LeaseWithin(k.t.Context(), worker, 100, workqueue.Budget{Default: -1, MaxInProgress: 5, Ahead: 3, Own: ids})
			if err != nil || len(got.Items) != want || got.Room != room {
				k.t.Fatalf("%s: got %d items, room %d, %v; want %d and %d", worker, len(got.Items), got.Room, err, want, room)
			}
			return got.Items
		}
		first := lease("w1", 8, 5)
		lease("w2", 0, 0)
		for _, l := range first[:5] {
			k.settle(l, workqueue.Done())
		}
		lease("w2", 2, 2)
		lease("w1", 0, 3, first[5:]...)
		lease("w1", 0, 3, first...) // some have ended
		k.settle(first[5], workqueue.Done())
		lease("w1", 1, 3, first[5:]...)
	})
}
