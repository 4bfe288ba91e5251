package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/addressfilter"
	"muster/internal/dnstest"
	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/proxies"
	"muster/proxies/probe"
	"muster/proxies/proxytest"
	"muster/tasks/metrics"
)

// TestMain resolves names below .test to loopback.
func TestMain(m *testing.M) {
	net.DefaultResolver = dnstest.Resolver(dnstest.Loopback)
	redistest.Main(m)
}

// big is the page of a benchmark.
var big = strings.Repeat("0123456789", 1000)

// front is a gateway with proxies and a site under names that only the proxies resolve.
type front struct {
	gateway *Gateway
	addr    string
	pool    *proxies.Pool
	proxies []*proxytest.Proxy
	site    *httptest.Server
	secure  *httptest.Server
}

func newFront(t testing.TB, cfg Config, kinds ...proxytest.Options) *front {
	t.Helper()
	f := &front{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		switch r.URL.Path {
		case "/big":
			_, _ = io.WriteString(w, big)
		case "/headers":
			_ = r.Header.Write(w)
		case "/raw":
			w.Header()["Content-Type"] = nil
			fmt.Fprintln(w, r.RequestURI)
			_ = r.Header.Write(w)
		case "/early":
			_ = http.NewResponseController(w).EnableFullDuplex()
			w.Header().Set("Content-Length", "6")
			_, _ = io.WriteString(w, "enough")
			_ = http.NewResponseController(w).Flush()
			_, _ = io.Copy(io.Discard, r.Body)
		case "/echo":
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write(body)
		case "/stream":
			for i := range 3 {
				fmt.Fprintf(w, "event %d\n", i)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done() // tests read the first event only
			}
		default:
			_, _ = io.WriteString(w, host)
		}
	})
	f.site, f.secure = httptest.NewServer(handler), httptest.NewTLSServer(handler)
	t.Cleanup(f.site.Close)
	t.Cleanup(f.secure.Close)
	hosts := proxytest.Hosts{"shop.example": f.site.Listener.Addr().String(), "example.com": f.secure.Listener.Addr().String()}
	f.pool = proxies.NewPool(proxies.PoolConfig{Redis: redistest.New(t), SyncEvery: 50 * time.Millisecond, ConnectTimeout: 20 * time.Second, HandshakeTimeout: 20 * time.Second, HeaderTimeout: 20 * time.Second})
	t.Cleanup(func() { _ = f.pool.Close() })
	for i, o := range kinds {
		o.Hosts, o.Exit = hosts, proxytest.ExitAddress(i)
		p := testutil.Must(proxytest.Start(o))(t)
		t.Cleanup(p.Close)
		f.proxies = append(f.proxies, p)
		pair := netip.MustParseAddrPort(p.URL.Host)
		member := proxies.Proxy{Candidate: proxies.Candidate{Protocol: p.URL.Scheme, Host: pair.Addr().String(), Port: pair.Port(), Country: []string{"BG", "RO"}[i%2]},
			Exit: o.Exit, Anonymity: probe.Elite, LatencyMS: float64(i + 1), Can: probe.Capabilities{Forward: p.URL.Scheme == "http" && o.Kind != proxytest.ConnectOnly, Connect: true}}
		testutil.Must(f.pool.Add(t.Context(), member))(t)
	}

	cfg.Pool, cfg.Listen = f.pool, "127.0.0.1:0"
	f.gateway = testutil.Must(New(cfg))(t)
	ctx, cancel := context.WithCancel(t.Context())
	listening, done := make(chan net.Addr, 1), make(chan error, 1)
	go func() { done <- f.gateway.Run(ctx, func(a net.Addr) { listening <- a }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := f.gateway.active.Load(); n != 0 {
			t.Errorf("%d connections are open", n)
		}
	})
	f.addr = (<-listening).String()
	return f
}

// client returns a client that uses the gateway with a user.
func (f *front) client(t testing.TB, scheme string, user *url.Userinfo) *http.Client {
	roots := x509.NewCertPool()
	roots.AddCert(f.secure.Certificate())
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: scheme, Host: f.addr, User: user}), TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

