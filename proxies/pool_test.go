package proxies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/dnstest"
	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/proxies/probe"
	"muster/proxies/source"
	"muster/tasks/metrics"
)

// TestMain resolves names below .test to loopback.
func TestMain(m *testing.M) {
	net.DefaultResolver = dnstest.Resolver(dnstest.Loopback)
	redistest.Main(m)
}

// result returns a successful result for port, modified by edit.
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
	pool.store.random = func() float64 { return 0.9 } // no cooldown ends during a test
	t.Cleanup(func() {
		if err := pool.Close(); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return pool
}

func mustPublish(t *testing.T, pool *Pool, results ...probe.Result) {
	t.Helper()
	testutil.Must(publish(t.Context(), pool, results...))(t)
}

// publish adds the accepted results to the pool and removes the others. It returns the number of new members.
func publish(ctx context.Context, pool *Pool, results ...probe.Result) (added int, err error) {
	var members []Proxy
	var failed []string
	for _, r := range results {
		if r.Accepted() {
			members = append(members, proxyOf(r))
		} else {
			failed = append(failed, candidateID(r.Candidate))
		}
	}
	if added, err = pool.put(ctx, members); err != nil {
		return added, err
	}
	_, err = pool.Remove(ctx, failed...)
	return added, err
}

// siteHealth returns the health of proxies at a site by ID, including removed ones.
func siteHealth(t *testing.T, pool *Pool, site string) map[string]Health {
	t.Helper()
	texts := testutil.Must(pool.store.rdb.HGetAll(t.Context(), healthKey(pool.store.name, site)).Result())(t)
	out := map[string]Health{}
	for id, text := range texts {
		out[id] = testutil.Must(parseHealth(text))(t)
	}
	return out
}

func pickOne(t *testing.T, pool *Pool, o PickOptions) *Lease {
	t.Helper()
	lease := testutil.Must(pool.Pick(t.Context(), o))(t)
	return lease
}

func flush(t *testing.T, pool *Pool) {
	t.Helper()
	testutil.Ok(t, pool.Flush(t.Context()))
}

func TestPublishAndCount(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		pool := newPool(t, rdb, nil)
		added, err := publish(t.Context(), pool,
			result(1, nil), result(2, nil), result(2, nil), // a duplicate
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

		// A new record replaces the old one, and a failed check removes a member.
		mustPublish(t, pool, result(1, func(r *probe.Result) { r.Anonymity = probe.Anonymous }),
			result(2, func(r *probe.Result) { r.Alive = false; r.Reason = "refused" }))
		list, err := pool.List(t.Context(), Filter{})
		if err != nil || len(list) != 2 || list[0].Port != 1 || list[0].Anonymity != probe.Anonymous || list[1].Port != 4 {
			t.Fatalf("got %v %v, want the proxies at ports 1 and 4", list, err)
		}
	})
}

// Published, reported and removed proxies are visible to other processes, with the same health.
func TestViewsAreConsistent(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		one, two := newPool(t, rdb, nil), newPool(t, rdb, nil)
		mustPublish(t, one, result(1, nil))
		lease := pickOne(t, two, PickOptions{Site: "a"})
		lease.Report(Banned, 0)
		flush(t, two)
		if _, err := one.Pick(t.Context(), PickOptions{Site: "a"}); !errors.Is(err, ErrNoProxy) || !strings.Contains(err.Error(), "1 are cooling down") {
			t.Errorf("got %v, want the ban on site a in the other process", err)
		} else if d := resting(err); d <= 0 || d > time.Hour {
			t.Errorf("the proxy cools down for %s", d)
		}
		pickOne(t, one, PickOptions{Site: "b"}).Report(Succeeded, 20*time.Millisecond) // a ban from one site does not affect another
		flush(t, one)
		if list, err := two.List(t.Context(), Filter{}); err != nil || list[0].Health.Requests != 3 || list[0].Health.Fails != 0 {
			t.Errorf("got %+v %v, want 3 requests and no failure", list, err)
		}
		testutil.Must(one.Remove(t.Context(), lease.Proxy.ID))(t)
		if _, err := two.Pick(t.Context(), PickOptions{Site: "b"}); !errors.Is(err, ErrNoProxy) || !strings.Contains(err.Error(), "the pool is empty") {
			t.Errorf("got %v after removal, want an empty pool", err)
		} else if d := resting(err); d != 0 {
			t.Errorf("an empty pool has a Resting duration of %s", d)
		}
	})
}

