package workqueue_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/tasks/workqueue"
)

func TestLeaseOfMoreThanOneScript(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		names := numbered(1300)
		k.enqueue(names...)
		if got := ids(k.lease("w", 1200)); got != strings.Join(names[:1200], " ") {
			k.t.Fatalf("leased %s, want the first 1200 in order", got)
		}
		k.wantStats("100 1200 0 0 0")
	})
}

func TestExpiredLeaseIsHandedOutAgain(t *testing.T) {
	t.Parallel()
	every(t, short, func(k *kit) {
		k.enqueue("a")
		first := k.leaseOne("w1")
		var again []workqueue.Leased
		k.eventually("the lease to expire", func() bool { again = k.lease("w2", 1); return len(again) == 1 })
		if again[0].ID != "a" || again[0].Attempts != 1 || again[0].Token == first.Token {
			k.t.Fatalf("got %+v after %+v, want a with one attempt and a new token", again[0], first)
		}
		if !time.Now().After(first.Expires.Add(-50 * time.Millisecond)) {
			k.t.Fatalf("leased again before %v, want after it", first.Expires)
		}
	})
}

func TestHeartbeatExtendsByTheTTLOfItsOwnLeases(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{LeaseTTL: time.Minute}, func(k *kit) {
		k.enqueue("a", "b")
		a, b := k.leaseOne("w1"), k.leaseOne("w2")
		// As if both were leased long ago.
		for _, id := range []string{"a", "b"} {
			key := "muster:wq:{q:" + k.t.Name() + "}:leased"
			k.rdb.ZIncrBy(k.t.Context(), key, -30_000, id)
		}
		before := k.get("b").Expires
		if _, err := k.Heartbeat(k.t.Context(), a); err != nil {
			k.t.Fatal(err)
		}
		if d := k.get("a").Expires.Sub(before); d < 29*time.Second || time.Until(k.get("a").Expires) > 61*time.Second {
			k.t.Fatalf("lease lasts %v longer than the other one, want half a minute", d)
		}
		if d := k.get("b").Expires.Sub(before).Abs(); d > 15*time.Second {
			k.t.Fatalf("the other worker's lease changed by %v, want no change", d)
		}
		_ = b
	})
}

func TestStraysAreReturned(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a", "b", "c")
		held := k.lease("w", 1)
		k.lease("w", 1) // the reply is lost
		k.lease("other", 1)
		if n, err := k.ReturnStrays(k.t.Context(), "w", held...); n != 1 || err != nil {
			k.t.Fatalf("got %d returned, %v; want 1", n, err)
		}
		k.wantStats("1 2 0 0 0")
		if l := k.leaseOne("w"); l.ID != "b" || l.Attempts != 0 {
			k.t.Fatalf("leased %+v, want b with no attempts", l)
		}
	})
}

func TestBudgetPassesOverLanes(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		var items []workqueue.Item
		for i := range 20 {
			items = append(items, workqueue.Item{ID: fmt.Sprintf("slow%02d", i), ResourceKeys: []string{"host:slow", "r"}})
		}
		for i := range 6 {
			items = append(items, workqueue.Item{ID: fmt.Sprintf("fast%d", i), ResourceKeys: []string{fmt.Sprint("host:", i%3)}})
		}
		items = append(items, workqueue.Item{ID: "free1"}, workqueue.Item{ID: "free2"})
		if _, err := k.Enqueue(k.t.Context(), items...); err != nil {
			k.t.Fatal(err)
		}
		got, err := k.LeaseWithin(k.t.Context(), "w", 100, workqueue.Budget{Default: 1, Left: map[string]int{"host:slow": 2, "r": 5, "host:2": 0}})
		if err != nil || ids(got.Items) != "slow00 slow01 fast0 fast1 free1 free2" || !got.PassedOver {
			k.t.Fatalf("leased %s, %+v, %v; want slow00 slow01 fast0 fast1 free1 free2, others passed over", ids(got.Items), got, err)
		}
		got, _ = k.LeaseWithin(k.t.Context(), "w", 3, workqueue.Budget{Default: -1, Left: map[string]int{"r": 0}})
		if ids(got.Items) != "fast2 fast3 fast4" {
			k.t.Fatalf("leased %s, want fast2 fast3 fast4", ids(got.Items))
		}
		k.wantStats("19 9 0 0 0")
	})
}

func TestLanesKeepTheOrderOfItems(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		var items []workqueue.Item
		var want []string
		for i := range 300 {
			id := fmt.Sprint("i", i)
			items = append(items, workqueue.Item{ID: id, ResourceKeys: []string{fmt.Sprint("h", i*7%130)}})
			want = append(want, id)
		}
		if _, err := k.Enqueue(k.t.Context(), items...); err != nil {
			k.t.Fatal(err)
		}
		var got []string
		for len(got) < 300 {
			ls := k.lease("w", 37)
			if len(ls) == 0 {
				break
			}
			got = append(got, strings.Fields(ids(ls))...)
		}
		if !slices.Equal(got, want) {
			k.t.Fatalf("leased %v, want %v", got, want)
		}
	})
}