func fetch(t *testing.T, c *http.Client, url string) (status int, body string) {
	t.Helper()
	response, err := c.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text := testutil.Must(io.ReadAll(response.Body))(t)
	return response.StatusCode, string(text)
}

func kinds(n int, kind ...proxytest.Kind) (out []proxytest.Options) {
	for i := range n {
		out = append(out, proxytest.Options{Kind: kind[i%len(kind)]})
	}
	return out
}

// HTTP, CONNECT and SOCKS5 rotate over the pool.
func TestProtocolsRotate(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, kinds(6, proxytest.Elite, proxytest.SOCKS5, proxytest.ConnectOnly)...)
	for scheme, target := range map[string]string{"http": "http://shop.example/", "http ": "https://example.com/", "socks5": "http://shop.example/", "socks5 ": "https://example.com/"} {
		client := f.client(t, strings.TrimSpace(scheme), nil)
		seen := map[string]bool{}
		for range 12 {
			status, body := fetch(t, client, target)
			if status != 200 || !strings.HasPrefix(body, "127.16.") {
				t.Fatalf("%s %s: got %d %q, want 200 from an exit of the pool", scheme, target, status, body)
			}
			seen[body] = true
		}
		if len(seen) < 2 {
			t.Errorf("%s %s: only %d of 6 proxies were used", scheme, target, len(seen))
		}
	}
	if g := f.gateway; g.requests.Load() != 12 || g.tunnels.Load() != 36 || g.failed.Load() != 0 {
		t.Errorf("got %d requests, %d tunnels and %d failures, want 12, 36 and none", g.requests.Load(), g.tunnels.Load(), g.failed.Load())
	}
}

// A session keeps its proxy, a country selects proxies, and an unknown option is rejected.
func TestUserNameOptionsSelectProxies(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, kinds(8, proxytest.Elite)...)
	for _, scheme := range []string{"http", "socks5"} {
		seen := map[string]bool{}
		for range 10 {
			_, body := fetch(t, f.client(t, scheme, url.UserPassword("me-session-"+scheme, "x")), "http://shop.example/")
			seen[body] = true
		}
		if len(seen) != 1 {
			t.Errorf("%s: session used %v", scheme, seen)
		}
	}
	for range 10 { // Bulgarian proxies have even numbers
		_, body := fetch(t, f.client(t, "http", url.UserPassword("me-country-bg", "x")), "http://shop.example/")
		if addr, err := netip.ParseAddr(body); err != nil || (addr.As4()[2]-1)%2 != 0 {
			t.Errorf("got exit %s, want one in Bulgaria", body)
		}
	}
	if status, body := fetch(t, f.client(t, "http", url.UserPassword("me-colour-red", "x")), "http://shop.example/"); status != http.StatusProxyAuthRequired || !strings.Contains(body, "unknown option") {
		t.Errorf("got %d %q, want 407 and unknown option", status, body)
	}
	if status, _ := fetch(t, f.client(t, "http", url.UserPassword("me-country-zz", "x")), "http://shop.example/"); status != http.StatusServiceUnavailable {
		t.Errorf("got %d for a country without proxies, want 503", status)
	}
}

