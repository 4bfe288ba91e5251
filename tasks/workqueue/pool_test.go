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

	"muster/tasks/limit"
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
	if err != nil {
		k.t.Fatal(err)
	}
	return p
}

func (k *kit) run(p *workqueue.Pool) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 60*time.Second)
	defer cancel()
	if err := p.Run(ctx); err != nil || ctx.Err() != nil {
		k.t.Fatalf("run: %v, %v", err, ctx.Err())
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
			}
			return workqueue.Done().With(nil, []byte(it.ID)), nil
		})
		k.run(p)
		k.wantStats("0 0 297 1 3")
		if got := runs.Load(); got != 301+1+2*2 {
			t.Errorf("%d runs, want 306", got)
		}
		if n := k.get("item-00003"); n.Attempts != 0 || n.Note != "pipeline_error: gone" {
			t.Errorf("permanent: %+v", n)
		}
		if n := k.get("item-00004"); n.Attempts != 3 || n.Note != "pipeline_error: "+strings.Repeat("x", 100) {
			t.Errorf("failing: %d attempts, %q", n.Attempts, n.Note)
		}
		if n := k.get("item-00005"); n.Note != "pipeline_error: panic: oops" {
			t.Errorf("panicking: %q", n.Note)
		}
		s := p.Stats()
		if s.Done != 297 || s.Skipped != 1 || s.Failed != 3 || s.Retried != 5 || s.Running != 0 {
			t.Errorf("%+v", s)
		}
		if n, _ := k.Outputs().Len(t.Context()); n != 296 {
			t.Errorf("%d outputs, want 296", n)
		}
		k.run(p) // it may run again
	})
}

func TestPoolRefusesPayloadsAndKinds(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.New(t), workqueue.Config{MaxAttempts: 1})
	_, err := k.Enqueue(t.Context(), workqueue.Item{ID: "bad", Kind: "test", Payload: []byte("{")},
		workqueue.Item{ID: "empty", Kind: "test"}, workqueue.Item{ID: "other", Kind: "nobody"})
	if err != nil {
		t.Fatal(err)
	}
	k.run(k.pool(workqueue.PoolConfig{Drain: true}, workqueue.JSON(
		func(context.Context, workqueue.Leased, map[string]any) (workqueue.Outcome, error) {
			t.Error("the handler was called")
			return workqueue.Outcome{}, nil
		})))
	k.wantStats("0 0 0 0 3")
	if n := k.get("bad").Note; !strings.HasPrefix(n, "artifact_validation_failed: ") {
		t.Error(n)
	}
	if n := k.get("other").Note; !strings.Contains(n, `no handler for kind "nobody"; there are test`) {
		t.Error(n)
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
		t.Fatalf("%d runs of 4 items", runs.Load())
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
		t.Fatalf("got %+v", got)
	}
}

// A handler that is deaf to its deadline is not kept alive by the heartbeat.
func TestPoolLeavesDeafHandlers(t *testing.T) {
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
		t.Fatalf("got %+v, %+v", got, p.Stats())
	}
}

func TestPoolStops(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.New(t), workqueue.Config{})
	k.enqueue(numbered(50)...)
	ctx, cancel := context.WithCancel(t.Context())
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
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.Run(ctx) })
	for range 4 {
		<-started
	}
	cancel()
	k.eventually("the buffer to be given back", func() bool {
		s, err := k.Stats(t.Context())
		return err == nil && s.InProgress == 4
	})
	close(finish)
	wg.Wait()
	k.wantStats("49 0 1 0 0")
	all, err := k.Get(t.Context(), numbered(50)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range all {
		if it.Attempts != 0 {
			t.Errorf("%s has used %d attempts", it.ID, it.Attempts)
		}
	}
}

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
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	k.eventually("two items to run", func() bool { return now.Load() == 2 })
	k.eventually("what found no slot to be given back", func() bool {
		s, err := k.Stats(t.Context())
		return err == nil && s.InProgress == 2
	})
	// From another process, above the limit that this one is set up with.
	other := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{Default: 2})
	if err := other.SetLimit(t.Context(), "host:h", 100); err != nil {
		t.Fatal(err)
	}
	finish <- struct{}{} // it is learned with the next item
	k.eventually("five items to run and ten to wait", func() bool { return now.Load() == 5 && p.Stats().Running >= 10 })
	for range 20 {
		if s, err := k.Stats(t.Context()); err != nil || s.InProgress > 15 {
			t.Errorf("%+v, %v; want 15 in progress at most", s, err)
		}
		finish <- struct{}{}
	}
	stop()
	close(finish)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if s, err := k.Stats(t.Context()); err != nil || s.InProgress != 0 || s.Done < 20 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestIdlePoolStopsAtOnce(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.New(t), workqueue.Config{})
	p := k.pool(workqueue.PoolConfig{}, done)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	k.enqueue("a")
	k.eventually("the item to be done", func() bool { return p.Stats().Done == 1 })
	start := time.Now()
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 10*time.Second { // a third of the grace
		t.Errorf("took %v", d)
	}
}

