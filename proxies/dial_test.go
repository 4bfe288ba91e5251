package proxies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"muster/internal/addressfilter"
	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/proxies/probe"
	"muster/proxies/proxytest"
	"muster/proxies/tunnel"
)

// noDNS is a name that is never looked up in DNS, because a label is too long. Hosts may contain it.
var noDNS = strings.Repeat("a", 64) + ".example"

// say opens a tunnel, sends a request and returns the response.
func (b *bench) say(t *testing.T, addr string, o TransportOptions) (string, error) {
	t.Helper()
	conn, _, err := b.pool.Dial(t.Context(), addr, o)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.0\r\nHost: shop.example\r\n\r\n")
	text, _ := io.ReadAll(conn)
	return string(text), nil
}

// wantFails checks the failures of proxies over all sites, and that they are in the pool.
func (b *bench) wantFails(t *testing.T, when string, want float64, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if all, _, in := b.health(t, id, ""); all.Fails != want || !in {
			t.Errorf("%s: %s has %v failures, in the pool: %t; want %v and true", when, id, all.Fails, in, want)
		}
	}
}

// Proxies are not penalized for a target that no proxy reaches, whatever the form of the failure.
func TestUnreachableTargetsAreNotPenalized(t *testing.T) {
	t.Parallel()
	for _, kind := range []proxytest.Kind{proxytest.SOCKS5, proxytest.SOCKS4A, proxytest.Elite, proxytest.BadGateway, proxytest.Forbidding, proxytest.HangsUp, proxytest.Silent} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, hello, func(c *PoolConfig) {
				if kind == proxytest.Silent {
					c.HandshakeTimeout, c.HeaderTimeout = 50*time.Millisecond, 50*time.Millisecond
				}
			})
			var ids []string
			for range 3 {
				ids = append(ids, b.add(t, proxytest.Options{Kind: kind})...)
			}
			for i := range 4 {
				noDNS := fmt.Sprintf("%d.%s", i, noDNS) // a proxy that timed out at a target is suspended there
				if _, err := b.say(t, noDNS+":443", TransportOptions{}); err == nil || errors.Is(err, ErrNoProxy) {
					t.Fatalf("a tunnel: got %v, want target unreachable", err)
				}
				if _, _, err := get(t, b.pool.Transport("secure."+noDNS, TransportOptions{}), "https://"+noDNS+"/"); err == nil || errors.Is(err, ErrNoProxy) {
					t.Fatalf("https: got %v, want target unreachable", err)
				}
				if kind != proxytest.Forbidding { // its page may come from the site
					_, _, _ = get(t, b.pool.Transport(noDNS, TransportOptions{}), "http://"+noDNS+"/")
				}
			}
			b.wantFails(t, "in the end", 0, ids...)
		})
	}
}

// The error page of a proxy for an unreachable target does not prove that the target was reached. It is the response,
// whether other proxies fail before it or after it.
func TestErrorPageOfProxy(t *testing.T) {
	t.Parallel()
	for n, status := range []int{404, 500, 502, 503, 404, 500, 502, 503} {
		b := newBench(t, hello, nil)
		ids := b.add(t, proxytest.Options{Kind: proxytest.SOCKS5}, proxytest.Options{Kind: proxytest.HangsUp})
		page := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "cannot find the host", status) }))
		address := netip.MustParseAddrPort(page.Listener.Addr().String())
		added := []Proxy{{Candidate: Candidate{Protocol: "http", Host: address.Addr().String(), Port: address.Port()}, LatencyMS: 1000}}
		testutil.Must(b.pool.Add(t.Context(), added...))(t)
		first := ids[0]
		if n >= 4 {
			first = added[0].ID
		}
		if got, _, err := get(t, b.pool.Transport(noDNS, TransportOptions{PickOptions: b.first(first)}), "http://"+noDNS+"/"); got != status || err != nil {
			t.Fatalf("got %d %v, want %d", got, err, status)
		}
		b.wantFails(t, http.StatusText(status), 0, ids...)
	}
}

