package proxies

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/proxies/proxytest"
)

// visit sends a request in a session and returns the address and the connection seen by the site.
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

// All requests of a session use one exit address, for any scheme and concurrency.
func TestSessionUsesOneProxy(t *testing.T) {
	t.Parallel()
	b := newBench(t, hello, nil)
	b.add(t, proxytest.Options{Kind: proxytest.Elite}, proxytest.Options{Kind: proxytest.SOCKS5}, proxytest.Options{Kind: proxytest.ConnectOnly}, proxytest.Options{Kind: proxytest.ForwardOnly})
	rt := b.pool.Transport("shop", TransportOptions{})
	for range 3 {
		s := NewSession()
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
			t.Errorf("one session used the addresses %v", slices.Compact(peers))
		}
	}
}

// A session fails when its proxy is banned or dies. A session without a proxy selects another one.
func TestSessionFailsWithItsProxy(t *testing.T) {
	t.Parallel()
	b := newBench(t, hello, nil)
	ids := b.add(t, proxytest.Options{Kind: proxytest.Dead}, proxytest.Options{Kind: proxytest.Elite})
	rt := b.pool.Transport("shop", TransportOptions{PickOptions: b.first(ids[0])})
	s := NewSession()
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
		t.Error("another proxy was used")
	}

	s2 := NewSession()
	_, _, err = visit(t.Context(), rt, s2, bothSchemes[0])
	testutil.Ok(t, err)
	testutil.Ok(t, b.pool.Ban(t.Context(), "shop", time.Hour, ids[2]))
	if _, _, err := visit(t.Context(), rt, s2, bothSchemes[0]); !errors.As(err, new(*sessionError)) {
		t.Errorf("got %v after a ban, want a sessionError", err)
	}
}

// A direct session remains direct when proxies become available.
func TestSessionStaysDirect(t *testing.T) {
	t.Parallel()
	b := newBench(t, hello, nil)
	direct := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, b.site.Listener.Addr().String())
	}}
	defer direct.CloseIdleConnections()
	rt := b.pool.Transport("shop", TransportOptions{Fallback: FallbackDirect, Direct: direct})
	s := NewSession()
	first, _, err := visit(t.Context(), rt, s, bothSchemes[0])
	testutil.Ok(t, err)
	b.add(t, proxytest.Options{Kind: proxytest.Elite})
	if peer, _, err := visit(t.Context(), rt, s, bothSchemes[0]); err != nil || peer != first {
		t.Errorf("got %s %v, want %s", peer, err, first)
	}
	next := NewSession()
	if peer, _, err := visit(t.Context(), rt, next, bothSchemes[0]); err != nil || peer == first {
		t.Errorf("got %s %v in the next session, want another than %s", peer, err, first)
	}
}

// An error is attributed to the proxy only if the target cannot have caused it.
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
