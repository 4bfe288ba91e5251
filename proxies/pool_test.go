package proxies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/dnstest"
	"muster/internal/testutil"
	"muster/proxies/probe"
	"muster/proxies/source"
	"muster/tasks/redistest"
)

// TestMain makes names below .test stand for loopback.
func TestMain(m *testing.M) {
	net.DefaultResolver = dnstest.Resolver(dnstest.Loopback)
	redistest.Main(m)
}

// result is a good one for port, changed by edit.
func result(port uint16, edit func(*probe.Result)) probe.Result {
	r := probe.Result{
		Candidate: source.Candidate{Protocol: "http", Host: "8.8.8.8", Port: port, Password: "secret", Username: "u", Sources: []string{"list"}},
		Protocol:  "http", Alive: true, Exit: netip.MustParseAddr("9.9.9.9"), Anonymity: probe.Elite,
		Can: probe.Capabilities{Forward: true, Connect: true, HTTPS: true}, Latency: probe.Latency{Connect: 10, FirstByte: float64(port)},
		CheckedAt: time.Now().UTC(),
	}
	if edit != nil {
		edit(&r)
	}
	return r
}

func newPool(t *testing.T, rdb redis.UniversalClient, edit func(*PoolConfig)) *Pool {
	t.Helper()
	cfg := PoolConfig{Redis: rdb, SyncEvery: time.Nanosecond, FlushEvery: time.Hour}
	if edit != nil {
		edit(&cfg)
	}
	pool := NewPool(cfg)
	t.Cleanup(func() {
		if err := pool.Close(); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return pool
}

func mustPublish(t *testing.T, pool *Pool, results ...probe.Result) {
	t.Helper()
	if _, err := pool.Publish(t.Context(), results...); err != nil {
		t.Fatal(err)
	}
}

func pickOne(t *testing.T, pool *Pool, o PickOptions) *Lease {
	t.Helper()
	lease, err := pool.Pick(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func flush(t *testing.T, pool *Pool) {
	t.Helper()
	if err := pool.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestPublishAndCount(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		pool := newPool(t, rdb, nil)
		added, err := pool.Publish(t.Context(),
			result(1, nil), result(2, nil), result(2, nil), // one of them twice
			result(3, func(r *probe.Result) { r.Anonymity = probe.Transparent }),
			result(4, func(r *probe.Result) { r.Anonymity = "" }),
			result(5, func(r *probe.Result) { r.Alive = false; r.Reason = "timeout" }),
			result(6, func(r *probe.Result) { r.Reason = probe.OwnNetwork }))
		if err != nil || added != 4 {
			t.Fatalf("got %d added, %v; want 4", added, err)
		}
		count, err1 := pool.Count(t.Context())
		usable, err2 := pool.Usable(t.Context())
		if count != 4 || usable != 3 || err1 != nil || err2 != nil {
			t.Fatalf("got %d, %d usable, %v %v; want 4 and 3", count, usable, err1, err2)
		}

		// The new record wins, and what failed its new check goes.
		mustPublish(t, pool, result(1, func(r *probe.Result) { r.Anonymity = probe.Anonymous }),
			result(2, func(r *probe.Result) { r.Alive = false; r.Reason = "refused" }))
		list, err := pool.List(t.Context(), Filter{})
		if err != nil || len(list) != 2 || list[0].Port != 1 || list[0].Anonymity != probe.Anonymous || list[1].Port != 4 {
			t.Fatalf("got %v %v", list, err)
		}
		if archived, err := pool.Archived(t.Context()); err != nil || len(archived) != 1 || archived[0].Port != 2 {
			t.Fatalf("got archived %v %v", archived, err)
		}
		// And it may come back, by a new check alone.
		mustPublish(t, pool, result(2, nil))
		if archived, err := pool.Archived(t.Context()); err != nil || len(archived) != 0 {
			t.Fatalf("got archived %v %v", archived, err)
		}
	})
}

// All of a pool's keys are on one slot, so that its scripts run on a cluster.
func TestPoolOnACluster(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.Cluster(t), nil)
	mustPublish(t, pool, result(1, nil), result(2, nil))
	for _, outcome := range []Outcome{Succeeded, Banned, Failed} {
		pickOne(t, pool, PickOptions{Site: "shop.example:80"}).Report(outcome, time.Millisecond)
	}
	flush(t, pool)
	if health, err := pool.SiteHealth(t.Context(), "shop.example:80"); err != nil || len(health) == 0 {
		t.Errorf("got %v %v", health, err)
	}
	list, err := pool.List(t.Context(), Filter{})
	if err != nil || len(list) != 2 {
		t.Fatalf("got %v %v", list, err)
	}
	if n, err := pool.Remove(t.Context(), list[0].ID, list[1].ID, "none"); err != nil || n != 2 {
		t.Errorf("got %d %v", n, err)
	}
}

// resting is how long an error says that proxies rest.
func resting(err error) time.Duration {
	if r, ok := errors.AsType[interface {
		error
		Resting() time.Duration
	}](err); ok {
		return r.Resting()
	}
	return 0
}

// Who waits for a busy proxy until its time is over learns that it is busy.
func TestWaitForABusyProxyEnds(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), func(c *PoolConfig) { c.MaxInFlight = 1 })
	mustPublish(t, pool, result(1, nil))
	pickOne(t, pool, PickOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // it looks a few times
	defer cancel()
	_, err := pool.Pick(ctx, PickOptions{Wait: time.Hour})
	if !errors.Is(err, ErrNoProxy) || !errors.Is(err, context.DeadlineExceeded) || resting(err) <= 0 {
		t.Errorf("got %v", err)
	}
}

// Another process sees what is published, reported and removed, and its health is the same.
func TestViewsOfOnePoolAgree(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		one, two := newPool(t, rdb, nil), newPool(t, rdb, nil)
		mustPublish(t, one, result(1, nil))
		lease := pickOne(t, two, PickOptions{Site: "a"})
		lease.Report(Banned, 0)
		flush(t, two)
		if _, err := one.Pick(t.Context(), PickOptions{Site: "a"}); !errors.Is(err, ErrNoProxy) || !strings.Contains(err.Error(), "1 cool down") {
			t.Errorf("got %v: the ban on a is not seen elsewhere", err)
		} else if d := resting(err); d <= 0 || d > time.Hour {
			t.Errorf("the proxy rests for %s", d)
		}
		pickOne(t, one, PickOptions{Site: "b"}).Report(Succeeded, 20*time.Millisecond) // a ban on one site is none on another
		flush(t, one)
		if list, err := two.List(t.Context(), Filter{}); err != nil || list[0].Health.Requests != 3 || list[0].Health.Fails != 0 {
			t.Errorf("got %+v %v", list, err)
		}
		if _, err := one.Remove(t.Context(), lease.Proxy.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := two.Pick(t.Context(), PickOptions{Site: "b"}); !errors.Is(err, ErrNoProxy) || !strings.Contains(err.Error(), "the pool is empty") {
			t.Errorf("got %v after removal", err)
		} else if d := resting(err); d != 0 {
			t.Errorf("an empty pool is said to rest for %s", d)
		}
	})
}

