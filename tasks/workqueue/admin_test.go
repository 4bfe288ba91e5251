package workqueue_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks/workqueue"
)

func TestPauseStopsLeasing(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		ctx := k.t.Context()
		if _, err := k.Pause(ctx); !errors.Is(err, workqueue.ErrNoQueue) || k.rdb.DBSize(ctx).Val() > 0 {
			k.t.Errorf("a queue without items: got %v, want %v and no keys", err, workqueue.ErrNoQueue)
		}
		k.enqueue("a")
		if changed, err := k.Pause(ctx); !changed || err != nil {
			k.t.Fatal(changed, err)
		}
		if changed, _ := k.Pause(ctx); changed {
			k.t.Fatal("the second pause: got true, want false")
		}
		if got := k.lease("w", 1); len(got) != 0 {
			k.t.Fatalf("a paused queue: got %v, want no items", got)
		}
		if s, _ := k.Stats(ctx); !s.Paused {
			k.t.Fatalf("got %+v, want paused", s)
		}
		if changed, err := k.Resume(ctx); !changed || err != nil {
			k.t.Fatal(changed, err)
		}
		k.leaseOne("w")
	})
}

func TestRequeueOfFailedItems(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxAttempts: 1}, func(k *kit) {
		ctx := k.t.Context()
		k.enqueue("a", "b", "c")
		k.retry(k.leaseOne("w"), 0)
		k.settle(k.leaseOne("w"), workqueue.Done())
		k.retry(k.leaseOne("w"), 0)
		requeue := func(what string, r workqueue.RequeueOptions, want ...string) {
			k.t.Helper()
			if got, err := k.Requeue(ctx, r); err != nil || !slices.Equal(got, want) {
				k.t.Fatalf("%s: got %v, %v; want %v", what, got, err, want)
			}
		}
		requeue("dry run", workqueue.RequeueOptions{DryRun: true}, "a", "c")
		k.wantStats("0 0 1 0 2")
		requeue("first", workqueue.RequeueOptions{MaxRetried: 1}, "a", "c")
		k.wantStats("2 0 1 0 0")
		l := k.leaseOne("w")
		if l.ID != "a" || l.Attempts != 0 || l.Retried != 1 {
			k.t.Fatalf("leased %+v, want a, with no attempts, requeued once", l)
		}
		k.retry(l, 0)
		requeue("past its retries", workqueue.RequeueOptions{MaxRetried: 1})
		key := "muster:wq:{" + k.Name() + "}:failed"
		k.rdb.ZIncrBy(ctx, key, float64(time.Hour.Milliseconds()), "a")
		requeue("one that fails during the call", workqueue.RequeueOptions{})
		k.wantStats("1 0 1 0 1")
	})
}

func TestNewerQueueIsRejected(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		k.rdb.HSet(k.t.Context(), "muster:wq:{q:"+k.t.Name()+"}:meta", "v", 99)
		if _, err := k.Lease(k.t.Context(), "w", 1); !errors.Is(err, workqueue.ErrNewer) {
			k.t.Fatalf("got %v, want ErrNewer", err)
		}
	})
}

func TestDeleteAndExpireLeaveNothing(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		ctx := k.t.Context()
		k.enqueue("a", "b")
		k.settle(k.leaseOne("w"), workqueue.Failed(errors.New("e")).With([]byte("r"), []byte("o")))
		testutil.Ok(k.t, k.Delete(ctx))
		if n := k.rdb.DBSize(ctx).Val(); n != 0 {
			k.t.Fatalf("got %d keys, want none: %v", n, k.rdb.Keys(ctx, "*").Val())
		}
		if n := k.enqueue("a"); n != 1 {
			k.t.Fatalf("got %d new in a deleted queue, want 1", n)
		}
		k.leaseOne("w")
		testutil.Ok(k.t, k.Expire(ctx, 50*time.Millisecond))
		k.eventually("the queue to expire", func() bool { return k.rdb.DBSize(ctx).Val() == 0 })
	})
}

var byLane = workqueue.Config{CountLanes: true, MaxAttempts: 1}

