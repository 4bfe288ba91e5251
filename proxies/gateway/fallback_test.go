package gateway

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/addressfilter"
	"muster/internal/testutil"
	"muster/proxies"
	"muster/proxies/proxytest"
)

// fronts maps the protocols of the gateway to a scheme and a target.
var fronts = map[string][2]string{"http": {"http", "http://shop.example/"}, "CONNECT": {"http", "https://example.com/"}, "SOCKS5": {"socks5", "https://example.com/"}}

// Without a proxy the fallback applies to HTTP, CONNECT and SOCKS5. FallbackDirect does not connect to a name that resolves to loopback
// unless the filter allows it.
func TestFallback(t *testing.T) {
	t.Parallel()
	for name, front := range fronts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			local, err := addressfilter.New("127.0.0.1")
			testutil.Ok(t, err)
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
			if status == 200 || fail.gateway.Stats().NoProxy != 1 || name == "http" && (status != http.StatusServiceUnavailable || !strings.Contains(body, "muster proxies refresh")) {
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