// Three failures in a row are the end of a proxy; a success in between resets, and a timeout is half a failure.
func TestConsecutiveFailuresEndAProxy(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		pool := newPool(t, rdb, nil)
		mustPublish(t, pool, result(1, nil))
		list, err := pool.List(t.Context(), Filter{})
		if err != nil {
			t.Fatal(err)
		}
		id := list[0].ID
		for i, step := range []struct {
			outcome Outcome
			alive   bool
		}{{Failed, true}, {Failed, true}, {Succeeded, true}, {Failed, true}, {TimedOut, true}, {TimedOut, true}, {Banned, true}, {Failed, true}, {TimedOut, true}, {TimedOut, true}, {Failed, false}} {
			if err := pool.leases.write(t.Context(), "s", []report{{id: id, outcome: step.outcome, begun: time.Now().Add(time.Hour), cooldown: 0}}); err != nil {
				t.Fatal(err)
			}
			if n, err := pool.Count(t.Context()); err != nil || (n == 1) != step.alive {
				t.Fatalf("step %d: got %d in the pool, %v; want alive %t", i, n, err, step.alive)
			}
		}
		// A report on one that has left changes nothing.
		if err := pool.leases.write(t.Context(), "s", []report{{id: id, outcome: Succeeded, begun: time.Now()}}); err != nil {
			t.Fatal(err)
		}
		if n, err := pool.Count(t.Context()); err != nil || n != 0 {
			t.Fatalf("got %d %v: it came back unchecked", n, err)
		}
	})
}