// wantLanes compares the counters by lane, as "queued in_progress done skipped error", and recounts.
func (k *kit) wantLanes(want map[string]string) {
	k.t.Helper()
	lanes, err := k.LaneStats(k.t.Context())
	testutil.Ok(k.t, err)
	if many, err := workqueue.Glances(k.t.Context(), workqueue.Wanted{Queue: k.Queue}, workqueue.Wanted{Queue: k.Queue}); err != nil || !maps.Equal(many[0].Lanes, lanes) || !maps.Equal(many[1].Lanes, lanes) {
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
		k.enqueue(names[:100]...)
		page, _, err := k.Scan(k.t.Context(), "", 1000)
		if err != nil || len(page) != 100 || !slices.IsSortedFunc(page, func(a, b workqueue.Info) int {
			return cmp.Compare(slices.Index(names, a.ID), slices.Index(names, b.ID))
		}) {
			k.t.Fatalf("got %d items, %v, want 100 in the order in which they were added", len(page), err)
		}
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
	if info := k.get("a"); info.Available.IsZero() || len(k.lease("w", 1)) != 0 {
		t.Errorf("got %+v, want it to be available later", info)
	}
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

// seal seals the queue.
func (k *kit) seal() {
	k.t.Helper()
	testutil.Ok(k.t, k.Seal(k.t.Context()))
}

func (k *kit) unseal() {
	k.t.Helper()
	testutil.Ok(k.t, k.Unseal(k.t.Context()))
}

// wantLost checks that nothing can be done under a lease.
func (k *kit) wantLost(l workqueue.Leased) {
	k.t.Helper()
	ctx := k.t.Context()
	lost := func(what string, err error) {
		k.t.Helper()
		if !errors.Is(err, workqueue.ErrLeaseLost) {
			k.t.Fatalf("%s: got %v, want %v", what, err, workqueue.ErrLeaseLost)
		}
	}
	if got, err := k.Heartbeat(ctx, l); err != nil || len(got) != 1 {
		k.t.Fatalf("heartbeat: got %v, %v; want one lost", got, err)
	}
	lost("settle", k.Settle(ctx, l, workqueue.Done().With([]byte("r"), []byte("o"))))
	_, err := k.Retry(ctx, l, nil, 0, true)
	lost("retry", err)
	lost("pass", k.Pass(ctx, l, l.Item))
	_, err = k.EnqueueUnder(ctx, l, workqueue.Item{ID: "never"})
	lost("enqueue", err)
	if err := k.Return(ctx, l); err != nil {
		k.t.Fatalf("return: got %v, want nil", err)
	}
	if n, _, err := k.Outputs().Backlog(ctx); n != 0 || err != nil {
		k.t.Fatalf("got %d outputs, %v; want none", n, err)
	}
}

func TestRequeueOfASealedQueue(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxAttempts: 1}, func(k *kit) {
		k.enqueue("failed")
		k.retry(k.leaseOne("w"), 0)
		k.seal()
		if got, err := k.Requeue(k.t.Context(), workqueue.RequeueOptions{Unsealed: true}); len(got) != 0 || !errors.Is(err, workqueue.ErrSealed) {
			k.t.Fatalf("requeue if unsealed: got %v, %v; want %v", got, err, workqueue.ErrSealed)
		}
		if got, err := k.Requeue(k.t.Context(), workqueue.RequeueOptions{}); len(got) != 1 || err != nil {
			k.t.Fatalf("requeue: got %v, %v; want one item", got, err)
		}
		k.wantStats("1 0 0 0 0")
	})
}

// Seal ends more leases than one script call can, including expired ones and leases of dead workers, without an
// attempt.
func TestSealEndsManyLeases(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{LeaseTTL: time.Millisecond}, func(k *kit) {
		ctx := k.t.Context()
		k.enqueue(numbered(600)...)
		long := &kit{workqueue.New(k.rdb, k.Name(), workqueue.Config{}), k.t, k.rdb}
		if got := long.lease("w", 400); len(got) != 400 {
			k.t.Fatalf("leased %d items, want 400", len(got))
		}
		b, err := k.LeaseWithin(ctx, "w", 200, workqueue.Budget{Default: -1})
		if err != nil || len(b.Items) != 200 {
			k.t.Fatalf("leased %d items, %v; want 200", len(b.Items), err)
		}
		stray := "muster:wq:{" + k.Name() + "}:leased"
		k.rdb.ZAdd(ctx, stray, redis.Z{Score: 1, Member: "unknown"})
		k.seal()
		if n, err := k.ExpireWorker(ctx, "w"); n != 0 || err != nil {
			k.t.Fatalf("expired %d leases, %v; want none", n, err)
		}
		k.wantStats("600 0 0 0 0")
		k.unseal()
		for _, l := range long.lease("w", 600) {
			if l.Attempts != 0 {
				k.t.Fatalf("%s has %d attempts, want 0", l.ID, l.Attempts)
			}
		}
	})
}

