package proxies

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/proxies/probe"
	"muster/proxies/proxytest"
	"muster/proxies/source"
	"muster/proxies/tunnel"
)

// bench is a site under a name that only the proxies resolve, and a pool with proxies.
type bench struct {
	site   *httptest.Server
	secure *httptest.Server
	hosts  proxytest.Hosts
	pool   *Pool
	logs   *bytes.Buffer
	hits   atomic.Int64
	peers  sync.Map                    // addresses of the clients
	exits  map[string]*proxytest.Proxy // by ID
}

func newBench(t *testing.T, handler http.HandlerFunc, edit func(*PoolConfig)) *bench {
	t.Helper()
	b := &bench{logs: &bytes.Buffer{}, exits: map[string]*proxytest.Proxy{}}
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.hits.Add(1)
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		b.peers.Store(host, true)
		w.Header().Set("X-Peer", host)
		w.Header().Set("X-Conn", r.RemoteAddr)
		handler(w, r)
	})
	b.site, b.secure = httptest.NewServer(serve), httptest.NewTLSServer(serve)
	t.Cleanup(b.site.Close)
	t.Cleanup(b.secure.Close)
	b.hosts = proxytest.Hosts{"shop.example:80": b.site.Listener.Addr().String(), "example.com:443": b.secure.Listener.Addr().String(), "down.example": "127.0.0.3:1"}
	roots := x509.NewCertPool()
	roots.AddCert(b.secure.Certificate())
	b.pool = newPool(t, redistest.New(t), func(c *PoolConfig) {
		c.TLS = &tls.Config{RootCAs: roots}
		c.HeaderTimeout, c.ConnectTimeout, c.HandshakeTimeout = time.Second, time.Second, time.Second
		c.Logger = slog.New(slog.NewTextHandler(b.logs, nil))
		if edit != nil {
			edit(c)
		}
	})
	return b
}

// add starts proxies and adds them to the pool, with the expected result of a check.
func (b *bench) add(t *testing.T, options ...proxytest.Options) []string {
	t.Helper()
	var ids []string
	for i, o := range options {
		if !o.Exit.IsValid() {
			o.Exit = proxytest.ExitAddress(i)
		}
		o.Hosts = b.hosts
		p := testutil.Must(proxytest.Start(o))(t)
		t.Cleanup(p.Close)
		pair := netip.MustParseAddrPort(p.URL.Host)
		r := probe.Result{Candidate: source.Candidate{Protocol: p.URL.Scheme, Host: pair.Addr().String(), Port: pair.Port(), Username: o.User, Password: o.Password},
			Protocol: p.URL.Scheme, Alive: true, Exit: o.Exit, Anonymity: probe.Elite, Latency: probe.Latency{FirstByte: float64(i + 1)}}
		r.Can.Forward = p.URL.Scheme[:4] == "http" && o.Kind != proxytest.ConnectOnly
		r.Can.Connect = o.Kind != proxytest.ForwardOnly
		mustPublish(t, b.pool, r)
		ids = append(ids, proxyOf(r).ID)
		b.exits[proxyOf(r).ID] = p
	}
	return ids
}

// first returns options that pick the proxy with an ID first.
func (b *bench) first(id string) PickOptions {
	b.pool.stickies["first"] = &sticky{id: id, until: time.Now().Add(time.Hour)}
	return PickOptions{Sticky: "first"}
}

func get(t *testing.T, rt http.RoundTripper, url string) (status int, body string, err error) {
	t.Helper()
	request := testutil.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	response, err := rt.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// health returns the health over all sites and at the site.
func (b *bench) health(t *testing.T, id, site string) (all, there Health, inPool bool) {
	t.Helper()
	flush(t, b.pool)
	list := testutil.Must(b.pool.List(t.Context(), Filter{Anonymity: probe.Transparent}))(t)
	for _, m := range list {
		if m.ID == id {
			all, inPool = m.Health, true
		}
	}
	return all, siteHealth(t, b.pool, site)[id], inPool
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

// Proxies of every kind carry http and https to names that only they resolve, from their own exit address.
func TestEveryKindCarriesRequests(t *testing.T) {
	t.Parallel()
	for _, o := range []proxytest.Options{
		{Kind: proxytest.Elite}, {Kind: proxytest.ConnectOnly}, {Kind: proxytest.OverTLS}, {Kind: proxytest.SOCKS5}, {Kind: proxytest.SOCKS4A},
		{Kind: proxytest.Elite, User: "u", Password: "p@ss:w/rd"}, {Kind: proxytest.SOCKS5, User: "u", Password: "p@ss:w/rd"},
		{Kind: proxytest.ConnectOnly, User: "u", Password: "p@ss:w/rd"},
	} {
		t.Run(string(o.Kind)+o.User, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, hello, nil)
			o.Exit = proxytest.ExitAddress(7)
			b.add(t, o)
			rt := b.pool.Transport("shop", TransportOptions{})
			for _, url := range []string{"http://shop.example/a", "http://shop.example/b", "https://example.com/c"} {
				if status, body, err := get(t, rt, url); status != 200 || body != "hello" || err != nil {
					t.Errorf("%s: got %d %q %v, want 200 and hello", url, status, body, err)
				}
			}
			b.peers.Range(func(peer, _ any) bool {
				if peer != o.Exit.String() {
					t.Errorf("the site received a request from %v", peer)
				}
				return true
			})
		})
	}
}