// Many requests that are under way when a proxy dies are one failure, not many.
func TestRequestsUnderWayFailOnce(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), nil)
	mustPublish(t, pool, result(1, nil))
	var leases []*Lease
	for range 10 {
		leases = append(leases, pickOne(t, pool, PickOptions{Site: "a"}))
	}
	for _, l := range leases {
		l.Report(Failed, 0)
		l.Report(Failed, 0) // twice changes nothing
	}
	flush(t, pool)
	list, err := pool.List(t.Context(), Filter{})
	if err != nil || len(list) != 1 || list[0].Health.Fails != 1 || list[0].Health.Requests != 11 {
		t.Fatalf("got %v %+v %v; want one failure of ten requests", list, list[0].Health, err)
	}
}

// After its cooldown a proxy gets one request, whoever asks, until that has ended.
func TestOneTrialOnReturn(t *testing.T) {
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
			t.Fatalf("got %v %v while the trial runs", l, err)
		}
	}
	trial.Report(Succeeded, time.Millisecond)
	flush(t, one)
	for _, pool := range []*Pool{one, one, two, two} {
		defer pickOne(t, pool, PickOptions{Site: "a"}).Release()
	}
}

// A trial outlives the failure that it knows of, also one that was seen by a clock ahead of ours.
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
		health[4] = strconv.FormatInt(time.Now().Add(time.Minute).UnixMilli(), 10) // when it failed last
		if err := rdb.HSet(t.Context(), key, lease.Proxy.ID, strings.Join(health, " ")).Err(); err != nil {
			t.Fatal(err)
		}
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
	} {
		list, err := pool.List(t.Context(), test.filter)
		var got []uint16
		for _, m := range list {
			got = append(got, m.Port)
		}
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v %v want %v", name, got, err, test.want)
		}
		for range 20 {
			lease := pickOne(t, pool, PickOptions{Filter: test.filter})
			if !slices.Contains(test.want, lease.Proxy.Port) {
				t.Errorf("%s: picked %v", name, lease.Proxy)
			}
			lease.Release()
		}
	}
}

func TestStrategies(t *testing.T) {
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
	if got := count(PickOptions{Strategy: RoundRobin}, 60); len(got) != 20 || got[7] != 3 {
		t.Errorf("round robin: got %v", got)
	}
	if got := count(PickOptions{Strategy: Fastest}, 10); got[1] != 10 {
		t.Errorf("fastest: got %v", got)
	}
	if got := count(PickOptions{Strategy: Random}, 400); len(got) != 20 {
		t.Errorf("random: got %v", got)
	}
	if got := count(PickOptions{Sticky: "me"}, 20); len(got) != 1 {
		t.Errorf("sticky: got %v", got)
	}
	if got := count(PickOptions{Sticky: "n", StickyUses: 2, Strategy: RoundRobin}, 10); len(got) != 5 {
		t.Errorf("sticky by uses: got %v", got)
	}
	if got := count(PickOptions{Sticky: "t", StickyFor: time.Nanosecond, Strategy: RoundRobin}, 10); len(got) != 10 {
		t.Errorf("sticky for a moment: got %v", got)
	}
	if got := count(PickOptions{Sticky: "t2", StickyFor: time.Hour, Strategy: RoundRobin}, 10); len(got) != 1 {
		t.Errorf("sticky for an hour: got %v", got)
	}
	got := count(PickOptions{Strategy: LeastUsed}, 400)
	if len(got) < 17 { // the sticky ones have been used a lot
		t.Errorf("least used: got %v", got)
	}
	// One that fails is taken seldom by weight; its health need not be known elsewhere for that.
	var bad string
	list, err := pool.List(t.Context(), Filter{})
	if err != nil {
		t.Fatal(err)
	}
	bad = list[3].ID
	for i := range 10 {
		outcome := Failed
		if i%2 == 1 {
			outcome = Succeeded
		}
		if err := pool.leases.write(t.Context(), "", []report{{id: bad, outcome: outcome, begun: time.Now().Add(time.Hour)}}); err != nil {
			t.Fatal(err)
		}
	}
	pool.view.expire()
	weighted := count(PickOptions{}, 2000)
	if mean := 2000 / 20; weighted[list[3].Port] > mean/2 {
		t.Errorf("weighted: the worst of 20 was picked %d times of 2000", weighted[list[3].Port])
	}
}

