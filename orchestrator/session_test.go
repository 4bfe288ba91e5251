package orchestrator

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"muster/internal/testutil"
	"muster/proxies"
	"muster/proxies/proxytest"
	"muster/sites/fetch"
)

// club is a site that serves pages only to visitors with a cookie from the door page, and only a few pages to each visitor.
type club struct {
	pages, each int

	mu      sync.Mutex // guards the fields below
	members map[string]*clubMember
	broken  []string // violations of the session rules
}

type clubMember struct {
	peer, agent string
	pages       int
	banned      bool
}

func (c *club) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	peer, _, _ := net.SplitHostPort(r.RemoteAddr)
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.URL.Path == "/door" {
		name := fmt.Sprint("m", len(c.members))
		c.members[name] = &clubMember{peer: peer, agent: r.UserAgent()}
		http.SetCookie(w, &http.Cookie{Name: "member", Value: name, Path: "/"})
		http.Redirect(w, r, "/hall", http.StatusFound)
		return
	}
	cookie, err := r.Cookie("member")
	if err != nil || c.members[cookie.Value] == nil {
		w.WriteHeader(http.StatusForbidden)
		c.broken = append(c.broken, r.URL.Path+" without a cookie, from "+peer)
		return
	}
	m := c.members[cookie.Value]
	if m.peer != peer || m.agent != r.UserAgent() {
		c.broken = append(c.broken, fmt.Sprintf("%s is %s %s and was %s %s", cookie.Value, peer, r.UserAgent(), m.peer, m.agent))
	}
	if m.banned {
		c.broken = append(c.broken, cookie.Value+" was used after it was rejected")
	}
	if r.URL.Path == "/hall" {
		return
	}
	if m.pages == c.each {
		m.banned = true
		w.WriteHeader(http.StatusForbidden)
		return
	}
	m.pages++
	w.Header().Set("Content-Type", "text/html")
	var n int
	switch {
	case r.URL.Path == "/":
		for i := range c.pages {
			_, _ = fmt.Fprintf(w, `<a class=to href="/p/%d">p</a> `, i)
		}
	case func() bool { _, err := fmt.Sscanf(r.URL.Path, "/p/%d", &n); return err == nil }():
		_, _ = fmt.Fprintf(w, "<h1>Page %d</h1><p>%s</p>", n, strings.Repeat("words ", 50))
	}
}

// A site that binds its cookie to address and browser, and rejects each visitor after a few pages, is scraped completely.
// Each visitor keeps its identity, and none is used after a rejection.
func TestSessionsThroughProxies(t *testing.T) {
	t.Parallel()
	c := &club{pages: 40, each: 9, members: map[string]*clubMember{}}
	server := testutil.Serve(t, c)
	cfg := settings(t)
	cfg.Proxies.MinUsable = 1
	cfg.Sites.Dir = t.TempDir()
	definition := "site: club\nbase_url: http://club.example\nstart: [/]\nlisting: {links: a.to}\npoliteness: {robots: false, delay: 0, max_per_domain: 1}\nretries: {base: 10ms}\n" +
		"records:\n  page: {key: [name], fields: {name: {css: h1, required: true}}}\n" +
		"session: {start: /door}\n"
	testutil.Ok(t, os.WriteFile(filepath.Join(cfg.Sites.Dir, "club.yaml"), []byte(definition), 0o600))
	hosts := proxytest.Hosts{"club.example:80": server.Listener.Addr().String()}
	err := Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
		for i := range 20 {
			kind := []proxytest.Kind{proxytest.Elite, proxytest.SOCKS5}[i%2]
			p, err := proxytest.Start(proxytest.Options{Kind: kind, Exit: proxytest.ExitAddress(i), Hosts: hosts})
			if err != nil {
				return err
			}
			t.Cleanup(p.Close)
			address := netip.MustParseAddrPort(p.URL.Host)
			if _, err := o.Pool.Add(ctx, proxies.Proxy{Candidate: proxies.Candidate{Protocol: p.URL.Scheme, Host: address.Addr().String(), Port: address.Port()}}); err != nil {
				return err
			}
		}
		scraped, err := o.Scraper.Scrape(ctx, "club", ScrapeOptions{})
		if err != nil {
			return err
		}
		if scraped.Records != c.pages || scraped.Errors != 0 {
			t.Errorf("got %+v, want %d records and no errors", scraped, c.pages)
		}
		return nil
	})
	testutil.Ok(t, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.broken {
		t.Error(b)
	}
	if len(c.members) < 4 {
		t.Errorf("the site saw %d visitors", len(c.members))
	}
}

// Failures of proxies do not count as failures of the site.
func TestDeadProxiesDoNotCountForTheSite(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	err := Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
		closed := uint16(testutil.FreePort(t))
		if _, err := o.Pool.Add(ctx, proxies.Proxy{Candidate: proxies.Candidate{Protocol: "http", Host: "127.0.0.1", Port: closed}}); err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://shop.example/", nil)
		if err != nil {
			return err
		}
		response, err := o.Pool.Transport("shop", proxies.TransportOptions{}).RoundTrip(request)
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
		if class := fetch.ClassOf(err); class != fetch.Proxy {
			t.Errorf("got %s for %v, want %s", class, err, fetch.Proxy)
		}
		return nil
	})
	testutil.Ok(t, err)
}