// A failure is recorded for the proxy and the request is retried with another one.
func TestRetryWithAnotherProxy(t *testing.T) {
	t.Parallel()
	for kind, wantFails := range map[proxytest.Kind]float64{
		proxytest.Dead: 1, proxytest.HangsUp: 1, proxytest.WantsAuth: 1, proxytest.BadGateway: 1, proxytest.Noise: 1, proxytest.Silent: 0.5,
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, hello, nil)
			ids := b.add(t, proxytest.Options{Kind: kind}, proxytest.Options{Kind: proxytest.Elite})
			if status, body, err := get(t, b.pool.Transport("shop", TransportOptions{PickOptions: b.first(ids[0])}), "http://shop.example/"); status != 200 || body != "hello" || err != nil {
				t.Fatalf("got %d %q %v, want 200 and hello", status, body, err)
			}
			all, _, _ := b.health(t, ids[0], "shop")
			if all.Fails != wantFails {
				t.Errorf("got %v failures of the %s proxy, want %v", all.Fails, kind, wantFails)
			}
			if good, there, _ := b.health(t, ids[1], "shop"); good.Fails != 0 || there.Requests != 1 || there.OK <= 0.5 {
				t.Errorf("got %+v %+v for the good proxy, want a success and no failures", good, there)
			}
		})
	}
}

// Between requests that the site may have received, the transport waits for the pace of the site.
func TestRepeatsKeepThePace(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind  proxytest.Kind
		limit int // number of allowed repetitions
		want  string
	}{
		"the site fails":    {proxytest.Elite, 9, "request again request again request"},
		"the wait ends":     {proxytest.Elite, 1, "request again request"},
		"the proxy refuses": {proxytest.WantsAuth, 9, "request again request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var steps []string
			b := newBench(t, func(http.ResponseWriter, *http.Request) {
				steps = append(steps, "request")
				panic(http.ErrAbortHandler)
			}, nil)
			ids := b.add(t, proxytest.Options{Kind: test.kind}, proxytest.Options{Kind: proxytest.Elite}, proxytest.Options{Kind: proxytest.Elite})
			again := func(context.Context) error {
				if len(steps)/2 == test.limit {
					return context.DeadlineExceeded
				}
				steps = append(steps, "again")
				return nil
			}
			_, _, err := get(t, b.pool.Transport("shop", TransportOptions{PickOptions: b.first(ids[0]), Again: again}), "https://example.com/")
			if got := strings.Join(steps, " "); got != test.want || err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %s and %v, want %s and the error of the site", got, err, test.want)
			}
		})
	}
}

// Responses of the site itself are not recorded as failures, except for a ban, at that site only.
func TestSiteResponses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status               int
		header               string
		banned, paused, hits bool
	}{
		{status: 200}, {status: 404}, {status: 410}, {status: 500}, {status: 503}, {status: 302},
		{status: 403, banned: true}, {status: 429, header: "600", paused: true},
	} {
		t.Run(strconv.Itoa(test.status), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(w http.ResponseWriter, _ *http.Request) {
				if test.header != "" {
					w.Header().Set("Retry-After", test.header)
				}
				w.WriteHeader(test.status)
			}, nil)
			ids := b.add(t, proxytest.Options{Kind: proxytest.Elite})
			status, _, err := get(t, b.pool.Transport("shop", TransportOptions{}), "http://shop.example/")
			if status != test.status || err != nil {
				t.Fatalf("got %d %v, want %d", status, err, test.status)
			}
			all, there, _ := b.health(t, ids[0], "shop")
			if all.Fails != 0 || all.OK <= 0.5 {
				t.Errorf("recorded for all sites: %+v", all)
			}
			if got := there.Fails > 0; got != test.banned {
				t.Errorf("got banned %t want %t (%+v)", got, test.banned, there)
			}
			if wait := time.Until(there.Until); test.paused && (wait < 5*time.Minute || wait > 10*time.Minute) {
				t.Errorf("got a pause of %s, want about ten minutes", wait)
			}
			_, _, err = get(t, b.pool.Transport("other", TransportOptions{}), "http://shop.example/")
			if err != nil {
				t.Errorf("another site: %v", err)
			}
			if test.paused {
				if _, _, err := get(t, b.pool.Transport("shop", TransportOptions{}), "http://shop.example/"); !errors.Is(err, ErrNoProxy) {
					t.Errorf("got %v, want a pause", err)
				}
			}
		})
	}
}

