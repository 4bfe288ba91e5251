package workqueue_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks/workqueue"
)

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
	if n, err := k.Outputs().Len(ctx); n != 0 || err != nil {
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
		k.enqueue(numbered(1200)...)
		long := &kit{workqueue.New(k.rdb, k.Name(), workqueue.Config{}), k.t, k.rdb}
		if got := long.lease("w", 700); len(got) != 700 {
			k.t.Fatalf("leased %d items, want 700", len(got))
		}
		b, err := k.LeaseWithin(ctx, "w", 500, workqueue.Budget{Default: -1})
		if err != nil || len(b.Items) != 500 {
			k.t.Fatalf("leased %d items, %v; want 500", len(b.Items), err)
		}
		stray := "muster:wq:{" + k.Name() + "}:leased"
		k.rdb.ZAdd(ctx, stray, redis.Z{Score: 1, Member: "unknown"})
		k.seal()
		if n, err := k.ExpireWorker(ctx, "w"); n != 0 || err != nil {
			k.t.Fatalf("expired %d leases, %v; want none", n, err)
		}
		k.wantStats("1200 0 0 0 0")
		k.unseal()
		for _, l := range long.lease("w", 1200) {
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
