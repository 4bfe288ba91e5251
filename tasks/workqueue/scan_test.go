package workqueue_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// scan reads all pages and returns the items by ID; between two pages it calls meanwhile.
func (k *kit) scan(n int, meanwhile func(page int)) map[string]workqueue.Info {
	k.t.Helper()
	all := map[string]workqueue.Info{}
	cursor := ""
	for page := range 10_000 {
		items, next, err := k.Scan(k.t.Context(), cursor, n)
		testutil.Ok(k.t, err)
		for _, it := range items {
			all[it.ID] = it
		}
		if next == "" {
			return all
		}
		meanwhile(page)
		cursor = next
	}
	k.t.Fatal("the scan does not end, want it to")
	return nil
}

func TestScanReadsEveryItem(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		if items, next, err := k.Scan(k.t.Context(), "", 10); len(items) != 0 || next != "" || err != nil {
			k.t.Fatalf("of no queue: got %v, %q, %v; want nothing", items, next, err)
		}
		names := numbered(1500)
		k.enqueue(names...)
		l := k.leaseOne("w")
		k.settle(l, workqueue.Skipped("s").With([]byte("r")))
		// Items that are added and change meanwhile do not hide others.
		all := k.scan(100, func(page int) {
			k.enqueue(fmt.Sprint("more", page))
			k.settle(k.leaseOne("w"), workqueue.Done())
		})
		for _, id := range names {
			if all[id].ID != id {
				k.t.Fatalf("%s is in no page of %d items, want it", id, len(all))
			}
		}
		got := all[l.ID]
		if got.State != workqueue.StateSkipped || got.Note != "s" || string(got.Result) != "r" || string(got.Payload) != string(l.Payload) {
			k.t.Fatalf("got %+v, want it as it was settled", got)
		}
	})
}

func TestScanOrdersAPage(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		names := numbered(100)
		k.enqueue(names...)
		items, _, err := k.Scan(k.t.Context(), "", 1000)
		if err != nil || len(items) != len(names) {
			k.t.Fatalf("got %d items, %v; want %d", len(items), err, len(names))
		}
		if !slices.IsSortedFunc(items, func(a, b workqueue.Info) int {
			return cmp.Compare(slices.Index(names, a.ID), slices.Index(names, b.ID))
		}) {
			k.t.Fatalf("the first item is %s, want them in the order in which they were added", items[0].ID)
		}
	})
}

func TestScanTakesOnlyItsCursors(t *testing.T) {
	t.Parallel()
	q := workqueue.New(redistest.Mini(t), "q", workqueue.Config{})
	for _, cursor := range []string{"x", "-1", "0", " 1", strings.Repeat("9", 1000)} {
		if _, _, err := q.Scan(t.Context(), cursor, 10); err == nil || !strings.Contains(err.Error(), "cursor") {
			t.Errorf("cursor %.20q: got %v, want an error that names it", cursor, err)
		}
	}
}

// Ready and Updated follow an item through its states.
func TestInfoSaysWhenItemsChanged(t *testing.T) {
	t.Parallel()
	rdb, jump := redistest.Clock(t)
	k := newKit(t, rdb, workqueue.Config{LeaseTTL: 10 * time.Minute})
	start := time.Now()
	step := func() { jump(time.Hour) }
	want := func(what string, ready, updated int) {
		t.Helper()
		info := k.get("a")
		at := func(got time.Time, hour int) bool {
			if hour < 0 {
				return got.IsZero()
			}
			d := got.Sub(start.Add(time.Duration(hour) * time.Hour))
			return d > -time.Minute && d < 5*time.Minute
		}
		if !at(info.Ready, ready) || !at(info.Updated, updated) {
			t.Fatalf("%s: ready at %v, updated at %v; want hours %d and %d after %v", what, info.Ready, info.Updated, ready, updated, start)
		}
	}
	k.enqueue("a")
	want("added", 0, 0)
	step()
	l := k.leaseOne("w")
	want("leased", 0, 1)
	k.settle(l, workqueue.Failed(errors.New("e")))
	want("failed", -1, 1)
	step()
	if _, err := k.Requeue(t.Context(), workqueue.RequeueOptions{}); err != nil {
		t.Fatal(err)
	}
	want("requeued", 2, 2)
	step()
	k.retry(k.leaseOne("w"), 90*time.Minute)
	want("delayed", -1, 3)
	step()
	step()
	l = k.leaseOne("w")
	want("leased again", 5, 5)
	step() // the lease has expired, and no worker has asked since
	want("expired", 5, 5)
	k.settle(l, workqueue.Done())
	step()
	want("done", -1, 6)
}