// The cap on requests in flight holds for all processes together; one that is gone leaves its share to the others.
func TestProcessesShareTheCap(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		var pools []*Pool
		for range 3 {
			pools = append(pools, newPool(t, rdb, func(c *PoolConfig) { c.MaxInFlight = 6 }))
		}
		mustPublish(t, pools[0], result(1, nil))
		var leases []*Lease
		take := func(p *Pool, want int) {
			t.Helper()
			n := 0
			for ; ; n++ {
				lease, err := p.Pick(t.Context(), PickOptions{Site: "shop"})
				if err != nil {
					break
				}
				leases = append(leases, lease)
			}
			if n != want {
				t.Errorf("got %d, want %d", n, want)
			}
		}
		for _, p := range pools {
			pickOne(t, p, PickOptions{Site: "shop"}).Release() // now all are known
		}
		for _, p := range pools {
			take(p, 2)
		}
		for _, lease := range leases {
			lease.Release()
		}
		if err := pools[2].Close(); err != nil {
			t.Fatal(err)
		}
		take(pools[0], 3)
		take(pools[1], 3)
	})
}

func TestInFlightCapAndWait(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), func(c *PoolConfig) { c.MaxInFlight = 2 })
	mustPublish(t, pool, result(1, nil))
	first := pickOne(t, pool, PickOptions{})
	defer pickOne(t, pool, PickOptions{}).Release()
	if _, err := pool.Pick(t.Context(), PickOptions{}); !errors.Is(err, ErrNoProxy) || !strings.Contains(err.Error(), "1 are busy") {
		t.Fatalf("got %v", err)
	}
	go first.Release()
	pickOne(t, pool, PickOptions{Wait: 10 * time.Second}).Release()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	defer pickOne(t, pool, PickOptions{}).Release()
	if _, err := pool.Pick(ctx, PickOptions{Wait: time.Hour}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

// Readers of the exported file see an old list or a new one, never half of one; it is sorted and holds no transparent proxy.
func TestExport(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), nil)
	mustPublish(t, pool, result(3, nil), result(1, nil), result(2, func(r *probe.Result) { r.Protocol = "socks4a" }),
		result(9, func(r *probe.Result) { r.Latency = probe.Latency{} }), result(4, func(r *probe.Result) { r.Anonymity = probe.Transparent }))
	dir := filepath.Join(t.TempDir(), "made", "here")
	if n, err := pool.Export(t.Context(), dir); err != nil || n != 4 {
		t.Fatalf("got %d %v", n, err)
	}
	exported, err := ReadExport(filepath.Join(dir, ExportJSON))
	var ports []uint16
	for _, p := range exported {
		ports = append(ports, p.Port)
	}
	if err != nil || !slices.Equal(ports, []uint16{1, 2, 3, 9}) {
		t.Fatalf("got %v %v, want 1 2 3 and 9, which has no latency, last", ports, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, ExportText))
	if err != nil || !strings.HasPrefix(string(text), "http://u:secret@8.8.8.8:1\nsocks4a://u:secret@8.8.8.8:2\n") {
		t.Errorf("got %q %v", text, err)
	}
	if socks, err := os.ReadFile(filepath.Join(dir, "socks4.txt")); err != nil || string(socks) != "socks4a://u:secret@8.8.8.8:2\n" {
		t.Errorf("got %q %v", socks, err)
	}
	if info, err := os.Stat(filepath.Join(dir, ExportJSON)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v %v: it holds passwords", info.Mode(), err)
	}

	stop := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if seen, err := ReadExport(filepath.Join(dir, ExportJSON)); err != nil || len(seen) != 4 {
				t.Errorf("a reader saw %d proxies, %v", len(seen), err)
				return
			}
		}
	})
	for range 50 {
		if _, err := pool.Export(t.Context(), dir); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	readers.Wait()
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != 0 {
		t.Errorf("left behind %v", left)
	}
}

