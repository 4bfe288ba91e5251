package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks/workqueue"
)

// quick tries again at once.
var quick = workqueue.Backoff{Base: time.Millisecond}

func (k *kit) pool(cfg workqueue.PoolConfig, h workqueue.Handler) *workqueue.Pool {
	k.t.Helper()
	p, err := workqueue.NewPool(k.Queue, workqueue.Handlers{"test": h}, cfg)
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
		if n, _, _ := k.Outputs().Backlog(t.Context()); n != 295 {
			t.Errorf("got %d outputs, want 295", n)
		}
		k.run(p) // it may run again
	})
}

func TestPoolRejectsPayloadsAndKinds(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.New(t), workqueue.Config{MaxAttempts: 1})
	_, err := k.Enqueue(t.Context(), workqueue.Item{ID: "bad", Kind: "test"}, workqueue.Item{ID: "other", Kind: "unknown"})
	testutil.Ok(t, err)
	k.run(k.pool(workqueue.PoolConfig{Drain: true}, func(context.Context, workqueue.Leased) (workqueue.Outcome, error) {
		return workqueue.Outcome{}, workqueue.Invalid(errors.New("not JSON"))
	}))
	k.wantStats("0 0 0 0 2")
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

func TestPoolConfig(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.Mini(t), workqueue.Config{})
	for _, bad := range []workqueue.PoolConfig{
		{Workers: -1}, {Workers: 257}, {Heartbeat: -1}, {Heartbeat: time.Hour}, {Timeout: -1}, {Grace: -1},
	} {
		if _, err := workqueue.NewPool(k.Queue, nil, bad); err == nil {
			t.Errorf("%+v: got nil, want an error", bad)
		}
	}
	if _, err := workqueue.NewPool(workqueue.New(k.rdb, "", workqueue.Config{}), nil, workqueue.PoolConfig{}); err == nil {
		t.Error("a bad queue: got nil, want an error")
	}
}

// A pool never holds more than three items a worker.
func TestPoolHoldsFew(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.New(t), workqueue.Config{})
	k.enqueue(numbered(100)...)
	finish := make(chan struct{})
	p := k.pool(workqueue.PoolConfig{Workers: 5}, func(context.Context, workqueue.Leased) (workqueue.Outcome, error) {
		<-finish
		return workqueue.Done(), nil
	})
	stop, wait := k.start(p)
	k.eventually("ten items to be held", func() bool { return p.Stats().Running >= 10 })
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
	rdb := redistest.New(t)
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

// A resource whose items hang leaves workers for the others.
func TestPoolWorksOnFewItemsOfAKey(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.New(t), workqueue.Config{})
	for i := range 40 {
		key := "slow"
		if i >= 20 {
			key = fmt.Sprint("fast", i%3)
		}
		if _, err := k.Enqueue(t.Context(), workqueue.Item{ID: fmt.Sprint(i), Kind: "test", ResourceKeys: []string{key}}); err != nil {
			t.Fatal(err)
		}
	}
	var slow, most, fast atomic.Int32
	finish := make(chan struct{})
	p := k.pool(workqueue.PoolConfig{Workers: 6, MaxPerKey: func(string) int { return 3 }}, func(_ context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
		if it.ResourceKeys[0] != "slow" {
			fast.Add(1)
			return workqueue.Done(), nil
		}
		if n := slow.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer slow.Add(-1)
		<-finish
		return workqueue.Done(), nil
	})
	stop, wait := k.start(p)
	k.eventually("all fast items to be done", func() bool { return fast.Load() == 20 })
	k.eventually("three slow ones to run", func() bool { return slow.Load() == 3 })
	close(finish)
	k.eventually("the end of all", func() bool { s, err := k.Stats(t.Context()); return err == nil && s.Done == 40 })
	if got := most.Load(); got != 3 {
		t.Errorf("got %d slow items at a time, want 3", got)
	}
	stop()
	wait()
}