// A proxy that cannot reach a target which another proxy reaches is penalized once per target, because the target may
// reject it. An open tunnel proves nothing until data was received through it.
func TestMissIsPenalizedIfAnotherProxySucceeds(t *testing.T) {
	t.Parallel()
	for kind, want := range map[proxytest.Kind]float64{proxytest.BadGateway: 1, proxytest.HangsUp: 1, proxytest.Silent: 0.5, proxytest.Forbidding: 0} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, hello, func(c *PoolConfig) { c.HandshakeTimeout = 500 * time.Millisecond })
			b.hosts["shop.example:8080"] = b.site.Listener.Addr().String()
			ids := b.add(t, proxytest.Options{Kind: kind}, proxytest.Options{Kind: proxytest.ConnectOnly})
			options := func() TransportOptions {
				o := TransportOptions{PickOptions: b.first(ids[0])}
				o.Site = "shop.example"
				return o
			}
			conn, used, err := b.pool.Dial(t.Context(), "shop.example:80", options())
			if err != nil || used.ID != ids[1] {
				t.Fatalf("got %v %v, want the other proxy", used, err)
			}
			conn.Close()
			b.wantFails(t, "before data was received", 0, ids[0])

			if text, err := b.say(t, "shop.example:80", options()); err != nil || !strings.Contains(text, "hello") {
				t.Fatalf("got %q %v", text, err)
			}
			b.wantFails(t, "after another proxy reached the target", want, ids[0])
			b.wantFails(t, "the proxy that reached the target", 0, ids[1])

			asked := b.exits[ids[0]].Requests()
			if text, err := b.say(t, "shop.example:80", options()); err != nil || !strings.Contains(text, "hello") {
				t.Fatalf("got %q %v", text, err)
			}
			if again := b.exits[ids[0]].Requests(); again != asked {
				t.Errorf("got %d requests for an unreachable target, want %d: the proxy is suspended there", again, asked)
			}
			if sites := siteHealth(t, b.pool, "shop.example"); len(sites) != 0 {
				t.Errorf("got %v at the site, want nothing", sites)
			}
		})
	}
}

// A proxy that times out at a target which no proxy reaches is suspended there and only there.
func TestTimeoutSuspendsProxyAtTarget(t *testing.T) {
	t.Parallel()
	b := newBench(t, hello, func(c *PoolConfig) {
		c.HandshakeTimeout, c.HeaderTimeout = 400*time.Millisecond, 400*time.Millisecond // a connection is quicker on a busy machine, too
	})
	ids := b.add(t, proxytest.Options{Kind: proxytest.Silent}, proxytest.Options{Kind: proxytest.Silent})
	for _, want := range []bool{false, true} { // whether no proxy is available, so that no client waits
		if _, err := b.say(t, "shop.example:80", TransportOptions{}); err == nil || errors.Is(err, ErrNoProxy) != want {
			t.Errorf("a tunnel: got %v, want no proxy: %t", err, want)
		}
		if _, _, err := get(t, b.pool.Transport("shop", TransportOptions{}), "http://shop.example/"); err == nil || errors.Is(err, ErrNoProxy) != want {
			t.Errorf("http: got %v, want no proxy: %t", err, want)
		}
	}
	b.wantFails(t, "in the end", 0, ids...)
}

// Repeated misses of a target count as one failure over all sites. Misses of different targets add up.
func TestMissesCountOncePerTarget(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), nil)
	mustPublish(t, pool, result(1, nil))
	id := proxyOf(result(1, nil)).ID
	miss := func(site string, o Outcome) {
		t.Helper()
		(&Lease{Proxy: Proxy{ID: id}, from: pool.leases, site: site, begun: time.Now().Add(time.Second)}).Report(o, 0)
		flush(t, pool)
	}
	fails := func() float64 {
		members, err := pool.List(t.Context(), Everything)
		if err != nil || len(members) != 1 {
			t.Fatalf("got %v %v, want one member", members, err)
		}
		return members[0].Health.Fails
	}
	for range 5 {
		miss("shop", missed)
		miss("strict", useless)
	}
	if got := fails(); got != 1 {
		t.Errorf("got %v failures after five misses of one site, want 1", got)
	}
	miss("news", missedTimedOut)
	if got := fails(); got != 1.5 {
		t.Errorf("got %v failures after a time-out at a second site, want 1.5", got)
	}
	for _, site := range []string{"shop", "news", "strict"} {
		if h := siteHealth(t, pool, site); h[id].Fails == 0 || h[id].Until.IsZero() {
			t.Errorf("%s: got %+v, want a cooldown", site, h[id])
		}
	}
	miss("third", missed)
	miss("fourth", missed)
	if n, err := pool.Count(t.Context()); err != nil || n != 0 {
		t.Errorf("got %d in the pool after misses of four sites, want none (%v)", n, err)
	}
}

// A SOCKS4 proxy is not penalized if a name has no local address, and other proxies are tried.
func TestSOCKS4IsNotPenalizedForLocalLookup(t *testing.T) {
	t.Parallel()
	b := newBench(t, hello, nil)
	b.hosts[noDNS] = b.site.Listener.Addr().String()
	var ids []string
	for range 9 {
		ids = append(ids, b.add(t, proxytest.Options{Kind: proxytest.SOCKS4})...)
	}
	for _, target := range []string{noDNS, "[2001:db8::1]"} {
		if _, err := b.say(t, target+":80", TransportOptions{}); tunnel.ReasonOf(err) != tunnel.Unsupported {
			t.Errorf("%s by SOCKS4 alone: got %v, want %s", target, err, tunnel.Unsupported)
		}
	}
	b.add(t, proxytest.Options{Kind: proxytest.SOCKS5})
	rt := b.pool.Transport("shop", TransportOptions{Tries: 1})
	for range 10 {
		if text, err := b.say(t, noDNS+":80", TransportOptions{Tries: 1}); err != nil || !strings.Contains(text, "hello") {
			t.Errorf("a tunnel: got %q %v", text, err)
		}
		if status, _, err := get(t, rt, "http://"+noDNS+"/"); err != nil || status != 200 {
			t.Errorf("http: got %d %v", status, err)
		}
	}
	b.wantFails(t, "in the end", 0, ids...)
}