// A host at its limit holds up nobody else, and its limit holds in two pools
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
	goOn := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		// Each pool has limiters of its own, as a process has.
		l := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{Default: 2})
		p := k.pool(workqueue.PoolConfig{Workers: 5, Drain: true, Limiter: func(string) *limit.KeyedLimiter { return l }},
			func(ctx context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
				if !strings.HasPrefix(it.ID, "slow") {
					if fast.Add(1) == 100 {
						close(goOn)
					}
					return workqueue.Outcome{}, nil
				}
				n := slow.Add(1)
				defer slow.Add(-1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				<-goOn // no slow one ends before every fast one has
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

// Where a limiter fails, the item fails, says so, and holds nothing.
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
	if a.Attempts != 2 || !strings.HasPrefix(a.Note, "limiter_acquire_failed: acquire a slot of host:broken: ") {
		t.Errorf("%d attempts, %q", a.Attempts, a.Note)
	}
	if s := p.Stats(); s.Retried != 1 || s.Failed != 1 || s.Done != 1 {
		t.Errorf("%+v", s)
	}
	if n, err := fine.Held(t.Context(), "resolver:r"); err != nil || n != 0 {
		t.Errorf("%d slots of the resolver are held, %v", n, err)
	}
}

// So many workers, so many items at a time: a pool of n takes an n-th of the
// rounds.
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
				// Nobody goes on before as many are here as there are workers.
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

// The pool goes on where Redis comes back.
func TestPoolSurvivesRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Server(t, "appendonly", "yes", "appendfsync", "always")
	k := newKit(t, s.Client(), workqueue.Config{LeaseTTL: 2 * time.Second, MaxAttempts: 10})
	k.enqueue(numbered(200)...)
	var once sync.Once
	down := make(chan struct{})
	p := k.pool(workqueue.PoolConfig{Drain: true, Heartbeat: 100 * time.Millisecond},
		func(ctx context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
			if it.ID == "item-00100" {
				once.Do(func() { close(down) })
			}
			return workqueue.Outcome{}, nil
		})
	var wg sync.WaitGroup
	wg.Go(func() { k.run(p) })
	<-down
	s.Kill()
	s.Start()
	wg.Wait()
	k.wantStats("0 0 200 0 0")
}

// Items that a lease took whose answer was lost come back without an attempt.
func TestPoolReturnsStrays(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.New(t), workqueue.Config{MaxAttempts: 1})
	k.enqueue("a", "b")
	k.lease("me", 1)
	k.run(k.pool(workqueue.PoolConfig{Drain: true, Name: "me", Heartbeat: 30 * time.Millisecond}, done))
	k.wantStats("0 0 2 0 0")
}

// slowly lets no command through once it is shut, until it is open.
type slowly struct {
	shut    atomic.Bool
	waiting atomic.Int32
	open    chan struct{}
}

func (s *slowly) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *slowly) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *slowly) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if s.shut.Load() {
			s.waiting.Add(1)
			<-s.open
		}
		return next(ctx, cmd)
	}
}

// Slots that are slow to give back, because their Redis is silent, hold up
// neither each other nor the settling of what comes next: a pool that stops
// would take a timeout for each.
func TestPoolGivesSlotsBackSideBySide(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	k := newKit(t, rdb, workqueue.Config{})
	own := redis.NewClient(rdb.(*redis.Client).Options())
	t.Cleanup(func() { _ = own.Close() })
	gate := &slowly{open: make(chan struct{})}
	own.AddHook(gate)
	slots := limit.NewKeyedLimiter(own, limit.KeyedConfig{})
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
	ctx, stop := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer ended.Wait()
	defer close(gate.open)
	defer stop()
	k.eventually("all to run", func() bool { return running.Load() == n })
	gate.shut.Store(true)
	close(finish)
	k.eventually("all to be settled, and all slots to be on their way back", func() bool {
		return p.Stats().Done == n && gate.waiting.Load() == n
	})
}

func TestPoolConfig(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.Mini(t), workqueue.Config{})
	for _, bad := range []workqueue.PoolConfig{
		{Workers: -1}, {Workers: 257}, {Heartbeat: -1}, {Heartbeat: time.Hour}, {Timeout: -1}, {Grace: -1},
	} {
		if _, err := workqueue.NewPool(k.Queue, workqueue.NewMux(), bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	if _, err := workqueue.NewPool(workqueue.New(k.rdb, "", workqueue.Config{}), workqueue.NewMux(), workqueue.PoolConfig{}); err == nil {
		t.Error("a bad queue was accepted")
	}
}
