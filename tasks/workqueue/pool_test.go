package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// quick tries again at once.
var quick = workqueue.Backoff{Base: time.Millisecond}

func (k *kit) pool(cfg workqueue.PoolConfig, h workqueue.Handler) *workqueue.Pool {
	k.t.Helper()
	mux := workqueue.NewMux()
	mux.Handle("test", h)
	p, err := workqueue.NewPool(k.Queue, mux, cfg)
	testutil.Ok(k.t, err)
	return p
}

func (k *kit) run(p *workqueue.Pool) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 60*time.Second)
	defer cancel()
	if err := p.Run(ctx); err != nil || ctx.Err() != nil {
		k.t.Fatalf("run: got %v, %v; want nil", err, ctx.Err())
	}
}

// start runs a pool until stop is called; wait waits until it has ended.
func (k *kit) start(p *workqueue.Pool) (stop, wait func()) {
	ctx, cancel := context.WithCancel(k.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	return cancel, func() {
		k.t.Helper()
		if err := <-ended; err != nil {
			k.t.Errorf("pool: got %v, want nil", err)
		}
	}
}

func done(context.Context, workqueue.Leased) (workqueue.Outcome, error) {
	return workqueue.Outcome{}, nil
}

func TestPoolDrains(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		k := newKit(t, rdb, workqueue.Config{Backoff: quick, MaxAttempts: 3})
		k.enqueue(numbered(300)...)
		var runs atomic.Int64
		p := k.pool(workqueue.PoolConfig{Drain: true, Logger: quiet}, func(ctx context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
			runs.Add(1)
			switch {
			case it.ID == "item-00001":
				_, err := k.Enqueue(ctx, workqueue.Item{ID: "late", Kind: "test"})
				return workqueue.Outcome{}, err
			case it.ID == "item-00002":
				return workqueue.Skipped("robots"), nil
			case it.ID == "item-00003":
				return workqueue.Outcome{}, workqueue.Permanent(errors.New("gone"))
			case it.ID == "item-00004":
				return workqueue.Outcome{}, errors.New(strings.Repeat("x", 200))
			case it.ID == "item-00005":
				panic("oops")
			case it.ID == "item-00006" && it.Attempts == 0:
				return workqueue.Outcome{}, workqueue.RetryAfter(50*time.Millisecond, errors.New("later"))
			case it.ID == "item-00007":
				return workqueue.Outcome{State: workqueue.StateDone, Items: []workqueue.Item{{}}}, nil
			}
			return workqueue.Done().With(nil, []byte(it.ID)), nil
		})
		k.run(p)
		k.wantStats("0 0 296 1 4")
		if got := runs.Load(); got != 301+1+2*2 {
			t.Errorf("%d runs, want 306", got)
		}
		if n := k.get("item-00003"); n.Attempts != 0 || n.Note != "pipeline_error: gone" {
			t.Errorf("permanent: got %+v, want no attempts and its error", n)
		}
		if n := k.get("item-00004"); n.Attempts != 3 || n.Note != "pipeline_error: "+strings.Repeat("x", 100) {
			t.Errorf("failing: got %d attempts, %q; want 3 and its error", n.Attempts, n.Note)
		}
		if n := k.get("item-00005"); n.Note != "pipeline_error: panic: oops" {
			t.Errorf("panicking: got %q, want the panic", n.Note)
		}
		if n := k.get("item-00007").Note; !strings.Contains(n, "new item") {
			t.Errorf("invalid new item: got %q, want an error that names it", n)
		}
		s := p.Stats()
		if s.Done != 296 || s.Skipped != 1 || s.Failed != 4 || s.Retried != 5 || s.Running != 0 {
			t.Errorf("got %+v, want 296 done, 1 skipped, 4 failed, 5 retried, none running", s)
		}
		if n, _ := k.Outputs().Len(t.Context()); n != 295 {
			t.Errorf("got %d outputs, want 295", n)
		}
		k.run(p) // it may run again
	})
}

func TestPoolRejectsPayloadsAndKinds(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.New(t), workqueue.Config{MaxAttempts: 1})
	_, err := k.Enqueue(t.Context(), workqueue.Item{ID: "bad", Kind: "test", Payload: []byte("{")},
		workqueue.Item{ID: "empty", Kind: "test"}, workqueue.Item{ID: "other", Kind: "unknown"})
	testutil.Ok(t, err)
	k.run(k.pool(workqueue.PoolConfig{Drain: true}, workqueue.JSON(
		func(context.Context, workqueue.Leased, map[string]any) (workqueue.Outcome, error) {
			t.Error("the handler was called, want no call")
			return workqueue.Outcome{}, nil
		})))
	k.wantStats("0 0 0 0 3")
	if n := k.get("bad").Note; !strings.HasPrefix(n, "artifact_validation_failed: ") {
		t.Errorf("got note %q, want artifact_validation_failed", n)
	}
	if n := k.get("other").Note; !strings.Contains(n, `no handler for kind "unknown"; there are test`) {
		t.Errorf("got note %q, want the kinds with a handler", n)
	}
}

