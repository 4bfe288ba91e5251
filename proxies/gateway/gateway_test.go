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
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"encoding/pem"

	"golang.org/x/net/proxy"

	"muster/internal/addressfilter"
	"muster/internal/dnstest"
	"muster/proxies"
	"muster/proxies/probe"
	"muster/proxies/proxytest"
	"muster/tasks/metrics"
	"muster/tasks/redistest"
)

// TestMain makes names below .test stand for loopback.
func TestMain(m *testing.M) {
	net.DefaultResolver = dnstest.Resolver(dnstest.Loopback)
	redistest.Main(m)
}

// front is a gateway before some proxies, and a site under names that only they resolve.
type front struct {
	gateway *Gateway
	addr    string
	pool    *proxies.Pool
	proxies []*proxytest.Proxy
	site    *httptest.Server
	secure  *httptest.Server
}

func newFront(t *testing.T, cfg Config, kinds ...proxytest.Options) *front {
	t.Helper()
	f := &front{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		switch r.URL.Path {
		case "/headers":
			_ = r.Header.Write(w)
		case "/echo":
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write(body)
		case "/stream":
			for i := range 3 {
				fmt.Fprintf(w, "event %d\n", i)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done() // only the first is ever needed
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
		p, err := proxytest.Start(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		f.proxies = append(f.proxies, p)
		pair := netip.MustParseAddrPort(p.URL.Host)
		member := proxies.Proxy{Protocol: p.URL.Scheme, Host: pair.Addr().String(), Port: pair.Port(), Exit: o.Exit, Anonymity: probe.Elite, LatencyMS: float64(i + 1),
			Country: []string{"BG", "RO"}[i%2], Can: probe.Capabilities{Forward: p.URL.Scheme == "http" && o.Kind != proxytest.ConnectOnly, Connect: true}}
		if _, err := f.pool.Add(t.Context(), member); err != nil {
			t.Fatal(err)
		}
	}

	cfg.Pool, cfg.Listen = f.pool, "127.0.0.1:0"
	var err error
	if f.gateway, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	listening, done := make(chan net.Addr, 1), make(chan error, 1)
	go func() { done <- f.gateway.Run(ctx, func(a net.Addr) { listening <- a }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := f.gateway.Stats().Active; n != 0 {
			t.Errorf("%d connections are left", n)
		}
	})
	f.addr = (<-listening).String()
	return f
}

// client goes by the gateway, with a user.
func (f *front) client(t *testing.T, scheme string, user *url.Userinfo) *http.Client {
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
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return response.StatusCode, string(text)
}

func kinds(n int, kind ...proxytest.Kind) (out []proxytest.Options) {
	for i := range n {
		out = append(out, proxytest.Options{Kind: kind[i%len(kind)]})
	}
	return out
}

// HTTP, CONNECT and SOCKS5 all rotate over the pool.
func TestFronts(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{Options: proxies.PickOptions{Strategy: proxies.RoundRobin}}, kinds(6, proxytest.Elite, proxytest.SOCKS5, proxytest.ConnectOnly)...)
	for scheme, target := range map[string]string{"http": "http://shop.example/", "http ": "https://example.com/", "socks5": "http://shop.example/", "socks5 ": "https://example.com/"} {
		client := f.client(t, strings.TrimSpace(scheme), nil)
		seen := map[string]bool{}
		for range 12 {
			status, body := fetch(t, client, target)
			if status != 200 || !strings.HasPrefix(body, "127.16.") {
				t.Fatalf("%s %s: got %d %q", scheme, target, status, body)
			}
			seen[body] = true
		}
		if len(seen) < 4 {
			t.Errorf("%s %s: only %d of 6 proxies were used", scheme, target, len(seen))
		}
	}
	stats := f.gateway.Stats()
	if stats.Requests != 12 || stats.Tunnels != 36 || stats.Failed != 0 {
		t.Errorf("got %+v", stats)
	}
}

// A session keeps its proxy; a country is a wish that is kept; what is no wish is refused.
func TestWishesInTheUserName(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, kinds(8, proxytest.Elite)...)
	for _, scheme := range []string{"http", "socks5"} {
		seen := map[string]bool{}
		for range 10 {
			_, body := fetch(t, f.client(t, scheme, url.UserPassword("me-session-"+scheme, "x")), "http://shop.example/")
			seen[body] = true
		}
		if len(seen) != 1 {
			t.Errorf("%s: the session went by %v", scheme, seen)
		}
	}
	for range 10 { // Bulgarian ones have even numbers
		_, body := fetch(t, f.client(t, "http", url.UserPassword("me-country-bg", "x")), "http://shop.example/")
		if addr, err := netip.ParseAddr(body); err != nil || (addr.As4()[2]-1)%2 != 0 {
			t.Errorf("got %s, which is not in Bulgaria", body)
		}
	}
	if status, body := fetch(t, f.client(t, "http", url.UserPassword("me-colour-red", "x")), "http://shop.example/"); status != http.StatusProxyAuthRequired || !strings.Contains(body, "no wish") {
		t.Errorf("got %d %q", status, body)
	}
	if status, _ := fetch(t, f.client(t, "http", url.UserPassword("me-country-zz", "x")), "http://shop.example/"); status != http.StatusServiceUnavailable {
		t.Errorf("got %d for a country that nobody is in", status)
	}
}

// Every request needs the key when there is one: also the second on a connection, also CONNECT and SOCKS5.
func TestKeys(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{Keys: []string{"sesame"}}, kinds(2, proxytest.Elite)...)
	good, bad := url.UserPassword("me", "sesame"), url.UserPassword("me", "wrong")
	for _, scheme := range []string{"http", "socks5"} {
		for _, target := range []string{"http://shop.example/", "https://example.com/"} {
			if status, body := fetch(t, f.client(t, scheme, good), target); status != 200 {
				t.Errorf("%s %s: got %d %s", scheme, target, status, body)
			}
			for _, user := range []*url.Userinfo{bad, nil} {
				if status, _ := fetch(t, f.client(t, scheme, user), target); status == 200 {
					t.Errorf("%s %s: let in with %v", scheme, target, user)
				}
			}
		}
	}

	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	auth := base64.StdEncoding.EncodeToString([]byte("me:sesame"))
	fmt.Fprintf(conn, "GET http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\nProxy-Authorization: Basic %s\r\n\r\nGET http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n", auth)
	both, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(both), "HTTP/1.1 200") || !strings.Contains(string(both), "HTTP/1.1 407") {
		t.Errorf("got %q %v", both, err)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{Keys: []string{"sesame"}}, kinds(2, proxytest.Elite)...)
	good := url.UserPassword("me", "sesame")
	for _, scheme := range []string{"http", "socks5"} {
		if status, body := fetch(t, f.client(t, scheme, good), "https://example.com/"); status != 200 {
			t.Fatalf("got %d %s", status, body)
		}
	}
	for user, want := range map[*url.Userinfo]int{good: 200, nil: 407, url.UserPassword("me-country-zz", "sesame"): 503} {
		if status, body := fetch(t, f.client(t, "http", user), "http://shop.example/"); status != want {
			t.Errorf("%v: got %d %s", user, status, body)
		}
	}
	w := httptest.NewRecorder()
	metrics.Handler(f.gateway).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{
		"muster_gateway_requests_total 2", "muster_gateway_tunnels_total 2", `muster_gateway_failures_total{reason="refused"} 1`,
		`muster_gateway_failures_total{reason="no_proxy"} 1`, `muster_gateway_failures_total{reason="failed"} 0`, "muster_gateway_clients ",
	} {
		if !strings.Contains(w.Body.String(), "\n"+line) {
			t.Errorf("no %s in\n%s", line, w.Body)
		}
	}
}