// With keys every request needs one, including the second one on a connection, CONNECT and SOCKS5.
func TestKeys(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{Keys: []string{"open-sesame"}}, kinds(2, proxytest.Elite)...)
	good, bad := url.UserPassword("me", "open-sesame"), url.UserPassword("me", "wrong")
	for _, scheme := range []string{"http", "socks5"} {
		for _, target := range []string{"http://shop.example/", "https://example.com/"} {
			if status, body := fetch(t, f.client(t, scheme, good), target); status != 200 {
				t.Errorf("%s %s: got %d %s, want 200", scheme, target, status, body)
			}
			for _, user := range []*url.Userinfo{bad, nil} {
				if status, _ := fetch(t, f.client(t, scheme, user), target); status == 200 {
					t.Errorf("%s %s: accepted with %v", scheme, target, user)
				}
			}
		}
	}

	conn := testutil.Must(net.Dial("tcp", f.addr))(t)
	defer conn.Close()
	auth := base64.StdEncoding.EncodeToString([]byte("me:open-sesame"))
	fmt.Fprintf(conn, "GET http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\nProxy-Authorization: Basic %s\r\n\r\nGET http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n", auth)
	both, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(both), "HTTP/1.1 200") || !strings.Contains(string(both), "HTTP/1.1 407") {
		t.Errorf("got %q %v, want 200 and then 407", both, err)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{Keys: []string{"open-sesame"}}, kinds(2, proxytest.Elite)...)
	good := url.UserPassword("me", "open-sesame")
	for _, scheme := range []string{"http", "socks5"} {
		if status, body := fetch(t, f.client(t, scheme, good), "https://example.com/"); status != 200 {
			t.Fatalf("got %d %s, want 200", status, body)
		}
	}
	for user, want := range map[*url.Userinfo]int{good: 200, nil: 407, url.UserPassword("me-country-zz", "open-sesame"): 503} {
		if status, body := fetch(t, f.client(t, "http", user), "http://shop.example/"); status != want {
			t.Errorf("%v: got %d %s, want %d", user, status, body, want)
		}
	}
	w := httptest.NewRecorder()
	metrics.Handler(f.gateway).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{
		"muster_gateway_requests_total 2", "muster_gateway_tunnels_total 2", `muster_gateway_failures_total{reason="refused"} 1`,
		`muster_gateway_failures_total{reason="no_proxy"} 1`, `muster_gateway_failures_total{reason="failed"} 0`, "muster_gateway_clients ",
	} {
		if !strings.Contains(w.Body.String(), "\n"+line) {
			t.Errorf("missing %s in\n%s", line, w.Body)
		}
	}
}

func TestNonLoopbackAddressRequiresKeys(t *testing.T) {
	t.Parallel()
	pool := &proxies.Pool{}
	for listen, ok := range map[string]bool{"127.0.0.1:0": true, "[::1]:0": true, "localhost:0": true, "0.0.0.0:0": false, ":0": false, "192.168.1.5:1": false, "nonsense": false} {
		if _, err := New(Config{Pool: pool, Listen: listen}); (err == nil) != ok {
			t.Errorf("%s: got %v, want accepted: %t", listen, err, ok)
		}
	}
	testutil.Must(New(Config{Pool: pool, Listen: "0.0.0.0:0", Keys: []string{"12345678"}}))(t)
}

// Requests reach the site unmodified: no added headers, no credentials, bodies of any size.
func TestRequestsAreForwardedUnmodified(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{Keys: []string{"open-sesame"}}, kinds(1, proxytest.Elite)...)
	client := f.client(t, "http", url.UserPassword("me", "open-sesame"))
	_, headers := fetch(t, client, "http://shop.example/headers")
	for _, word := range []string{"Via", "Forwarded", "Proxy", "Muster", "open-sesame"} {
		if strings.Contains(headers, word) {
			t.Errorf("the site received %s:\n%s", word, headers)
		}
	}
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	response := testutil.Must(client.Post("http://shop.example/echo", "application/octet-stream", bytes.NewReader(body)))(t)
	defer response.Body.Close()
	if got, err := io.ReadAll(response.Body); err != nil || !bytes.Equal(got, body) {
		t.Errorf("got %d of %d bytes back, %v", len(got), len(body), err)
	}
}

// An event is forwarded immediately, before the end of the response.
func TestStreaming(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, kinds(1, proxytest.SOCKS5)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://shop.example/stream", nil)
	response := testutil.Must(f.client(t, "http", nil).Do(request))(t)
	defer response.Body.Close()
	first := make([]byte, 8)
	if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != "event 0\n" {
		t.Errorf("got %q %v", first, err)
	}
}

// BenchmarkGateway compares requests for 10 kB by 16 clients through the gateway and eight proxies with requests
// through the same proxies without the gateway.
func BenchmarkGateway(b *testing.B) {
	for name, secure := range map[string]bool{"http": false, "https": true} {
		b.Run(name, func(b *testing.B) { benchGateway(b, secure) })
	}
}

