package workqueue_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/workqueue"
)

func TestPauseStopsLeasing(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		ctx := k.t.Context()
		k.enqueue("a")
		if changed, err := k.Pause(ctx); !changed || err != nil {
			k.t.Fatal(changed, err)
		}
		if changed, _ := k.Pause(ctx); changed {
			k.t.Fatal("the second pause: got true, want false")
		}
		got, next, remaining, err := k.LeaseIDs(ctx, "w", []string{"a"})
		if len(k.lease("w", 1))+len(got) != 0 || next.IsZero() || remaining != 1 || err != nil {
			k.t.Fatalf("a paused queue: got %v, %v, %d, %v; want no items, a time, 1 remaining", got, next, remaining, err)
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

func TestRequeueLeadsOutOfTerminalStates(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxAttempts: 1}, func(k *kit) {
		ctx := k.t.Context()
		k.enqueue("a", "b", "c")
		k.retry(k.leaseOne("w"), 0)
		k.settle(k.leaseOne("w"), workqueue.Done().With([]byte("r")))
		k.retry(k.leaseOne("w"), 0)
		want := func(what string, got []string, err error, ids ...string) {
			k.t.Helper()
			if err != nil || !slices.Equal(got, ids) {
				k.t.Fatalf("%s: got %v, %v; want %v", what, got, err, ids)
			}
		}
		got, err := k.Requeue(ctx, workqueue.RequeueOptions{DryRun: true})
		want("dry run", got, err, "a", "c")
		k.wantStats("0 0 1 0 2")
		got, err = k.Requeue(ctx, workqueue.RequeueOptions{MaxRetried: 1})
		want("first", got, err, "a", "c")
		k.wantStats("2 0 1 0 0")
		l := k.leaseOne("w")
		if l.ID != "a" || l.Attempts != 0 || l.Retried != 1 {
			k.t.Fatalf("leased %+v, want a, with no attempts, requeued once", l)
		}
		k.retry(l, 0)
		got, err = k.Requeue(ctx, workqueue.RequeueOptions{MaxRetried: 1})
		want("past its retries", got, err)
		got, err = k.Requeue(ctx, workqueue.RequeueOptions{IDs: []string{"a", "b", "unknown"}})
		want("by id", got, err, "a")
		got, err = k.Requeue(ctx, workqueue.RequeueOptions{IDs: []string{"b"}, States: []workqueue.State{workqueue.StateDone}})
		want("a done one", got, err, "b")
		if info := k.get("b"); info.Result != nil {
			k.t.Fatalf("got result %q of a requeued item, want none", info.Result)
		}
		k.wantStats("3 0 0 0 0")
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

func TestRepairRestoresIndexesFromRecords(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxAttempts: 1}, func(k *kit) {
		ctx := k.t.Context()
		key := func(name string) string { return "muster:wq:{" + k.Name() + "}:" + name }
		k.enqueue(numbered(8)...)
		ls := k.lease("w", 5)
		k.settle(ls[0], workqueue.Done())
		k.settle(ls[1], workqueue.Failed(errors.New("e")))
		if _, err := k.Retry(ctx, ls[2], nil, time.Hour, false); err != nil {
			k.t.Fatal(err)
		}
		if n, err := k.Repair(ctx); n != 0 || err != nil {
			k.t.Fatalf("got %d repaired of an undamaged queue, %v; want none", n, err)
		}
		k.wantStats("4 2 1 0 1")

		k.rdb.Del(ctx, key("counts"), key("ready"), key("lanes"), key("delayed"), key("failed"), key("leased"))
		k.rdb.ZAdd(ctx, key("leased"), redis.Z{Score: 1, Member: ls[0].ID})
		if _, err := k.Verify(ctx); err == nil {
			k.t.Fatal("got nil from Verify of a damaged queue, want an error")
		}
		if n, err := k.Repair(ctx); n != 8 || err != nil {
			k.t.Fatalf("got %d repaired, %v; want 8", n, err)
		}
		k.wantStats("4 2 1 0 1")
		for _, l := range k.lease("w2", 9) { // the leases that were lost have expired
			k.settle(l, workqueue.Done())
		}
		k.wantStats("0 0 5 0 3")
	})
}

func TestDeleteAndExpireLeaveNothing(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		ctx := k.t.Context()
		k.enqueue("a", "b")
		k.settle(k.leaseOne("w"), workqueue.Failed(errors.New("e")).With([]byte("r"), []byte("o")))
		if err := k.Delete(ctx); err != nil {
			k.t.Fatal(err)
		}
		if n := k.rdb.DBSize(ctx).Val(); n != 0 {
			k.t.Fatalf("got %d keys, want none: %v", n, k.rdb.Keys(ctx, "*").Val())
		}
		if n := k.enqueue("a"); n != 1 {
			k.t.Fatalf("got %d new in a deleted queue, want 1", n)
		}
		k.leaseOne("w")
		if err := k.Expire(ctx, 50*time.Millisecond); err != nil {
			k.t.Fatal(err)
		}
		k.eventually("the queue to expire", func() bool { return k.rdb.DBSize(ctx).Val() == 0 })
	})
}

func TestLastFailedHasTheNewestErrors(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxAttempts: 1}, func(k *kit) {
		if got, err := k.LastFailed(k.t.Context(), 5); err != nil || len(got) != 0 {
			k.t.Errorf("got %v, %v from an empty queue, want none", got, err)
		}
		k.enqueue(numbered(4)...)
		for i, l := range k.lease("w", 4) {
			if i == 0 {
				k.settle(l, workqueue.Done())
				continue
			}
			k.settle(l, workqueue.Failed(fmt.Errorf("why %s", l.ID)))
		}
		got, err := k.LastFailed(k.t.Context(), 2)
		if err != nil || len(got) != 2 {
			k.t.Fatalf("got %v, %v, want two items", got, err)
		}
		for _, f := range got {
			if f.Error != "why "+f.ID || f.At.IsZero() || got[0].At.Before(got[1].At) {
				k.t.Errorf("got %+v, want the error of each item, the newest first", got)
			}
		}
	})
}