func TestOpenToOthersNeedsKeys(t *testing.T) {
	t.Parallel()
	pool := &proxies.Pool{}
	for listen, ok := range map[string]bool{"127.0.0.1:0": true, "[::1]:0": true, "localhost:0": true, "0.0.0.0:0": false, ":0": false, "192.168.1.5:1": false, "nonsense": false} {
		if _, err := New(Config{Pool: pool, Listen: listen}); (err == nil) != ok {
			t.Errorf("%s: got %v", listen, err)
		}
	}
	if _, err := New(Config{Pool: pool, Listen: "0.0.0.0:0", Keys: []string{"k"}}); err != nil {
		t.Error(err)
	}
}

// A proxy that fails is replaced before the client notices, for requests and for tunnels.
func TestRetriesBehindTheScenes(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{Options: proxies.PickOptions{Strategy: proxies.Fastest}},
		proxytest.Options{Kind: proxytest.HangsUp}, proxytest.Options{Kind: proxytest.Dead}, proxytest.Options{Kind: proxytest.Elite})
	for _, target := range []string{"http://shop.example/", "https://example.com/"} {
		if status, body := fetch(t, f.client(t, "http", nil), target); status != 200 || body != proxytest.ExitAddress(2).String() {
			t.Errorf("%s: got %d %q", target, status, body)
		}
	}
}