// If a proxy that reports the target down is followed by one that does not respond, the error is that of the target.
func TestErrorOfTargetIsKept(t *testing.T) {
	t.Parallel()
	b := newBench(t, hello, nil)
	ids := b.add(t, proxytest.Options{Kind: proxytest.SOCKS5}, proxytest.Options{Kind: proxytest.Dead})
	first := b.first(ids[0])
	if _, _, err := b.pool.Dial(t.Context(), "down.example:80", TransportOptions{PickOptions: first}); tunnel.ReasonOf(err) != tunnel.Upstream {
		t.Errorf("tunnel: got %v, want reason %s", err, tunnel.Upstream)
	}
	if _, _, err := get(t, b.pool.Transport("shop", TransportOptions{PickOptions: first}), "http://down.example/"); tunnel.ReasonOf(err) != tunnel.Upstream {
		t.Errorf("request: got %v, want reason %s", err, tunnel.Upstream)
	}
}

// Blocked is recorded once, before or after the body is closed.
func TestBlockedIsRecordedOnce(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"before the body is closed": true, "after": false} {
		t.Run(name, func(t *testing.T) { t.Parallel(); blocked(t, early) })
	}
}

func blocked(t *testing.T, early bool) {
	b := newBench(t, hello, nil)
	ids := b.add(t, proxytest.Options{Kind: proxytest.Elite})
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://shop.example/", nil)
	response := testutil.Must(b.pool.Transport("shop", TransportOptions{}).RoundTrip(request))(t)
	if proxy, ok := Used(response); !ok || proxy.ID != ids[0] {
		t.Errorf("got %v %t, want %s", proxy, ok, ids[0])
	}
	if early {
		Blocked(response)
	}
	response.Body.Close()
	if !early {
		Blocked(response)
	}
	Blocked(response)
	all, there, _ := b.health(t, ids[0], "shop")
	if there.Fails != 1 || there.Until.IsZero() || all.Fails != 0 || all.Requests != 2 { // the check and this request
		t.Errorf("got %+v %+v, want a ban at the site only", all, there)
	}
	if _, err := b.pool.Pick(t.Context(), PickOptions{Site: "shop"}); !errors.Is(err, ErrNoProxy) {
		t.Errorf("the shop picked it again: %v", err)
	}
	pickOne(t, b.pool, PickOptions{Site: "news"}).Release()
}

// A truncated body is an error and a failure of the proxy. The request is not repeated.
func TestBrokenBody(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}, nil)
	ids := b.add(t, proxytest.Options{Kind: proxytest.SOCKS5}, proxytest.Options{Kind: proxytest.SOCKS5})
	_, body, err := get(t, b.pool.Transport("shop", TransportOptions{PickOptions: b.first(ids[0])}), "http://shop.example/")
	if err == nil || body != "half" || b.hits.Load() != 1 {
		t.Fatalf("got %q %v after %d requests, want half, an error and 1 request", body, err, b.hits.Load())
	}
	if all, _, _ := b.health(t, ids[0], "shop"); all.Fails != 1 {
		t.Errorf("got %+v, want 1 failure", all)
	}
}

// A request that is not repeatable is sent once.
func TestPostIsNotRepeated(t *testing.T) {
	t.Parallel()
	b := newBench(t, hello, nil)
	ids := b.add(t, proxytest.Options{Kind: proxytest.HangsUp}, proxytest.Options{Kind: proxytest.Elite})
	post := func(key string) error {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://shop.example/", strings.NewReader("x"))
		if key != "" {
			request.Header.Set("Idempotency-Key", key)
		}
		response, err := b.pool.Transport("shop", TransportOptions{PickOptions: b.first(ids[0])}).RoundTrip(request)
		if err == nil {
			response.Body.Close()
		}
		return err
	}
	if err := post(""); err == nil || b.hits.Load() != 0 {
		t.Fatalf("got %v and %d requests, want an error and none", err, b.hits.Load())
	}
	if err := post("once"); err != nil || b.hits.Load() != 1 {
		t.Fatalf("got %v and %d requests, want success and 1", err, b.hits.Load())
	}
}

