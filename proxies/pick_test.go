package proxies

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/proxies/probe"
)

// resting returns the duration in the error for a temporary shortage.
func resting(err error) time.Duration {
	if r, ok := errors.AsType[interface {
		error
		Resting() time.Duration
	}](err); ok {
		return r.Resting()
	}
	return 0
}

// After its cooldown a proxy receives a single trial request, across all processes.
func TestOneTrialAfterCooldown(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	one, two := newPool(t, rdb, nil), newPool(t, rdb, nil)
	mustPublish(t, one, result(1, nil))
	lease := pickOne(t, one, PickOptions{Site: "a"})
	lease.Pause(Failed, 0) // without a cooldown
	flush(t, one)
	one.view.expire()
	trial := pickOne(t, one, PickOptions{Site: "a"})
	for _, pool := range []*Pool{one, two} {
		if l, err := pool.Pick(t.Context(), PickOptions{Site: "a"}); !errors.Is(err, ErrNoProxy) {
			t.Fatalf("got %v %v while the trial runs, want ErrNoProxy", l, err)
		}
	}
	trial.Report(Succeeded, time.Millisecond)
	flush(t, one)
	for _, pool := range []*Pool{one, one, two, two} {
		defer pickOne(t, pool, PickOptions{Site: "a"}).Release()
	}
}

// A trial succeeds after an earlier failure, even if that has a later time from another clock.
func TestTrialAfterFailureOfAnotherClock(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	one := newPool(t, rdb, nil)
	mustPublish(t, one, result(1, nil))
	lease := pickOne(t, one, PickOptions{Site: "a"})
	lease.Pause(Failed, 0)
	flush(t, one)
	for _, site := range []string{"", "a"} {
		key := healthKey(one.cfg.Name, site)
		health := strings.Fields(rdb.HGet(t.Context(), key, lease.Proxy.ID).Val())
		health[4] = strconv.FormatInt(time.Now().Add(time.Minute).UnixMilli(), 10) // time of the last failure
		testutil.Ok(t, rdb.HSet(t.Context(), key, lease.Proxy.ID, strings.Join(health, " ")).Err())
	}
	two := newPool(t, rdb, nil)
	pickOne(t, two, PickOptions{Site: "a"}).Report(Succeeded, time.Millisecond)
	flush(t, two)
	two.view.expire()
	for range 2 {
		defer pickOne(t, two, PickOptions{Site: "a"}).Release()
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), nil)
	mustPublish(t, pool,
		result(1, func(r *probe.Result) { r.Candidate.Country = "BG" }),
		result(2, func(r *probe.Result) { r.Protocol = "socks5" }),
		result(3, func(r *probe.Result) { r.Anonymity = probe.Anonymous; r.Can.HTTPS = false }),
		result(4, func(r *probe.Result) { r.Anonymity = probe.Transparent }),
		result(5000, nil))
	for name, test := range map[string]struct {
		filter Filter
		want   []uint16
	}{
		"default":  {Filter{}, []uint16{1, 2, 3, 5000}},
		"any":      {Filter{Anonymity: probe.Transparent}, []uint16{1, 2, 3, 4, 5000}},
		"elite":    {Filter{Anonymity: probe.Elite}, []uint16{1, 2, 5000}},
		"country":  {Filter{Countries: []string{"BG", "RO"}}, []uint16{1}},
		"protocol": {Filter{Protocols: []string{"socks5", "socks4"}}, []uint16{2}},
		"https":    {Filter{HTTPS: true}, []uint16{1, 2, 5000}},
		"latency":  {Filter{MaxLatency: time.Second}, []uint16{1, 2, 3}},
		"elit":     {Filter{Anonymity: "elit"}, nil}, // no grade
		"Elite":    {Filter{Anonymity: "Elite"}, nil},
	} {
		list, err := pool.List(t.Context(), test.filter)
		var got []uint16
		for _, m := range list {
			got = append(got, m.Port)
		}
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v %v want %v", name, got, err, test.want)
		}
		for range 4 * len(test.want) {
			lease := pickOne(t, pool, PickOptions{Filter: test.filter})
			if !slices.Contains(test.want, lease.Proxy.Port) {
				t.Errorf("%s: picked %v", name, lease.Proxy)
			}
			lease.Release()
		}
	}
}

func TestPicks(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), func(c *PoolConfig) { c.SyncEvery = time.Hour })
	for port := range uint16(20) {
		mustPublish(t, pool, result(port+1, nil))
	}
	count := func(o PickOptions, n int) map[uint16]int {
		seen := map[uint16]int{}
		for range n {
			lease := pickOne(t, pool, o)
			seen[lease.Proxy.Port]++
			lease.Release()
		}
		return seen
	}
	if got := count(PickOptions{Sticky: "me"}, 20); len(got) != 1 {
		t.Errorf("sticky: got %v, want one", got)
	}
	if got := count(PickOptions{Sticky: "t", StickyFor: time.Nanosecond}, 100); len(got) < 2 {
		t.Errorf("sticky for a moment: got %v, want several", got)
	}
	if got := count(PickOptions{Sticky: "t2", StickyFor: time.Hour}, 10); len(got) != 1 {
		t.Errorf("sticky for an hour: got %v, want one", got)
	}
	// A failing proxy has a low weight, without reports from other processes.
	var bad string
	list := testutil.Must(pool.List(t.Context(), Filter{}))(t)
	bad = list[3].ID
	for i := range 10 {
		outcome := Failed
		if i%2 == 1 {
			outcome = Succeeded
		}
		testutil.Ok(t, pool.leases.write(t.Context(), "", []report{{id: bad, outcome: outcome, begun: time.Now().Add(time.Hour)}}))
	}
	pool.view.expire()
	weighted := count(PickOptions{}, 2000)
	if mean := 2000 / 20; weighted[list[3].Port] > mean/2 {
		t.Errorf("weighted: the worst of 20 was picked %d times of 2000", weighted[list[3].Port])
	}
}

func TestInFlightCapAndWait(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), func(c *PoolConfig) { c.MaxInFlight = 2 })
	mustPublish(t, pool, result(1, nil))
	first := pickOne(t, pool, PickOptions{})
	defer pickOne(t, pool, PickOptions{}).Release()
	if _, err := pool.Pick(t.Context(), PickOptions{}); !errors.Is(err, ErrNoProxy) || !strings.Contains(err.Error(), "1 are busy") {
		t.Fatalf("got %v, want ErrNoProxy: 1 are busy", err)
	}
	go first.Release()
	pickOne(t, pool, PickOptions{Wait: 10 * time.Second}).Release()

	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // several polls
	defer cancel()
	defer pickOne(t, pool, PickOptions{}).Release()
	_, err := pool.Pick(ctx, PickOptions{Wait: time.Hour})
	if !errors.Is(err, ErrNoProxy) || !errors.Is(err, context.DeadlineExceeded) || resting(err) <= 0 {
		t.Errorf("got %v, want ErrNoProxy, the deadline and a Resting duration", err)
	}
}