// Without proxies the client is told, and nothing goes directly.
func TestEmptyPool(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{})
	status, body := fetch(t, f.client(t, "http", nil), f.site.URL)
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "muster proxies refresh") {
		t.Errorf("got %d %q", status, body)
	}
	if status, body := fetch(t, f.client(t, "socks5", nil), f.site.URL); status == 200 {
		t.Errorf("got %d %q", status, body)
	}
	if n := f.gateway.Stats().NoProxy; n != 2 {
		t.Errorf("counted %d", n)
	}
}

// What the client sends reaches the site as it is: nothing added, no credentials, bodies of any size both ways.
func TestNothingIsAddedOrLost(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{Keys: []string{"sesame"}}, kinds(1, proxytest.Elite)...)
	client := f.client(t, "http", url.UserPassword("me", "sesame"))
	_, headers := fetch(t, client, "http://shop.example/headers")
	for _, word := range []string{"Via", "Forwarded", "Proxy", "Muster", "sesame"} {
		if strings.Contains(headers, word) {
			t.Errorf("the site saw %s:\n%s", word, headers)
		}
	}
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	response, err := client.Post("http://shop.example/echo", "application/octet-stream", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got, err := io.ReadAll(response.Body); err != nil || !bytes.Equal(got, body) {
		t.Errorf("got %d of %d bytes back, %v", len(got), len(body), err)
	}
}

// An event goes through when it comes, not when the answer ends.
func TestStreaming(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, kinds(1, proxytest.SOCKS5)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://shop.example/stream", nil)
	response, err := f.client(t, "http", nil).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	first := make([]byte, 8)
	if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != "event 0\n" {
		t.Errorf("got %q %v", first, err)
	}
}

// Half a greeting, noise and endless headers end without harm.
func TestBadClients(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, kinds(1, proxytest.Elite)...)
	var group sync.WaitGroup
	for _, text := range []string{"", "\x05", "\x05\x01", "\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50", "\x05\x01\x00\x05\x01\x00\x09", "\x04\x01", "GET / HTTP/1.1\r\n\r\n",
		"\xff\xfe\xfd\r\n\r\n", "CONNECT nowhere HTTP/1.1\r\nHost: nowhere\r\n\r\n", "GET http://shop.example/ HTTP/1.1\r\n" + strings.Repeat("X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n", 5000)} {
		group.Go(func() {
			conn, err := net.Dial("tcp", f.addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, text)
			_ = conn.(*net.TCPConn).CloseWrite()
			_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
			_, _ = io.Copy(io.Discard, conn)
		})
	}
	group.Wait()
	if status, _ := fetch(t, f.client(t, "http", nil), "http://shop.example/"); status != 200 {
		t.Errorf("got %d afterwards", status)
	}
}