// A pool that got more signals than it read leaks no goroutine: TestMain checks for leaks.
func TestBusyPoolLeaksNoGoroutine(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.New(t), workqueue.Config{})
	var began atomic.Int32
	finish := make(chan struct{})
	p := k.pool(workqueue.PoolConfig{Workers: 1}, func(context.Context, workqueue.Leased) (workqueue.Outcome, error) {
		began.Add(1)
		<-finish
		return workqueue.Done(), nil
	})
	stop, wait := k.start(p)
	for i := range 400 { // each is a signal; the client keeps 100
		if _, err := k.Enqueue(t.Context(), workqueue.Item{ID: fmt.Sprint(i), Kind: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	k.eventually("an item to run", func() bool { return began.Load() == 1 })
	stop()
	close(finish)
	wait()
}

// The verdict of a handler decides when its item runs again, and whether the attempt counts.
func TestVerdictsOfHandlers(t *testing.T) {
	t.Parallel()
	busy := errors.New("the host is busy")
	const hold = 300 * time.Millisecond
	for name, c := range map[string]struct {
		verdict  error
		attempts int
		waits    time.Duration // at least, before the item runs again
	}{
		"Postpone":             {workqueue.Postpone(hold, busy), 0, hold},
		"NotNow":               {workqueue.NotNow("host", hold, busy), 0, hold},
		"RetryAfter":           {workqueue.RetryAfter(hold, busy), 1, hold},
		"HoldBack":             {workqueue.HoldBack("host", hold, busy), 1, hold},
		"HoldBack of Postpone": {workqueue.HoldBack("host", hold, workqueue.Postpone(0, busy)), 0, hold},
		"an error":             {busy, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !errors.Is(c.verdict, busy) {
				t.Errorf("%v hides its cause", c.verdict)
			}
			k := newKit(t, redistest.New(t), workqueue.Config{Backoff: quick, MaxAttempts: 5})
			if _, err := k.Enqueue(t.Context(), workqueue.Item{ID: "a", Kind: "test", ResourceKeys: []string{"host"}}); err != nil {
				t.Fatal(err)
			}
			var first time.Time
			var attempts, waited atomic.Int64
			k.run(k.pool(workqueue.PoolConfig{Workers: 1, Drain: true, Logger: quiet}, func(_ context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
				if first.IsZero() { // there is one worker
					first = time.Now()
					return workqueue.Outcome{}, c.verdict
				}
				attempts.Store(int64(it.Attempts))
				waited.Store(int64(time.Since(first)))
				return workqueue.Done(), nil
			}))
			k.wantStats("0 0 1 0 0")
			if int(attempts.Load()) != c.attempts {
				t.Errorf("got %d attempts, want %d", attempts.Load(), c.attempts)
			}
			if got := time.Duration(waited.Load()); got < c.waits {
				t.Errorf("it ran again after %v, want %v or more", got, c.waits)
			}
		})
	}
}

// Items that are settled together have separate results: a lost lease does not affect the others.
func TestSettleAllAnswersForEach(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a", "b", "c")
		l := k.lease("w", 3)
		k.settle(l[1], workqueue.Done())
		errs := k.SettleAll(k.t.Context(), workqueue.Settlement{Lease: l[0], Outcome: workqueue.Done()},
			workqueue.Settlement{Lease: l[1], Outcome: workqueue.Failed(errors.New("late"))},
			workqueue.Settlement{Lease: l[2], Outcome: workqueue.Skipped("robots.txt")})
		if len(errs) != 3 || errs[0] != nil || !errors.Is(errs[1], workqueue.ErrLeaseLost) || errs[2] != nil {
			k.t.Errorf("got %v, want that only the lease of the second is lost", errs)
		}
		k.wantStats("0 0 2 1 0")
	})
}

func benchItems(n int) []workqueue.Item {
	items := make([]workqueue.Item, n)
	for i := range items {
		items[i] = workqueue.Item{ID: fmt.Sprintf("item-%07d", i), Kind: "bench", Payload: []byte(`{"url":"http://127.0.0.1/"}`)}
	}
	return items
}

func BenchmarkEnqueue(b *testing.B) {
	rdb := redistest.Server(b).Client()
	q := workqueue.New(rdb, "bench", workqueue.Config{})
	items := benchItems(b.N)
	redistest.Measured(b, rdb, func() {
		if n, err := q.Enqueue(b.Context(), items...); err != nil || n != b.N {
			b.Fatalf("enqueued %d items, error %v, want %d", n, err, b.N)
		}
	})
}

// Items are leased and settled by a pool of eight.
func BenchmarkDrain(b *testing.B) {
	rdb := redistest.Server(b).Client()
	q := workqueue.New(rdb, "bench", workqueue.Config{})
	if _, err := q.Enqueue(b.Context(), benchItems(b.N)...); err != nil {
		b.Fatal(err)
	}
	done := func(context.Context, workqueue.Leased) (workqueue.Outcome, error) { return workqueue.Done(), nil }
	pool, err := workqueue.NewPool(q, workqueue.Handlers{"bench": done}, workqueue.PoolConfig{Workers: 8, Drain: true})
	testutil.Ok(b, err)
	redistest.Measured(b, rdb, func() {
		testutil.Ok(b, pool.Run(b.Context()))
	})
	if s, err := q.Stats(b.Context()); err != nil || s.Done != int64(b.N) {
		b.Fatalf("got %+v, error %v, want %d items done", s, err, b.N)
	}
}

// Redis shares channels between its databases: a pool does not count as alive because one of its name in another database does.
func TestDatabasesShareNoChannels(t *testing.T) {
	t.Parallel()
	channels := map[string]bool{}
	for db := range 2 {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DB: db})
		channels[workqueue.New(rdb, "q", workqueue.Config{}).AliveChannel("pool")] = true
		testutil.Ok(t, rdb.Close())
	}
	if len(channels) != 2 {
		t.Errorf("got %v, want a channel for each database", channels)
	}
}