// The cost of a pick does not grow with the number of sites that the process has used.
func TestManySites(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	rdb, traffic := redistest.NewTraffic(t, url)
	pool := newPool(t, rdb, nil)
	mustPublish(t, pool, result(1, nil))
	var first, last int64
	for i := range maxScopes + 50 {
		site := fmt.Sprintf("host%d.test", i)
		traffic.Take()
		pickOne(t, pool, PickOptions{Site: site, tunnel: site + ":443"}).Report(Succeeded, time.Millisecond)
		flush(t, pool)
		if last, _ = traffic.Take(); i == 1 { // the first pick loads the script
			first = last
		}
	}
	if last != first {
		t.Errorf("got %d commands for a pick at first, then %d; want the same", first, last)
	}
	if n := len(pool.view.scopes); n != maxScopes {
		t.Errorf("the view has %d scopes, want %d", n, maxScopes)
	}
	if ttl := rdb.TTL(t.Context(), healthKey(pool.cfg.Name, tunnelScope("host1.test:443"))).Val(); ttl <= 0 || ttl > 24*time.Hour {
		t.Errorf("the health at a site expires after %s, want a day", ttl)
	}
}

// BenchmarkPickAndReport picks from a pool of 10,000 proxies with reports.
func BenchmarkPickAndReport(b *testing.B) {
	pool := NewPool(PoolConfig{Redis: redistest.Server(b).Client()})
	defer pool.Close()
	members := make([]Proxy, 10_000)
	for i := range members {
		members[i] = Proxy{Candidate: Candidate{Protocol: "http", Host: fmt.Sprintf("8.1.%d.%d", i>>8, i&255), Port: 8080}, LatencyMS: float64(50 + i%2000), Anonymity: probe.Elite}
	}
	testutil.Must(pool.Add(b.Context(), members...))(b)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			lease, err := pool.Pick(b.Context(), PickOptions{Site: "shop"})
			if err != nil {
				b.Error(err)
				return
			}
			lease.Report(Succeeded, 120*time.Millisecond)
		}
	})
	testutil.Ok(b, pool.Flush(b.Context()))
}

// FuzzHealth checks that stored health is parsed to numbers that are valid in JSON, or rejected.
func FuzzHealth(f *testing.F) {
	for _, s := range []string{"0.5 3 1 1700000000000 0 0 120.5 9", "NaN 1 1 1 1 1 1", "1e308 1e308 Inf 1e300 -1 -Inf 0", "1 2", "0x1p4 1 1 1 1 1 1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHealth(text)
		if err != nil {
			return
		}
		for _, v := range []float64{h.OK, h.Fails, h.Latency} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("%q is read as %+v", text, h)
			}
		}
		if _, err := json.Marshal(h); err != nil {
			t.Errorf("%q cannot be encoded: %v", text, err)
		}
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), nil)
	mustPublish(t, pool, result(1, nil), result(2, nil), result(3, func(r *probe.Result) { r.Anonymity = probe.Transparent }))
	testutil.Ok(t, pool.Ban(t.Context(), "", 0, proxyOf(result(2, nil)).ID))
	testutil.Ok(t, pool.recordYields(t.Context(), "1", map[string]Yield{"a": {Candidates: 1}}))
	w := httptest.NewRecorder()
	metrics.Handler(NewMetrics(pool)).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text, _ := io.ReadAll(w.Body)
	for _, line := range []string{
		`muster_proxies{state="ready"} 1`, `muster_proxies{state="resting"} 0`, `muster_proxies{state="banned"} 1`, `muster_proxies{state="unusable"} 1`,
		`muster_proxies_up 1`, `muster_proxies_by_protocol{protocol="http"} 3`, `muster_proxies_by_anonymity{anonymity="transparent"} 1`,
		`muster_proxies_latency_seconds{percentile="50"} 0.011`, `muster_proxies_sources_dry 0`, `muster_proxies_stale 0`, `muster_proxies_refreshed_timestamp_seconds 0`,
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("missing %s in\n%s", line, text)
		}
	}
}