// curl uses it as it is.
func TestCurl(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("no curl here")
	}
	f := newFront(t, Config{Keys: []string{"sesame"}}, kinds(2, proxytest.Elite, proxytest.SOCKS5)...)
	roots := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-x", "http://me:sesame@" + f.addr, "http://shop.example/"},
		{"-x", "http://me-session-1:sesame@" + f.addr, "--cacert", roots, "https://example.com/"},
		{"-x", "socks5h://me:sesame@" + f.addr, "http://shop.example/"},
		{"-x", "socks5h://me:sesame@" + f.addr, "--cacert", roots, "https://example.com/"},
	} {
		out, err := exec.CommandContext(t.Context(), curl, append([]string{"-sS", "--fail", "--max-time", "20", "--noproxy", ""}, args...)...).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "127.16.") {
			t.Errorf("curl %v: got %q %v", args, out, err)
		}
	}
}

// golang.org/x/net/proxy is a SOCKS5 client that is not ours.
func TestForeignSOCKSClient(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{Keys: []string{"sesame"}}, kinds(1, proxytest.Elite)...)
	dialer, err := proxy.SOCKS5("tcp", f.addr, &proxy.Auth{User: "me", Password: "sesame"}, proxy.Direct)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := dialer.Dial("tcp", "shop.example:80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.0\r\nHost: shop.example\r\n\r\n")
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(answer), proxytest.ExitAddress(0).String()) {
		t.Errorf("got %q %v", answer, err)
	}
}

// fronts are the ways to ask a gateway, with a target for each.
var fronts = map[string][2]string{"http": {"http", "http://shop.example/"}, "CONNECT": {"http", "https://example.com/"}, "SOCKS5": {"socks5", "https://example.com/"}}

// Without a proxy, the fallback says what happens, for http, CONNECT and SOCKS5 alike.
func TestFallback(t *testing.T) {
	t.Parallel()
	for name, front := range fronts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, local := range []bool{true, false} {
				var filter *addressfilter.Filter
				if local {
					filter, _ = addressfilter.New("127.0.0.1")
				}
				direct := newFront(t, Config{Fallback: proxies.FallbackDirect, Filter: filter})
				target := direct.site.URL
				if name != "http" {
					target = direct.secure.URL
				}
				if status, body := fetch(t, direct.client(t, front[0], nil), target); local != (status == 200 && body == "127.0.0.1") {
					t.Errorf("direct: got %d %q, want an answer to this machine: %t", status, body, local)
				}
			}
			fail := newFront(t, Config{Fallback: proxies.FallbackFail, Options: proxies.PickOptions{Wait: time.Minute}})
			if status, body := fetch(t, fail.client(t, front[0], nil), front[1]); status == 200 || fail.gateway.Stats().NoProxy != 1 {
				t.Errorf("fail: got %d %q, want that there is no proxy", status, body)
			}
		})
	}
}

// A name that stands for loopback is not let in by the fallback direct either.
func TestFallbackDirectChecksWhatNamesStandFor(t *testing.T) {
	t.Parallel()
	for name, front := range fronts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFront(t, Config{Fallback: proxies.FallbackDirect})
			for _, host := range []string{"inside.test", "localhost", "[::ffff:127.0.0.1]"} {
				target := strings.Replace(f.site.URL, "127.0.0.1", host, 1)
				if name != "http" {
					target = strings.Replace(f.secure.URL, "127.0.0.1", host, 1)
				}
				if status, body := fetch(t, f.client(t, front[0], nil), target); status == 200 {
					t.Errorf("%s: got %q, want a refusal", target, body)
				}
			}
		})
	}
}