func benchGateway(b *testing.B, secure bool) {
	f := newFront(b, Config{}, kinds(8, proxytest.Elite)...)
	site := f.site
	if secure {
		site = f.secure
	}
	var upstream []*url.URL
	for _, p := range f.proxies {
		upstream = append(upstream, p.URL)
	}
	go f.pool.Run(b.Context())
	fetch := func(via ...*url.URL) func() {
		return func() {
			var clients errgroup.Group
			for c := range 16 {
				clients.Go(func() error {
					transport := site.Client().Transport.(*http.Transport).Clone()
					transport.Proxy = http.ProxyURL(via[c%len(via)])
					defer transport.CloseIdleConnections()
					client := &http.Client{Transport: transport}
					for range (b.N + c) / 16 {
						resp, err := client.Get(site.URL + "/big")
						if err != nil {
							return err
						}
						n, err := io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
						if err != nil || n != int64(len(big)) {
							return fmt.Errorf("got %d bytes, error %w", n, err)
						}
					}
					return nil
				})
			}
			testutil.Ok(b, clients.Wait())
		}
	}
	b.ResetTimer()
	fetch(&url.URL{Scheme: "http", Host: f.addr})()
	b.StopTimer()
	redistest.Baseline(b, "direct", fetch(upstream...))
}

// fronts maps the protocols of the gateway to a scheme and a target.
var fronts = map[string][2]string{"http": {"http", "http://shop.example/"}, "CONNECT": {"http", "https://example.com/"}, "SOCKS5": {"socks5", "https://example.com/"}}

// Without a proxy the fallback applies to HTTP, CONNECT and SOCKS5. FallbackDirect does not connect to a name that resolves to loopback
// unless the filter allows it.
func TestFallback(t *testing.T) {
	t.Parallel()
	for name, front := range fronts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			local := testutil.Must(addressfilter.New("127.0.0.1"))(t)
			for _, filter := range []*addressfilter.Filter{nil, local} {
				direct := newFront(t, Config{Fallback: proxies.FallbackDirect, Filter: filter})
				target := direct.site.URL
				if name != "http" {
					target = direct.secure.URL
				}
				if status, body := fetch(t, direct.client(t, front[0], nil), target); (filter != nil) != (status == 200 && body == "127.0.0.1") {
					t.Errorf("direct: got %d %q, want a direct response: %t", status, body, filter != nil)
				}
				for _, host := range []string{"inside.test", "localhost", "[::ffff:127.0.0.1]"} {
					if status, body := fetch(t, direct.client(t, front[0], nil), strings.Replace(target, "127.0.0.1", host, 1)); filter == nil && status == 200 {
						t.Errorf("%s: got %q, want a rejection", host, body)
					}
				}
			}
			fail := newFront(t, Config{Fallback: proxies.FallbackFail, Options: proxies.PickOptions{Wait: time.Minute}})
			status, body := fetch(t, fail.client(t, front[0], nil), front[1])
			if status == 200 || fail.gateway.noProxy.Load() != 1 || name == "http" && (status != http.StatusServiceUnavailable || !strings.Contains(body, "muster proxies refresh")) {
				t.Errorf("fail: got %d %q, want a no-proxy error with advice", status, body)
			}
		})
	}
}

// With FallbackWait no client is rejected while proxies are busy.
func TestFallbackWaitServesAllClients(t *testing.T) {
	t.Parallel()
	for name, front := range fronts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFront(t, Config{Fallback: proxies.FallbackWait, Options: proxies.PickOptions{Wait: time.Minute}}, proxytest.Options{Kind: proxytest.Elite, Delay: 20 * time.Millisecond})
			client := f.client(t, front[0], nil)
			client.Timeout = time.Minute
			var group sync.WaitGroup
			for range 50 { // a proxy carries 32
				group.Go(func() {
					if status, body := fetch(t, client, front[1]); status != 200 {
						t.Errorf("got %d %q, want 200", status, body)
					}
				})
			}
			group.Wait()
		})
	}
}
