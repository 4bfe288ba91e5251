package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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

func TestVerifyReportsWrongCountersAndIndexes(t *testing.T) {
	t.Parallel()
	every(t, byLane, func(k *kit) {
		key := func(name string) string { return "muster:wq:{" + k.Name() + "}:" + name }
		for _, wrong := range []struct {
			what   string
			change func(ctx context.Context) error
		}{
			{"queued", func(ctx context.Context) error { return k.rdb.HIncrBy(ctx, key("counts"), "queued", 1).Err() }},
			{"ready", func(ctx context.Context) error { return k.rdb.Del(ctx, key("ready")).Err() }},
			{"lane", func(ctx context.Context) error { return k.rdb.HSet(ctx, key("counts"), "error\x00gone\x1f", 3).Err() }},
		} {
			testutil.Ok(k.t, k.Delete(k.t.Context()))
			k.enqueue(numbered(8)...)
			k.settle(k.leaseOne("w"), workqueue.Done())
			k.wantStats("7 0 1 0 0") // it verifies
			testutil.Ok(k.t, wrong.change(k.t.Context()))
			if _, err := k.Verify(k.t.Context()); err == nil || !strings.Contains(err.Error(), wrong.what) {
				k.t.Errorf("%s: got %v, want an error that names it", wrong.what, err)
			}
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