// A failed proxy does not prevent waiting for a busy one.
func TestWaitContinuesAfterFailure(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(*bench, PickOptions) error{
		"http": func(b *bench, o PickOptions) error {
			_, _, err := get(t, b.pool.Transport("shop", TransportOptions{PickOptions: o, Fallback: FallbackWait}), "http://shop.example/")
			return err
		},
		"tunnel": func(b *bench, o PickOptions) error {
			_, err := b.say(t, "shop.example:80", TransportOptions{PickOptions: o, Fallback: FallbackWait})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, hello, func(c *PoolConfig) { c.MaxInFlight = 1 })
			ids := b.add(t, proxytest.Options{Kind: proxytest.Dead}, proxytest.Options{Kind: proxytest.Elite})
			busy := pickOne(t, b.pool, PickOptions{Except: ids[:1]})
			begun := time.Now()
			o := b.first(ids[0])
			o.Wait = 200 * time.Millisecond
			if err := send(b, o); err == nil || time.Since(begun) < 200*time.Millisecond {
				t.Errorf("got %v after %s, want an error after 200ms", err, time.Since(begun))
			}
			done := make(chan error)
			o.Wait = time.Minute
			go func() { done <- send(b, o) }()
			busy.Release()
			if err := <-done; err != nil {
				t.Errorf("got %v, want a response through the released proxy", err)
			}
		})
	}
}

// With FallbackDirect a tunnel is direct if no proxy works, but not if a proxy reports that the target is down.
func TestDialFallbackDirect(t *testing.T) {
	t.Parallel()
	b := newBench(t, hello, nil)
	o := TransportOptions{Fallback: FallbackDirect, Direct: &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", b.hosts[addr])
	}}}
	for when, kind := range []proxytest.Kind{proxytest.Dead, proxytest.SOCKS5} {
		conn, used, err := b.pool.Dial(t.Context(), "shop.example:80", o)
		if err != nil || used.ID != "" {
			t.Fatalf("with %d proxies: got %v %v, want a direct connection", when, used, err)
		}
		conn.Close()
		b.add(t, proxytest.Options{Kind: kind})
	}
	if _, _, err := b.pool.Dial(t.Context(), "down.example:80", o); tunnel.ReasonOf(err) != tunnel.Upstream {
		t.Errorf("got %v, want target down", err)
	}
	if n := strings.Count(b.logs.String(), "connecting directly"); n != 1 {
		t.Errorf("got %d warnings that connections are direct, want 1", n)
	}
}

// A proxy whose name resolves to loopback is not connected to unless the filter allows it, for tunnels and requests.
func TestPrivateAddressesOfNamesAreNotDialed(t *testing.T) {
	t.Parallel()
	allowed := testutil.Must(addressfilter.New("127.0.0.1"))(t)
	ways := map[string]func(b *bench) error{
		"tunnel": func(b *bench) error { _, err := b.say(t, "shop.example:80", TransportOptions{}); return err },
		"request": func(b *bench) error {
			_, _, err := get(t, b.pool.Transport("shop", TransportOptions{}), "http://shop.example/")
			return err
		},
	}
	for name, ask := range ways {
		for _, filter := range []*addressfilter.Filter{nil, allowed} {
			b := newBench(t, hello, func(c *PoolConfig) { c.Filter = filter })
			p, err := proxytest.Start(proxytest.Options{Kind: proxytest.Elite, Exit: proxytest.ExitAddress(1), Hosts: b.hosts})
			testutil.Ok(t, err)
			t.Cleanup(p.Close)
			member := Proxy{Candidate: Candidate{Protocol: "http", Host: "proxy.test", Port: netip.MustParseAddrPort(p.URL.Host).Port()}, Can: probe.Capabilities{Forward: true, Connect: true}}
			_, err = b.pool.Add(t.Context(), member)
			testutil.Ok(t, err)
			err = ask(b)
			if filter != nil && err != nil {
				t.Errorf("%s, allowed: got %v, want no error", name, err)
			}
			if filter == nil && (tunnel.ReasonOf(err) != tunnel.PrivateAddress || p.Requests() != 0) {
				t.Errorf("%s: got %v and %d requests, want reason %s and none", name, err, p.Requests(), tunnel.PrivateAddress)
			}
		}
	}
}