// A handler that is longer than its lease runs once, in two pools.
func TestPoolKeepsItsLeases(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.New(t), workqueue.Config{LeaseTTL: 3 * time.Second})
	k.enqueue(numbered(4)...)
	var runs atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		p := k.pool(workqueue.PoolConfig{Workers: 2, Drain: true, Heartbeat: 100 * time.Millisecond},
			func(ctx context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
				runs.Add(1)
				select {
				case <-time.After(4 * time.Second):
				case <-ctx.Done():
				}
				return workqueue.Outcome{}, nil
			})
		wg.Go(func() { k.run(p) })
	}
	wg.Wait()
	k.wantStats("0 0 4 0 0")
	if runs.Load() != 4 {
		t.Fatalf("got %d runs of 4 items, want 4", runs.Load())
	}
}

func TestPoolEndsHungHandlers(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.New(t), workqueue.Config{MaxAttempts: 2, Backoff: quick})
	k.enqueue("a")
	k.run(k.pool(workqueue.PoolConfig{Drain: true, Timeout: 50 * time.Millisecond},
		func(ctx context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
			<-ctx.Done()
			return workqueue.Outcome{}, ctx.Err()
		}))
	if got := k.get("a"); got.State != workqueue.StateError || got.Attempts != 2 || !strings.Contains(got.Note, "longer than 50ms") {
		t.Fatalf("got %+v, want an error after 2 attempts of 50ms", got)
	}
}

// The heartbeat does not extend the lease of a handler that ignores its deadline.
func TestHeartbeatStopsAtTheDeadline(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.New(t), workqueue.Config{LeaseTTL: 300 * time.Millisecond})
	k.enqueue("a")
	release := make(chan struct{})
	var runs atomic.Int64
	p := k.pool(workqueue.PoolConfig{Drain: true, Timeout: 50 * time.Millisecond, Heartbeat: 20 * time.Millisecond},
		func(ctx context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
			if runs.Add(1) == 1 {
				<-release
			} else {
				close(release)
			}
			return workqueue.Outcome{}, nil
		})
	k.run(p)
	if got := k.get("a"); got.State != workqueue.StateDone || got.Attempts != 1 || p.Stats().Lost != 1 {
		t.Fatalf("got %+v, %+v; want done after one attempt, one lease lost", got, p.Stats())
	}
}

// A pool of n workers runs n items at a time: it takes 1/n of the rounds.
func TestPoolScalesWithItsWorkers(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	for _, workers := range []int{1, 4, 8} {
		k := &kit{workqueue.New(rdb, fmt.Sprint("of", workers), workqueue.Config{}), t, rdb}
		k.enqueue(numbered(40)...)
		var mu sync.Mutex // guards the rest
		here, rounds, round := 0, 0, make(chan struct{})
		k.run(k.pool(workqueue.PoolConfig{Workers: workers, Drain: true},
			func(ctx context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
				mu.Lock()
				mine := round
				// Handlers wait until as many run as there are workers.
				if here++; here == workers {
					here, rounds, round = 0, rounds+1, make(chan struct{})
					close(mine)
				}
				mu.Unlock()
				select {
				case <-mine:
					return workqueue.Done(), nil
				case <-ctx.Done():
					return workqueue.Outcome{}, ctx.Err()
				}
			}))
		k.wantStats("0 0 40 0 0")
		if rounds != 40/workers {
			t.Errorf("%d workers took %d rounds, want %d", workers, rounds, 40/workers)
		}
	}
}

func TestPoolConfig(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.Mini(t), workqueue.Config{})
	for _, bad := range []workqueue.PoolConfig{
		{Workers: -1}, {Workers: 257}, {Heartbeat: -1}, {Heartbeat: time.Hour}, {Timeout: -1}, {Grace: -1},
	} {
		if _, err := workqueue.NewPool(k.Queue, workqueue.NewMux(), bad); err == nil {
			t.Errorf("%+v: got nil, want an error", bad)
		}
	}
	if _, err := workqueue.NewPool(workqueue.New(k.rdb, "", workqueue.Config{}), workqueue.NewMux(), workqueue.PoolConfig{}); err == nil {
		t.Error("a bad queue: got nil, want an error")
	}
}