// With the fallback wait nobody is turned away while proxies are busy.
func TestFallbackWaitServesEverybody(t *testing.T) {
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

// Targets that cannot exist are refused without asking a proxy, and cannot put a header into what a proxy is sent.
func TestImpossibleTargets(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, kinds(1, proxytest.Elite)...)
	for _, host := range []string{"a..b", ".", strings.Repeat("a.", 127) + "a"} {
		for _, text := range []string{"CONNECT " + host + ":443 HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://" + host + "/ HTTP/1.1\r\nHost: x\r\n\r\n"} {
			_, in := f.talk(t, text)
			if r, body := answerTo(t, in, http.MethodGet); r.StatusCode != http.StatusBadRequest || !strings.Contains(body, "target address") {
				t.Errorf("%.40q: got %s %q, want 400", text, r.Status, body)
			}
		}
	}
	for _, text := range []string{"CONNECT shop.example:0 HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT shop.example HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://shop.example:0/ HTTP/1.1\r\nHost: x\r\n\r\n"} {
		_, in := f.talk(t, text)
		if r, _ := answerTo(t, in, http.MethodGet); r.StatusCode != http.StatusBadRequest {
			t.Errorf("%.40q: got %s, want 400", text, r.Status)
		}
	}
	for _, host := range []string{"a b", "a..b", "x:80\r\nX-Injected: yes\r\n\r\n", "a\x00b", "a\tb"} {
		_, in := f.talk(t, "\x05\x01\x00\x05\x01\x00\x03"+string(rune(len(host)))+host+"\x00\x50")
		answer := make([]byte, 4)
		if _, err := io.ReadFull(in, answer); err != nil || string(answer) != "\x05\x00\x05\x04" {
			t.Errorf("SOCKS5 %q: got %q %v, want host unreachable", host, answer, err)
		}
	}
	if n := f.proxies[0].Requests(); n != 0 {
		t.Errorf("got %d requests at the proxy, want none", n)
	}
}

// A URL that cannot be read is refused without repeating it: there may be a password in it.
func TestBadURLIsNotRepeated(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{}, kinds(1, proxytest.Elite)...)
	_, in := f.talk(t, "GET http://me:topsecret@shop.example:port/ HTTP/1.1\r\nHost: x\r\n\r\n")
	if r, body := answerTo(t, in, http.MethodGet); r.StatusCode != http.StatusBadRequest || strings.Contains(body, "topsecret") {
		t.Errorf("got %s %q, want 400 without the password", r.Status, body)
	}
}

// The name of the scheme of authorization may be written in any case.
func TestBasicInAnyCase(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{Keys: []string{"sesame"}}, kinds(1, proxytest.Elite)...)
	auth := base64.StdEncoding.EncodeToString([]byte("me:sesame"))
	for _, scheme := range []string{"Basic ", "basic ", "BASIC  "} {
		_, in := f.talk(t, "GET http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\nProxy-Authorization: "+scheme+auth+"\r\n\r\n")
		if r, body := answerTo(t, in, http.MethodGet); r.StatusCode != 200 {
			t.Errorf("%q: got %s %q, want 200", scheme, r.Status, body)
		}
	}
}

// A client that has said all it has to say gets what the target answers to it, however late.
func TestHalfClosedTunnelGetsItsAnswer(t *testing.T) {
	t.Parallel()
	for _, kind := range []proxytest.Kind{proxytest.Elite, proxytest.SOCKS5, proxytest.OverTLS} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			f := newFront(t, Config{}, kinds(1, kind)...)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				all, _ := io.ReadAll(conn) // up to the end of what the client says
				fmt.Fprintf(conn, "got %s", all)
			}()
			conn, in := f.talk(t, fmt.Sprintf("CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", l.Addr()))
			if r, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect}); err != nil || r.StatusCode != 200 {
				t.Fatalf("got %v %v, want a tunnel", r, err)
			}
			_, _ = io.WriteString(conn, "all of it")
			_ = conn.(*net.TCPConn).CloseWrite()
			if answer, err := io.ReadAll(in); err != nil || string(answer) != "got all of it" {
				t.Errorf("got %q %v, want the answer", answer, err)
			}
		})
	}
}