// Passwords are in the exported files and nowhere else that is printed.
func TestPasswordIsNotPrinted(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), nil)
	mustPublish(t, pool, result(1, nil))
	list, err := pool.List(t.Context(), Filter{})
	if err != nil || len(list) != 1 || list[0].Password != "secret" {
		t.Fatalf("got %v %v", list, err)
	}
	r := result(1, nil)
	for _, v := range []any{list, list[0], r} {
		text, err := json.Marshal(v)
		if err != nil || strings.Contains(string(text), "secret") || !strings.Contains(string(text), `"username":"u"`) {
			t.Errorf("got %s %v", text, err)
		}
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(format, list[0].Proxy) + fmt.Sprintf(format, r.Candidate); strings.Contains(got, "secret") {
			t.Errorf("%s: got %s", format, got)
		}
	}
}

// A proxy of an exported file is usable unless it is transparent, in whichever spelling; one without a grade is.
func TestReadExport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, path := range []string{filepath.Join(dir, "missing"), write("corrupt", `[{"host":`), write("empty", "")} {
		if got, err := ReadExport(path); err == nil || len(got) != 0 {
			t.Errorf("%s: got %v, %v, want an error", filepath.Base(path), got, err)
		}
	}
	for anonymity, want := range map[string]bool{`"Transparent"`: false, `"1"`: false, `"transparent"`: false, `"elite"`: true, `null`: true} {
		got, err := ReadExport(write("one", `[{"protocol":"http","host":"8.8.8.8","port":1,"anonymity":`+anonymity+`}]`))
		if err != nil || len(got) != 1 || got[0].Usable() != want {
			t.Errorf("anonymity %s: got %v, %v, want one proxy that is usable: %v", anonymity, got, err, want)
		}
	}
}

// A process that has looked away for longer than changes are remembered reads the pool anew.
func TestViewFarBehind(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	writer, reader := newPool(t, rdb, nil), newPool(t, rdb, nil)
	mustPublish(t, writer, result(1, nil), result(2, nil))
	pickOne(t, reader, PickOptions{Site: "shop"}).Release()
	gone := proxyOf(result(1, nil)).ID
	if _, err := writer.Remove(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	lease := pickOne(t, writer, PickOptions{Site: "shop"})
	lease.Report(Banned, 0)
	flush(t, writer)
	pipe := rdb.Pipeline() // what a busy fleet writes meanwhile
	for i := range 2 * changesKept {
		for _, scope := range []string{recordsScope, "", "shop"} {
			pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: changesKey("{muster:proxies}", scope), MaxLen: changesKept, ID: fmt.Sprint(1000+i, "-0"), Values: []string{"ids", lease.Proxy.ID}})
		}
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list, err := reader.List(t.Context(), Everything); err != nil || len(list) != 1 || list[0].ID == gone {
		t.Errorf("got %v %v, want one", list, err)
	}
	if lease, err := reader.Pick(t.Context(), PickOptions{Site: "shop"}); !errors.Is(err, ErrNoProxy) {
		t.Errorf("the shop gets %+v %v", lease, err)
	}
}

// Ten goroutines pick and report while proxies come and go.
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
					if _, err := pool.Publish(t.Context(), result(uint16(g+1), nil)); err != nil {
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

// Run writes reports soon after they are made, and the last of them when it ends.
func TestRunWritesReports(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	soon, late := newPool(t, rdb, func(c *PoolConfig) { c.FlushEvery = time.Millisecond }), newPool(t, rdb, nil)
	mustPublish(t, soon, result(1, nil))
	requests := func() int {
		health, err := soon.SiteHealth(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		return health[proxyOf(result(1, nil)).ID].Requests
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

// A pool goes on with what it knows while Redis is away, and writes its reports when it is back.
func TestRedisAway(t *testing.T) {
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
	if health, err := pool.SiteHealth(t.Context(), "a"); err != nil || len(health) != 1 {
		t.Fatalf("got %v %v: the report was lost", health, err)
	}
}

func itoa(n int) string { return fmt.Sprint(n) }
