package proxies

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/proxies/proxytest"
)

// Three consecutive failures remove a proxy. A success resets the count, and a timeout counts half.
func TestConsecutiveFailuresRemoveProxy(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		pool := newPool(t, rdb, nil)
		mustPublish(t, pool, result(1, nil))
		list := testutil.Must(pool.List(t.Context(), Filter{}))(t)
		id := list[0].ID
		for i, step := range []struct {
			outcome Outcome
			alive   bool
		}{{Failed, true}, {Failed, true}, {Succeeded, true}, {Failed, true}, {TimedOut, true}, {TimedOut, true}, {Banned, true}, {Failed, true}, {TimedOut, true}, {TimedOut, true}, {Failed, false}} {
			testutil.Ok(t, pool.leases.write(t.Context(), "s", []report{{id: id, outcome: step.outcome, begun: time.Now().Add(time.Hour), cooldown: 0}}))
			if n, err := pool.Count(t.Context()); err != nil || (n == 1) != step.alive {
				t.Fatalf("step %d: got %d in the pool, %v; want alive %t", i, n, err, step.alive)
			}
		}
		// A report on a removed proxy changes nothing.
		testutil.Ok(t, pool.leases.write(t.Context(), "s", []report{{id: id, outcome: Succeeded, begun: time.Now()}}))
		if n, err := pool.Count(t.Context()); err != nil || n != 0 {
			t.Fatalf("got %d %v: the proxy returned without a check", n, err)
		}
	})
}

// Many requests that are in flight when a proxy dies count as one failure.
func TestRequestsInFlightFailOnce(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), nil)
	mustPublish(t, pool, result(1, nil))
	var leases []*Lease
	for range 10 {
		leases = append(leases, pickOne(t, pool, PickOptions{Site: "a"}))
	}
	for _, l := range leases {
		l.Report(Failed, 0)
		l.Report(Failed, 0) // a second report changes nothing
	}
	flush(t, pool)
	list, err := pool.List(t.Context(), Filter{})
	if err != nil || len(list) != 1 || list[0].Health.Fails != 1 || list[0].Health.Requests != 11 {
		t.Fatalf("got %v %+v %v; want one failure of ten requests", list, list[0].Health, err)
	}
}

