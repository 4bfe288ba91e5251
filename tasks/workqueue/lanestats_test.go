package workqueue_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"muster/internal/testutil"
	"muster/tasks/workqueue"
)

var byLane = workqueue.Config{CountLanes: true, MaxAttempts: 1}

// wantLanes compares the counters by lane, as "queued in_progress done skipped error", and recounts.
func (k *kit) wantLanes(want map[string]string) {
	k.t.Helper()
	lanes, err := k.LaneStats(k.t.Context())
	testutil.Ok(k.t, err)
	if many, err := workqueue.LaneStatsOf(k.t.Context(), k.Queue, k.Queue); err != nil || !maps.Equal(many[0], lanes) || !maps.Equal(many[1], lanes) {
		k.t.Fatalf("of two queues: got %v, %v, want %v twice", many, err, lanes)
	}
	got := map[string]string{}
	for name, c := range lanes {
		got[name] = fmt.Sprint(c.Queued, c.InProgress, c.Done, c.Skipped, c.Error)
	}
	if !maps.Equal(got, want) {
		k.t.Fatalf("lanes are %q, want %q", got, want)
	}
	if _, err := k.Verify(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
}

// add enqueues items of a lane.
func (k *kit) add(keys []string, ids ...string) {
	k.t.Helper()
	for _, id := range ids {
		if _, err := k.Enqueue(k.t.Context(), workqueue.Item{ID: id, Kind: "test", ResourceKeys: keys}); err != nil {
			k.t.Fatal(err)
		}
	}
}

// A process that does not ask for the counters keeps them; one that asks for them later does not start them.
func TestTheQueueRemembersWhetherItCountsByLane(t *testing.T) {
	t.Parallel()
	every(t, byLane, func(k *kit) {
		other := &kit{workqueue.New(k.rdb, k.Name(), workqueue.Config{MaxAttempts: 1}), k.t, k.rdb}
		k.add([]string{"h", "i"}, "a")
		other.add([]string{"h", "i"}, "b")
		other.settle(other.leaseOne("w"), workqueue.Done())
		other.wantLanes(map[string]string{"h\x1fi": "1 0 1 0 0"})

		plain := &kit{workqueue.New(k.rdb, k.Name()+":plain", workqueue.Config{}), k.t, k.rdb}
		late := &kit{workqueue.New(k.rdb, k.Name()+":plain", byLane), k.t, k.rdb}
		plain.add([]string{"h"}, "a")
		late.add([]string{"h"}, "b")
		if got, err := late.LaneStats(k.t.Context()); !errors.Is(err, workqueue.ErrLanesNotCounted) {
			k.t.Fatalf("got %v, %v; want %v", got, err, workqueue.ErrLanesNotCounted)
		}
		late.wantStats("2 0 0 0 0")
	})
}

// An older version must not change a queue that counts by lane; it may change one that does not.
func TestOnlyQueuesThatCountByLaneNeedThisVersion(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		version := func(name string) string {
			return k.rdb.HGet(k.t.Context(), "muster:wq:{"+name+"}:meta", "v").Val()
		}
		k.enqueue("a")
		lanes := &kit{workqueue.New(k.rdb, k.Name()+":lanes", byLane), k.t, k.rdb}
		lanes.enqueue("a")
		if a, b := version(k.Name()), version(lanes.Name()); a != "1" || b != "2" {
			k.t.Fatalf("the versions are %q and %q, want 1 and 2", a, b)
		}
	})
}
