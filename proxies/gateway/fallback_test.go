package gateway

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/addressfilter"
	"muster/proxies"
	"muster/proxies/proxytest"
)

// fronts maps the protocols of the gateway to a scheme and a target.
var fronts = map[string][2]string{"http": {"http", "http://shop.example/"}, "CONNECT": {"http", "https://example.com/"}, "SOCKS5": {"socks5", "https://example.com/"}}

// Without a proxy the fallback applies to HTTP, CONNECT and SOCKS5.
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
					t.Errorf("direct: got %d %q, want a direct response: %t", status, body, local)
				}
			}
			fail := newFront(t, Config{Fallback: proxies.FallbackFail, Options: proxies.PickOptions{Wait: time.Minute}})
			if status, body := fetch(t, fail.client(t, front[0], nil), front[1]); status == 200 || fail.gateway.Stats().NoProxy != 1 {
				t.Errorf("fail: got %d %q, want a no-proxy error", status, body)
			}
		})
	}
}

// FallbackDirect does not connect to a name that resolves to loopback.
func TestFallbackDirectChecksResolvedAddresses(t *testing.T) {
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
					t.Errorf("%s: got %q, want a rejection", target, body)
				}
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

// With an empty pool clients receive an error, and no request is sent directly.
func TestEmptyPool(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{})
	status, body := fetch(t, f.client(t, "http", nil), f.site.URL)
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "muster proxies refresh") {
		t.Errorf("got %d %q, want 503 and advice", status, body)
	}
	if status, body := fetch(t, f.client(t, "socks5", nil), f.site.URL); status == 200 {
		t.Errorf("got %d %q, want a failure", status, body)
	}
	if n := f.gateway.Stats().NoProxy; n != 2 {
		t.Errorf("counted %d", n)
	}
}