// Picks and reports are safe while proxies are added and removed concurrently.
func TestPoolUnderLoad(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), func(c *PoolConfig) { c.SyncEvery, c.FlushEvery = 2*time.Millisecond, time.Millisecond })
	for port := range uint16(50) {
		mustPublish(t, pool, result(port+1, nil))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writer, group sync.WaitGroup
	writer.Go(func() { pool.Run(ctx) })
	for g := range 10 {
		group.Go(func() {
			for i := range 200 {
				lease, err := pool.Pick(t.Context(), PickOptions{Site: fmt.Sprint("site", i%3)})
				if err != nil {
					if !errors.Is(err, ErrNoProxy) {
						t.Error(err)
					}
					continue
				}
				lease.Report([]Outcome{Succeeded, Succeeded, Succeeded, Failed, Banned, TimedOut}[(i+g)%6], time.Millisecond)
				if i%50 == 0 {
					if _, err := publish(t.Context(), pool, result(uint16(g+1), nil)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	cancel()
	writer.Wait()
	pool.view.mu.Lock()
	defer pool.view.mu.Unlock()
	for i, m := range pool.view.order {
		if m.at != i || pool.view.members[m.ID] != m || m.inFlight != 0 {
			t.Fatalf("member %d: %+v", i, m)
		}
	}
}

// Run writes reports continuously and the last ones before it returns.
func TestRunWritesReports(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	soon, late := newPool(t, rdb, func(c *PoolConfig) { c.FlushEvery = time.Millisecond }), newPool(t, rdb, nil)
	mustPublish(t, soon, result(1, nil))
	requests := func() int {
		return siteHealth(t, soon, "a")[proxyOf(result(1, nil)).ID].Requests
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { soon.Run(ctx) })
	running.Go(func() { late.Run(ctx) })
	for i := range 2 {
		pickOne(t, soon, PickOptions{Site: "a"}).Report(Succeeded, time.Millisecond)
		testutil.Eventually(t, "the report is written", func() bool { return requests() == i+1 })
	}
	pickOne(t, late, PickOptions{Site: "a"}).Report(Succeeded, time.Millisecond)
	if got := requests(); got != 2 {
		t.Errorf("got %d requests before the end of Run, want 2", got)
	}
	cancel()
	running.Wait()
	if got := requests(); got != 3 {
		t.Errorf("got %d requests after the end of Run, want 3", got)
	}
}

// While Redis is down, a pool picks from its last view. Its reports are written when Redis is available again.
func TestRedisDown(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1, DialTimeout: time.Second})
	t.Cleanup(func() { rdb.Close() })
	pool := newPool(t, rdb, nil)
	mustPublish(t, pool, result(1, nil))
	pickOne(t, pool, PickOptions{Site: "a"}).Release()
	server.Stop()
	lease := pickOne(t, pool, PickOptions{Site: "a"})
	lease.Report(Banned, 0)
	if err := pool.Flush(t.Context()); err == nil {
		t.Fatal("flushed to a stopped Redis")
	}
	server.Start()
	mustPublish(t, pool, result(1, nil))
	flush(t, pool)
	if got := siteHealth(t, pool, "a"); len(got) != 1 {
		t.Fatalf("got the health of %d proxies at the site, want 1: the report was lost", len(got))
	}
}

// The cooldown at a site doubles with each consecutive ban, by status or by page. A successful page resets it.
func TestCooldownDoublesWithBans(t *testing.T) {
	t.Parallel()
	b := newBench(t, hello, nil)
	id := b.add(t, proxytest.Options{Kind: proxytest.Elite})[0]
	report := func(outcomes ...Outcome) Health {
		t.Helper()
		begun := time.Now()
		for _, o := range outcomes {
			testutil.Ok(t, b.pool.leases.write(t.Context(), "shop", []report{{id: id, outcome: o, begun: begun, cooldown: -1}}))
		}
		done := time.Now().UnixMilli()
		testutil.Eventually(t, "the next millisecond", func() bool { return time.Now().UnixMilli() > done })
		_, there, _ := b.health(t, id, "shop")
		return there
	}
	for i, step := range []struct {
		outcomes []Outcome
		fails    float64
	}{
		{[]Outcome{Succeeded}, 0},
		{[]Outcome{Succeeded, bannedLate}, 1},
		{[]Outcome{Banned}, 2},
		{[]Outcome{Succeeded, bannedLate}, 3},
		{[]Outcome{Succeeded, bannedLate}, 4},
		{[]Outcome{Succeeded}, 0},
		{[]Outcome{Succeeded}, 0},
		{[]Outcome{Succeeded, bannedLate}, 1},
		{[]Outcome{Banned}, 2},
		{[]Outcome{Succeeded, bannedLate, bannedLate}, 3}, // reported twice for one request
	} {
		h := report(step.outcomes...)
		if h.Fails != step.fails {
			t.Errorf("step %d: got %v consecutive bans, want %v", i, h.Fails, step.fails)
		}
		if most := 30 * time.Second << int(h.Fails); h.Fails > 0 && time.Until(h.Until) > most {
			t.Errorf("step %d: got a cooldown of %s, want at most %s", i, time.Until(h.Until), most)
		}
	}
}

// The response to a request that was in flight when the proxy was banned does not end the cooldown.
func TestLateResponseDoesNotEndCooldown(t *testing.T) {
	t.Parallel()
	for _, refused := range [][]Outcome{{Banned}, {Succeeded, bannedLate}, {Paused}} {
		b := newBench(t, hello, nil)
		id := b.add(t, proxytest.Options{Kind: proxytest.Elite})[0]
		begun := time.Now().Add(-time.Second)
		rest := time.Duration(-1)
		if refused[0] == Paused {
			rest = time.Hour
		}
		for _, o := range append(refused, Succeeded) {
			testutil.Ok(t, b.pool.leases.write(t.Context(), "shop", []report{{id: id, outcome: o, begun: begun, cooldown: rest}}))
		}
		all, there, _ := b.health(t, id, "shop")
		if there.Fails != 1 && rest < 0 || rest > 0 && time.Until(there.Until) < rest/2 {
			t.Errorf("%v: the cooldown has ended: %+v", refused, there)
		}
		if all.Fails != 0 {
			t.Errorf("got %+v elsewhere", all)
		}
	}
}

// After a fault at any call, repeating the failed operation succeeds and leaves the pool consistent.
func TestPoolSurvivesAFaultAtAnyCall(t *testing.T) {
	t.Parallel()
	redistest.EachFault(t, map[redistest.Kind]int{
		redistest.Refused: 4, redistest.ReplyLost: 4, redistest.Repeated: 4,
	}, poolWithFault)
}

func poolWithFault(t *testing.T, f *redistest.Fault) {
	ctx, url := t.Context(), redistest.URL(t)
	pool := newPool(t, f.Client(t, url), nil)
	f.Arm()
	again := func(what string, call func(ctx context.Context) error) {
		t.Helper()
		var err error
		testutil.Eventually(t, what, func() bool {
			err = call(ctx)
			return !errors.Is(err, redistest.ErrFault)
		})
		testutil.Ok(t, err)
	}
	gone, kept := proxyOf(result(3, nil)).ID, proxyOf(result(2, nil)).ID
	again("publish", func(ctx context.Context) error {
		_, err := publish(ctx, pool, result(1, nil), result(2, nil), result(3, nil))
		return err
	})
	again("remove", func(ctx context.Context) error { _, err := pool.Remove(ctx, gone); return err })
	again("ban", func(ctx context.Context) error { return pool.Ban(ctx, "shop", time.Hour, kept) })
	again("use", func(ctx context.Context) error {
		l, err := pool.Pick(ctx, PickOptions{Site: "shop"})
		if err == nil {
			l.Report(Succeeded, time.Millisecond)
		}
		return err
	})
	again("store the reports", pool.Flush)
	f.Release()

	other := newPool(t, redistest.NewFault(redistest.Refused, 0).Client(t, url), nil)
	all, err := other.List(ctx, Everything)
	if err != nil || len(all) != 2 || all[0].ID == gone || all[1].ID == gone {
		t.Fatalf("got %v, %v, want the two proxies that stay", all, err)
	}
	for range 5 {
		l := testutil.Must(other.Pick(ctx, PickOptions{Site: "shop"}))(t)
		if l.Proxy.ID == kept {
			t.Error("picked the banned proxy")
		}
		l.Report(Succeeded, time.Millisecond)
	}
}
