package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"muster/internal/testutil"
	"muster/proxies/proxytest"
	"muster/sites/definition"
)

// TestClosedWorldLeavesNoGoroutines starts and closes a world: no goroutine and no listener remains.
func TestClosedWorldLeavesNoGoroutines(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	w := testutil.Must(Start(t.Context(), Config{Dir: t.TempDir()}))(t)
	where := w.URL(w.Shop)
	testutil.Ok(t, w.Close())
	if res, err := http.Get(where); err == nil {
		res.Body.Close()
		t.Errorf("%s still answers", where)
	}
}

// TestSitesRequireProxies fetches a page through one proxy of each usable kind. It fails without a proxy, because only the
// proxies resolve the names of the sites. Each proxy has a distinct exit address.
func TestSitesRequireProxies(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.Shop.Calm()

	seen := map[proxytest.Kind]bool{}
	for _, p := range w.Proxies {
		if !p.Expect().Usable() || p.URL.Scheme != "http" && p.URL.Scheme != "socks5" || p.Kind == proxytest.ConnectOnly || p.Kind == proxytest.Rotating || seen[p.Kind] {
			continue // not supported by net/http, or without an address
		}
		seen[p.Kind] = true
		before := w.Shop.Traffic().Exits[p.Exit]
		body, err := fetch(t.Context(), "http://shop.example/", p.URL)
		if err != nil {
			t.Errorf("through %s: %v", p.Kind, err)
			continue
		}
		if !strings.Contains(body, "Lantern") {
			t.Errorf("through %s came %.80q", p.Kind, body)
		}
		if got := w.Shop.Traffic().Exits[p.Exit]; got != before+1 {
			t.Errorf("%s left by another address than %s: %v", p.Kind, p.Exit, w.Shop.Traffic().Exits)
		}
	}
	for _, kind := range []proxytest.Kind{proxytest.Elite, proxytest.Anonymous, proxytest.SOCKS5, proxytest.Slow, proxytest.ForwardOnly} {
		if !seen[kind] {
			t.Errorf("no %s proxy was used", kind)
		}
	}
	if _, own := w.Shop.Traffic().Exits[netip.MustParseAddr("127.0.0.1")]; own {
		t.Error("a request came without a proxy")
	}
}

// TestListsContainAllProxies reads the three lists like a collector.
func TestListsContainAllProxies(t *testing.T) {
	t.Parallel()
	w := start(t)
	if len(w.Proxies) < 40 {
		t.Errorf("%d proxies, want at least 40", len(w.Proxies))
	}
	kinds, exits, usable := map[proxytest.Kind]bool{}, map[netip.Addr]bool{}, 0
	for _, p := range w.Proxies {
		kinds[p.Kind], exits[p.Exit] = true, true
		if p.Expect().Usable() {
			usable++
		}
	}
	for _, kind := range []proxytest.Kind{
		proxytest.Elite, proxytest.Anonymous, proxytest.Transparent, proxytest.ConnectOnly, proxytest.SOCKS5,
		proxytest.OwnNetwork, proxytest.Dead, proxytest.Silent, proxytest.Slow, proxytest.Parking,
	} {
		if !kinds[kind] {
			t.Errorf("no %s proxy", kind)
		}
	}
	if usable < 15 {
		t.Errorf("%d proxies are usable, want at least 15", usable)
	}
	if len(exits) < 40 {
		t.Errorf("%d exit addresses, want one each", len(exits))
	}

	var lists []string
	for _, source := range w.Sources {
		if !strings.HasPrefix(source, "http") {
			raw := testutil.Must(os.ReadFile(source))(t)
			lists = append(lists, string(raw))
			continue
		}
		body := testutil.Must(fetch(t.Context(), source, nil))(t)
		lists = append(lists, body)
	}
	for _, p := range w.Proxies {
		port := p.URL.Port()
		n := 0
		for _, l := range lists {
			if strings.Contains(l, ":"+port) || strings.Contains(l, `"port": `+port) {
				n++
			}
		}
		if n == 0 {
			t.Errorf("no list contains %s", p.URL.Redacted())
		}
	}
}

func TestDefinitionsLoad(t *testing.T) {
	t.Parallel()
	w := start(t)
	got := definition.NewSet()
	if err := definition.LoadDir(got, w.Definitions); err != nil || len(got.Broken) > 0 {
		t.Fatal(err, got.Broken)
	}
	if len(got.Valid) != len(w.Sites()) {
		t.Fatalf("%d definitions, want %d", len(got.Valid), len(w.Sites()))
	}
	for _, d := range got.Valid {
		if d.Proxy.Fallback != definition.FallbackFail {
			t.Errorf("%s may be fetched without a proxy", d.Site)
		}
	}
}

func TestStartRequiresADirectory(t *testing.T) {
	t.Parallel()
	if w, err := Start(t.Context(), Config{Dir: t.TempDir() + "/missing"}); err == nil {
		w.Close()
		t.Error("a world without a directory started")
	}
}

func start(t *testing.T) *World {
	t.Helper()
	w := testutil.Must(Start(t.Context(), Config{Dir: t.TempDir()}))(t)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("close the world: %v", err)
		}
	})
	return w
}

func fetch(ctx context.Context, target string, proxy *url.URL) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	transport := &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return "", err
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", res.StatusCode)
	}
	return string(body), err
}