// A process that dies while it seals leaves items in progress: no worker holds them, also after Unseal, and they use up no attempt.
func TestUnsealEndsTheLeasesThatSealLeft(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{LeaseTTL: time.Millisecond}, func(k *kit) {
		ctx := k.t.Context()
		k.enqueue("a", "b")
		ls := k.lease("w", 2)
		k.sealOnly()
		k.wantLost(ls[0])
		if n, err := k.ReturnStrays(ctx, "w"); n != 0 || err != nil {
			k.t.Fatalf("returned %d strays, %v; want none", n, err)
		}
		if n, err := k.ExpireWorker(ctx, "w"); n != 0 || err != nil {
			k.t.Fatalf("expired %d leases, %v; want none", n, err)
		}
		k.eventually("the leases to expire", func() bool { return !k.get("a").Expires.After(time.Now()) })
		if got := k.lease("w", 9); len(got) != 0 {
			k.t.Fatalf("leased %s, want none", ids(got))
		}
		k.wantStats("0 2 0 0 0")
		k.unseal()
		k.wantStats("2 0 0 0 0")
		if a := k.get("a"); a.Attempts != 0 {
			k.t.Fatalf("got %+v, want no attempts", a)
		}
		k.wantLost(ls[0])
		k.wantLost(ls[1])
	})
}

// sealOnly simulates a Seal whose process died: the queue is sealed, but no lease has ended.
func (k *kit) sealOnly() {
	k.t.Helper()
	testutil.Ok(k.t, k.rdb.HSet(k.t.Context(), "muster:wq:{"+k.Name()+"}:meta", "sealed", 1).Err())
}

// A pool on a sealed queue cancels its handlers, settles nothing, and does not end the leases of dead pools, as that would
// count attempts. It works on when the queue is unsealed.
func TestPoolOnASealedQueue(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{LeaseTTL: time.Hour}, func(k *kit) {
		meta, pools := "muster:wq:{"+k.Name()+"}:meta", "muster:wq:{"+k.Name()+"}:pools"
		k.enqueue("dead", "held")
		k.leaseOne("dead pool")
		started := make(chan struct{}, 2)
		var again atomic.Bool
		p := k.pool(workqueue.PoolConfig{Workers: 1, Heartbeat: 50 * time.Millisecond, Logger: quiet},
			func(ctx context.Context, _ workqueue.Leased) (workqueue.Outcome, error) {
				if again.Load() {
					return workqueue.Done(), nil
				}
				started <- struct{}{}
				<-ctx.Done()
				return workqueue.Done(), nil
			})
		ctx := k.t.Context()
		stop, wait := k.start(p)
		defer wait()
		defer stop()
		<-started
		k.sealOnly()
		k.rdb.ZAdd(ctx, pools, redis.Z{Score: 1, Member: "dead pool"})
		again.Store(true)
		k.eventually("the pool to lose its item", func() bool { return p.Stats().Lost == 1 })
		beat, beats := "", 0
		k.eventually("the pool to look for dead ones", func() bool {
			if now := k.rdb.HGet(ctx, meta, "beat").Val(); now != beat {
				beat = now
				beats++
			}
			return beats > 5
		})
		k.wantStats("0 2 0 0 0")
		k.unseal()
		k.eventually("the items to be done", func() bool { return p.Stats().Done == 2 })
		for _, id := range []string{"dead", "held"} {
			if got := k.get(id); got.Attempts != 0 {
				k.t.Errorf("%s used up %d attempts, want none", id, got.Attempts)
			}
		}
	})
}

// Each failure and each amendment is stored as an ending, once; a success is not.
func TestEndingsAreKeptOnce(t *testing.T) {
	t.Parallel()
	k := &kit{workqueue.New(redistest.New(t), "endings", workqueue.Config{MaxAttempts: 1, KeepEndings: true, Logger: quiet}), t, nil}
	k.enqueue("done", "settled", "retried", "expired")
	k.settle(k.leaseOne("w"), workqueue.Done())
	settled := k.leaseOne("w")
	for range 2 {
		k.settle(settled, workqueue.Failed(errors.New("no")))
	}
	k.retry(k.leaseOne("w"), 0)
	k.leaseOne("gone")
	if _, err := k.ExpireWorker(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		testutil.Ok(t, k.Amend(t.Context(), "settled", workqueue.StateError, workqueue.Skipped("by hand")))
	}
	var got []string
	for seq := ""; ; {
		endings, err := k.Endings(t.Context(), seq, 3)
		testutil.Ok(t, err)
		if len(endings) == 0 {
			break
		}
		for _, e := range endings {
			got, seq = append(got, e.Item+" "+string(e.State)), e.Seq
		}
	}
	if want := []string{"settled error", "retried error", "expired error", "settled skipped"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
