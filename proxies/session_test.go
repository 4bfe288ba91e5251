package proxies

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/proxies/proxytest"
)

// visit is a request of a session, and the address and the connection that the site saw.
func visit(ctx context.Context, rt http.RoundTripper, s *Session, url string) (peer, conn string, err error) {
	request, err := http.NewRequestWithContext(s.Bind(ctx), http.MethodGet, url, nil)
	if err != nil {
		return "", "", err
	}
	response, err := rt.RoundTrip(request)
	if err != nil {
		return "", "", err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return "", "", err
	}
	return response.Header.Get("X-Peer"), response.Header.Get("X-Conn"), nil
}

var bothSchemes = []string{"http://shop.example/", "https://example.com/"}

// All requests of a session come from one address, whatever their scheme and however many begin at once; two sessions
// come from two, as long as there are enough.
func TestASessionKeepsToOneProxy(t *testing.T) {
	t.Parallel()
	b := newBench(t, hello, nil)
	b.add(t, proxytest.Options{Kind: proxytest.Elite}, proxytest.Options{Kind: proxytest.SOCKS5}, proxytest.Options{Kind: proxytest.ConnectOnly}, proxytest.Options{Kind: proxytest.ForwardOnly})
	rt := b.pool.Transport("shop", TransportOptions{})
	var all []string
	for range 3 {
		s := b.pool.Session(nil)
		t.Cleanup(s.Close)
		var mu sync.Mutex
		var peers []string
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				peer, _, err := visit(t.Context(), rt, s, bothSchemes[i%2])
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				peers = append(peers, peer)
			})
		}
		wg.Wait()
		if slices.Sort(peers); len(slices.Compact(peers)) != 1 {
			t.Errorf("the site saw one session from %v", slices.Compact(peers))
		}
		all = append(all, peers[0])
	}
	if slices.Sort(all); len(slices.Compact(all)) != 3 {
		t.Errorf("the site saw three sessions from %v", all)
	}
}

// No connection carries two sessions, though they share a proxy; one session uses its connections again. What a proxy
// that forwards http requests does on its other side is its own affair.
func TestSessionsShareNoConnection(t *testing.T) {
	t.Parallel()
	for _, kind := range []proxytest.Kind{proxytest.Elite, proxytest.SOCKS5, proxytest.OverTLS} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, hello, nil)
			b.add(t, proxytest.Options{Kind: kind})
			rt := b.pool.Transport("shop", TransportOptions{})
			owner := map[string]*Session{}
			for round := range 4 {
				s, other := b.pool.Session(nil), b.pool.Session(nil)
				for _, url := range bothSchemes {
					if kind != proxytest.SOCKS5 && strings.HasPrefix(url, "http:") {
						continue
					}
					conns := map[string]bool{}
					for i := range 6 {
						who := s
						if i%2 == 1 {
							who = other
						}
						_, conn, err := visit(t.Context(), rt, who, url)
						if err != nil {
							t.Fatal(err)
						}
						if o := owner[conn]; o != nil && o != who {
							t.Errorf("round %d: %s carried two sessions", round, conn)
						}
						owner[conn], conns[conn] = who, true
					}
					// A connection may not be back when the next request is made, on a busy machine.
					if len(conns) < 2 || len(conns) > 5 {
						t.Errorf("two sessions used %d connections for six requests", len(conns))
					}
				}
				s.Close()
				other.Close()
			}
		})
	}
}

// A new session has another proxy than the one before it, and that one again when there is no other.
func TestTheNextSessionHasAnotherProxy(t *testing.T) {
	t.Parallel()
	b := newBench(t, hello, nil)
	ids := b.add(t, proxytest.Options{Kind: proxytest.Elite}, proxytest.Options{Kind: proxytest.Elite})
	rt := b.pool.Transport("shop", TransportOptions{})
	var s *Session
	last := ""
	for i := range 12 {
		s = b.pool.Session(s)
		peer, _, err := visit(t.Context(), rt, s, bothSchemes[i%2])
		if err != nil {
			t.Fatal(err)
		}
		if peer == last {
			t.Errorf("session %d has the proxy of the one before it", i)
		}
		last = peer
		s.Close()
	}
	if err := b.pool.Ban(t.Context(), "shop", time.Hour, ids[0]); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s = b.pool.Session(s)
		peer, _, err := visit(t.Context(), rt, s, bothSchemes[0])
		if err != nil || peer != proxytest.ExitAddress(1).String() {
			t.Errorf("got %s %v, want %s", peer, err, proxytest.ExitAddress(1))
		}
		s.Close()
	}
	if len(b.pool.picker.sessions) > 0 {
		t.Errorf("closed sessions keep %v", b.pool.picker.sessions)
	}
}