// Without a proxy a request fails with a remedy, or is sent directly with a warning if configured.
func TestFallbacks(t *testing.T) {
	t.Parallel()
	b := newBench(t, hello, nil)
	direct := b.site.URL
	if _, _, err := get(t, b.pool.Transport("shop", TransportOptions{}), direct); !errors.Is(err, ErrNoProxy) || !strings.Contains(err.Error(), "muster proxies refresh") {
		t.Errorf("fail: got %v, want ErrNoProxy with advice", err)
	}
	begun := time.Now()
	wait := TransportOptions{Fallback: FallbackWait, PickOptions: PickOptions{Wait: 300 * time.Millisecond}}
	if _, _, err := get(t, b.pool.Transport("shop", wait), direct); !errors.Is(err, ErrNoProxy) || time.Since(begun) < 300*time.Millisecond {
		t.Errorf("wait: got %v after %s, want ErrNoProxy after 300ms", err, time.Since(begun))
	}
	if b.hits.Load() != 0 {
		t.Fatal("unexpected direct request")
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	around := b.pool.Transport("shop", TransportOptions{Fallback: FallbackDirect, Direct: transport})
	for range 3 {
		if status, _, err := get(t, around, direct); status != 200 || err != nil {
			t.Errorf("direct: got %d %v, want 200", status, err)
		}
	}
	if n := strings.Count(b.logs.String(), "connecting directly"); n != 1 {
		t.Errorf("got %d warnings about direct connections, want 1", n)
	}
	wait.Wait = 20 * time.Second
	done := make(chan error, 1)
	go func() {
		_, _, err := get(t, b.pool.Transport("shop", wait), "http://shop.example/")
		done <- err
	}()
	b.add(t, proxytest.Options{Kind: proxytest.Elite})
	if err := <-done; err != nil {
		t.Errorf("wait: got %v after a proxy was added, want success", err)
	}
}

// Concurrent requests use different proxies, and the number of cached transports is limited.
func TestOneTransportPerProxy(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, w.Header().Get("X-Peer")) },
		func(c *PoolConfig) { c.MaxTransports = 4; c.SyncEvery = time.Second })
	var options []proxytest.Options
	for i := range 12 {
		options = append(options, proxytest.Options{Kind: []proxytest.Kind{proxytest.Elite, proxytest.SOCKS5}[i%2]})
	}
	b.add(t, options...)
	rt := b.pool.Transport("shop", TransportOptions{})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 25 {
				request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://shop.example/", nil)
				response, err := rt.RoundTrip(request)
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(response.Body)
				response.Body.Close()
				if used, _ := Used(response); err != nil || used.Exit.String() != string(body) {
					t.Errorf("the site received a request from %s through proxy %v with exit %v; %v", body, used, used.Exit, err)
				}
			}
		})
	}
	group.Wait()
	if n := len(b.pool.transports.byID); n > 4 {
		t.Errorf("got %d cached transports, want at most 4", n)
	}
	seen := 0
	b.peers.Range(func(_, _ any) bool { seen++; return true })
	if seen <= 4 {
		t.Errorf("got %d proxies used, want more than transports", seen)
	}
}

// A proxy that tampers with forwarded responses and tunnels to port 443 only is used for https only.
func TestHTTPSOnlyProxyIsNotUsedForHTTP(t *testing.T) {
	t.Parallel()
	b := newBench(t, hello, nil)
	p, err := proxytest.Start(proxytest.Options{Kind: proxytest.Elite, Exit: proxytest.ExitAddress(1), Hosts: b.hosts, ConnectPorts: []string{"443"},
		Alter: func(r *http.Response) {
			r.Body.Close()
			r.Header.Del("Content-Length")
			r.Body = io.NopCloser(strings.NewReader("an advertisement"))
		}})
	testutil.Ok(t, err)
	t.Cleanup(p.Close)
	pair := netip.MustParseAddrPort(p.URL.Host)
	c := Candidate{Protocol: "http", Host: pair.Addr().String(), Port: pair.Port()}
	mustPublish(t, b.pool, probe.Result{Candidate: c, Protocol: "http", Alive: true, Exit: p.Exit, Anonymity: probe.Elite, Tunnel: true,
		Tampering: []string{probe.TamperBody}, Can: probe.Capabilities{HTTPS: true}})
	if list, err := b.pool.List(t.Context(), Everything); err != nil || len(list) != 1 || !slices.Equal(list[0].Tampering, []string{probe.TamperBody}) {
		t.Errorf("got %+v %v, want one member with its tampering", list, err)
	}
	rt := b.pool.Transport("shop", TransportOptions{})
	if status, body, err := get(t, rt, "https://example.com/"); status != 200 || body != "hello" || err != nil {
		t.Errorf("https: got %d %q %v, want 200 hello", status, body, err)
	}
	before := p.Requests()
	if status, body, err := get(t, rt, "http://shop.example/"); !errors.Is(err, ErrNoProxy) {
		t.Errorf("http: got %d %q %v, want %v", status, body, err, ErrNoProxy)
	}
	if n := p.Requests() - before; n != 0 {
		t.Errorf("http: got %d requests at the proxy, want 0", n)
	}
}
