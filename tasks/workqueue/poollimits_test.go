package workqueue_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks/limit"
	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// A pool never holds more than three items a worker, and a limit that SetLimit
// raises above the configured one is used.
func TestPoolHoldsFewAndUsesRaisedLimits(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	k := newKit(t, rdb, workqueue.Config{})
	for i := range 100 {
		if _, err := k.Enqueue(t.Context(), workqueue.Item{ID: fmt.Sprint(i), Kind: "test", ResourceKeys: []string{"host:h"}}); err != nil {
			t.Fatal(err)
		}
	}
	slots := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{Default: 2})
	var now atomic.Int32
	finish := make(chan struct{})
	p := k.pool(workqueue.PoolConfig{Workers: 5, Limiter: func(string) *limit.KeyedLimiter { return slots }},
		func(ctx context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
			now.Add(1)
			defer now.Add(-1)
			<-finish
			return workqueue.Done(), nil
		})
	stop, wait := k.start(p)
	k.eventually("two items to run", func() bool { return now.Load() == 2 })
	k.eventually("the items without a slot to be returned", func() bool {
		s, err := k.Stats(t.Context())
		return err == nil && s.InProgress == 2
	})
	// From another process, above the limit that this one is set up with.
	other := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{Default: 2})
	testutil.Ok(t, other.SetLimit(t.Context(), "host:h", 100))
	finish <- struct{}{} // the pool learns the limit with the next item
	k.eventually("five items to run and ten to wait", func() bool { return now.Load() == 5 && p.Stats().Running >= 10 })
	for range 20 {
		if s, err := k.Stats(t.Context()); err != nil || s.InProgress > 15 {
			t.Errorf("%+v, %v; want 15 in progress at most", s, err)
		}
		finish <- struct{}{}
	}
	stop()
	close(finish)
	wait()
	if s, err := k.Stats(t.Context()); err != nil || s.InProgress != 0 || s.Done < 20 {
		t.Errorf("got %+v, %v; want none in progress, 20 done or more", s, err)
	}
}

// A host at its limit blocks no other host, and its limit holds in two pools
// together.
func TestPoolPassesOverSlowHosts(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	k := newKit(t, rdb, workqueue.Config{})
	var items []workqueue.Item
	for i := range 20 {
		items = append(items, workqueue.Item{ID: fmt.Sprint("slow", i), Kind: "test", ResourceKeys: []string{"host:slow"}})
	}
	for i := range 100 {
		items = append(items, workqueue.Item{ID: fmt.Sprint("fast", i), Kind: "test", ResourceKeys: []string{fmt.Sprint("host:", i%10)}})
	}
	if _, err := k.Enqueue(t.Context(), items...); err != nil {
		t.Fatal(err)
	}
	var slow, most, fast atomic.Int32
	allFast := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		// Each pool has separate limiters, like a process.
		l := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{Default: 2})
		p := k.pool(workqueue.PoolConfig{Workers: 5, Drain: true, Limiter: func(string) *limit.KeyedLimiter { return l }},
			func(ctx context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
				if !strings.HasPrefix(it.ID, "slow") {
					if fast.Add(1) == 100 {
						close(allFast)
					}
					return workqueue.Outcome{}, nil
				}
				n := slow.Add(1)
				defer slow.Add(-1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				<-allFast // no slow one ends before every fast one has
				return workqueue.Outcome{}, nil
			})
		wg.Go(func() { k.run(p) })
	}
	wg.Wait()
	k.wantStats("0 0 120 0 0")
	if most.Load() != 2 {
		t.Errorf("%d at a time on the slow host, want 2", most.Load())
	}
}

// An item whose limiter fails ends with its error, and holds no slot.
func TestPoolNotesLimitersThatFail(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	k := newKit(t, rdb, workqueue.Config{MaxAttempts: 2, Backoff: quick})
	if _, err := k.Enqueue(t.Context(),
		workqueue.Item{ID: "a", Kind: "test", ResourceKeys: []string{"resolver:r", "host:broken"}},
		workqueue.Item{ID: "b", Kind: "test", ResourceKeys: []string{"resolver:r", "host:fine"}}); err != nil {
		t.Fatal(err)
	}
	away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = away.Close() })
	fine, broken := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{}), limit.NewKeyedLimiter(away, limit.KeyedConfig{})
	p := k.pool(workqueue.PoolConfig{Drain: true, Logger: quiet, Limiter: func(key string) *limit.KeyedLimiter {
		if key == "host:broken" {
			return broken
		}
		return fine
	}}, done)
	k.run(p)
	k.wantStats("0 0 1 0 1")
	a := k.get("a")
	if a.Attempts != 2 || !strings.HasPrefix(a.Note, "limiter_acquire_failed: acquire slot of host:broken: ") {
		t.Errorf("got %d attempts, %q; want 2 and limiter_acquire_failed", a.Attempts, a.Note)
	}
	if s := p.Stats(); s.Retried != 1 || s.Failed != 1 || s.Done != 1 {
		t.Errorf("got %+v, want one retried, one failed, one done", s)
	}
	if n, err := fine.Held(t.Context(), "resolver:r"); err != nil || n != 0 {
		t.Errorf("got %d slots of the resolver held, %v; want none", n, err)
	}
}