// A session whose proxy is banned or dies is over: nothing goes by another. One that has no proxy yet finds one.
func TestASessionEndsWithItsProxy(t *testing.T) {
	t.Parallel()
	b := newBench(t, hello, nil)
	ids := b.add(t, proxytest.Options{Kind: proxytest.Dead}, proxytest.Options{Kind: proxytest.Elite})
	rt := b.pool.Transport("shop", TransportOptions{PickOptions: b.first(ids[0])})
	s := b.pool.Session(nil)
	defer s.Close()
	peer, _, err := visit(t.Context(), rt, s, bothSchemes[0])
	if err != nil || peer != proxytest.ExitAddress(1).String() {
		t.Fatalf("got %s %v, want %s", peer, err, proxytest.ExitAddress(1))
	}
	ids = append(ids, b.add(t, proxytest.Options{Kind: proxytest.Elite, Exit: proxytest.ExitAddress(2)})...)
	b.exits[ids[1]].Close()
	_, _, err = visit(t.Context(), rt, s, bothSchemes[1])
	var f interface {
		ProxyFault() bool
		Via() string
	}
	if !errors.As(err, &f) || !f.ProxyFault() || f.Via() != ids[1] {
		t.Fatalf("got %v, want a fault of %s", err, ids[1])
	}
	before := b.hits.Load()
	for range 3 {
		_, _, err = visit(t.Context(), rt, s, bothSchemes[0])
		var over interface{ Unsent() bool }
		if !errors.As(err, &over) || !over.Unsent() || errors.Is(err, ErrNoProxy) {
			t.Fatalf("got %v, want an unsent request", err)
		}
	}
	if b.hits.Load() != before {
		t.Error("the site was asked by another proxy")
	}

	s2 := b.pool.Session(s)
	defer s2.Close()
	if _, _, err := visit(t.Context(), rt, s2, bothSchemes[0]); err != nil {
		t.Fatal(err)
	}
	if err := b.pool.Ban(t.Context(), "shop", time.Hour, ids[2]); err != nil {
		t.Fatal(err)
	}
	if _, _, err := visit(t.Context(), rt, s2, bothSchemes[0]); !errors.As(err, new(*sessionError)) {
		t.Errorf("got %v after a ban, want a sessionError", err)
	}
}

// A session that went directly stays direct, also when there are proxies again.
func TestASessionStaysDirect(t *testing.T) {
	t.Parallel()
	b := newBench(t, hello, nil)
	direct := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, b.site.Listener.Addr().String())
	}}
	defer direct.CloseIdleConnections()
	rt := b.pool.Transport("shop", TransportOptions{Fallback: FallbackDirect, Direct: direct})
	s := b.pool.Session(nil)
	defer s.Close()
	first, _, err := visit(t.Context(), rt, s, bothSchemes[0])
	if err != nil {
		t.Fatal(err)
	}
	b.add(t, proxytest.Options{Kind: proxytest.Elite})
	if peer, _, err := visit(t.Context(), rt, s, bothSchemes[0]); err != nil || peer != first {
		t.Errorf("got %s %v, want %s", peer, err, first)
	}
	next := b.pool.Session(s)
	defer next.Close()
	if peer, _, err := visit(t.Context(), rt, next, bothSchemes[0]); err != nil || peer == first {
		t.Errorf("got %s %v in the next session, want another than %s", peer, err, first)
	}
}

// What only a proxy can do wrong is said to be its fault; what the target may have caused is not.
func TestErrorsNameTheProxy(t *testing.T) {
	t.Parallel()
	for kind, sure := range map[proxytest.Kind]bool{proxytest.Dead: true, proxytest.HangsUp: false, proxytest.WantsAuth: true, proxytest.Noise: true, proxytest.Elite: false} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, hello, nil)
			ids := b.add(t, proxytest.Options{Kind: kind})
			url := "https://example.com/"
			if kind == proxytest.Elite {
				url = "https://down.example/"
			}
			_, _, err := get(t, b.pool.Transport("shop", TransportOptions{}), url)
			var f interface {
				ProxyFault() bool
				Via() string
			}
			if !errors.As(err, &f) || f.ProxyFault() != sure || f.Via() != ids[0] {
				t.Errorf("got %v of %s, want fault %t of %s", err, kind, sure, ids[0])
			}
		})
	}
}
