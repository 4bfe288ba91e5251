package workqueue_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks/limit"
	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

func TestPoolStops(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.New(t), workqueue.Config{})
	k.enqueue(numbered(50)...)
	started, finish := make(chan string, 50), make(chan struct{})
	p := k.pool(workqueue.PoolConfig{Workers: 4, Grace: 300 * time.Millisecond},
		func(ctx context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
			started <- it.ID
			if it.ID == "item-00050" {
				<-finish // ends within the grace
				return workqueue.Outcome{}, nil
			}
			<-ctx.Done() // does not
			return workqueue.Outcome{}, ctx.Err()
		})
	stop, wait := k.start(p)
	for range 4 {
		<-started
	}
	stop()
	k.eventually("the buffered items to be returned", func() bool {
		s, err := k.Stats(t.Context())
		return err == nil && s.InProgress == 4
	})
	close(finish)
	wait()
	k.wantStats("49 0 1 0 0")
	all, err := k.Get(t.Context(), numbered(50)...)
	testutil.Ok(t, err)
	for _, it := range all {
		if it.Attempts != 0 {
			t.Errorf("%s has used %d attempts, want none", it.ID, it.Attempts)
		}
	}
}

func TestIdlePoolStopsAtOnce(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.New(t), workqueue.Config{})
	p := k.pool(workqueue.PoolConfig{Grace: time.Hour}, done)
	stop, wait := k.start(p)
	k.enqueue("a")
	k.eventually("the item to be done", func() bool { return p.Stats().Done == 1 })
	stop()
	wait()
}

// Slots whose release is slow, because their Redis does not reply, block neither each other nor the settling of later
// items: otherwise a stopping pool would need a timeout for each.
func TestPoolReleasesSlotsInParallel(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	k := newKit(t, redistest.NewFault(redistest.Refused, 0).Client(t, url), workqueue.Config{})
	f := redistest.NewFault(redistest.Frozen, 1)
	slots := limit.NewKeyedLimiter(f.Client(t, url), limit.KeyedConfig{})
	const n = 8
	for i := range n {
		if _, err := k.Enqueue(t.Context(), workqueue.Item{ID: fmt.Sprint(i), Kind: "test", ResourceKeys: []string{fmt.Sprint("host:", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	var running atomic.Int32
	finish := make(chan struct{})
	p := k.pool(workqueue.PoolConfig{Workers: n, Limiter: func(string) *limit.KeyedLimiter { return slots }},
		func(context.Context, workqueue.Leased) (workqueue.Outcome, error) {
			running.Add(1)
			<-finish
			return workqueue.Done(), nil
		})
	stop, wait := k.start(p)
	defer wait()
	defer f.Release()
	defer stop()
	k.eventually("all to run", func() bool { return running.Load() == n })
	f.Arm()
	close(finish)
	k.eventually("all to be settled, and all slots to be in release", func() bool {
		return p.Stats().Done == n && f.Calls() == n
	})
}

// tries sends the messages of warnings.
type tries struct {
	slog.Handler
	warned chan string
}

func (h tries) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (h tries) Handle(_ context.Context, r slog.Record) error {
	select {
	case h.warned <- r.Message:
	default:
	}
	return nil
}

// A pool whose Redis has gone stops, although more items have ended than can wait for their storage.
func TestPoolStopsWithoutRedis(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.New(t).(*redis.Client).Options().Addr})
	k := newKit(t, rdb, workqueue.Config{})
	k.enqueue(numbered(50)...)
	const workers = 4
	running, finish := make(chan struct{}, 50), make(chan struct{}, 50)
	log := tries{slog.DiscardHandler, make(chan string, 100)}
	p := k.pool(workqueue.PoolConfig{Workers: workers, Grace: time.Millisecond, Logger: slog.New(log)}, func(ctx context.Context, _ workqueue.Leased) (workqueue.Outcome, error) {
		running <- struct{}{}
		select {
		case <-finish:
		case <-ctx.Done():
			return workqueue.Outcome{}, ctx.Err()
		}
		return workqueue.Outcome{}, nil
	})
	stop, wait := k.start(p)
	for range workers {
		<-running
	}
	finish <- struct{}{} // the pool leases again once less than an item per worker is in its buffer
	k.eventually("more items than can wait for their storage", func() bool { s := p.Stats(); return s.Done == 1 && s.Running >= 2*workers+2 })
	testutil.Ok(t, rdb.Close())
	finish <- struct{}{}
	for message := range log.warned {
		if strings.HasPrefix(message, "cannot store how items ended") {
			break
		}
	}
	for range 2*workers + 1 { // two per worker wait for the settler, one in its worker
		finish <- struct{}{}
	}
	k.eventually("the handlers to end", func() bool { return len(finish) == 0 })
	stop()
	wait()
}
