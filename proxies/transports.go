package proxies

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"muster/proxies/tunnel"
)

// transports caches the connections of the most recently used proxies. Each proxy has its own transports, so that no
// connection or HTTP/2 session is shared by two proxies.
type transports struct {
	cfg      PoolConfig
	warnedAt atomic.Int64 // Unix time of the last warning about direct connections

	mu   sync.Mutex // guards byID and pair.usedAt
	byID map[string]*pair
}

// A pair holds the two transports of a proxy.
type pair struct {
	id      string
	usedAt  time.Time
	address string          // of the proxy, with credentials; a change replaces the transports
	forward *http.Transport // for http requests in absolute form
	tunnel  *http.Transport // for all other requests
}

func newTransports(cfg PoolConfig) *transports {
	return &transports{cfg: cfg, byID: map[string]*pair{}}
}

// of returns the transport for a request with the given scheme through the proxy.
func (t *transports) of(proxy Proxy, scheme string) (transport *http.Transport, forward bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	address := proxy.URL().String()
	p := t.byID[proxy.ID]
	if p == nil || p.address != address {
		t.remove(p)
		if len(t.byID) >= t.cfg.MaxTransports {
			t.remove(slices.MinFunc(slices.Collect(maps.Values(t.byID)), func(a, b *pair) int { return a.usedAt.Compare(b.usedAt) }))
		}
		p = t.newPair(proxy, address)
		t.byID[proxy.ID] = p
	}
	p.usedAt = time.Now()
	if scheme == "http" && canForward(proxy) {
		return p.forward, true
	}
	return p.tunnel, false
}

// close closes idle connections. Active ones are closed when they become idle, because a transport keeps no new idle
// connections afterwards.
func (p *pair) close() {
	p.forward.CloseIdleConnections()
	p.tunnel.CloseIdleConnections()
}

// canForward reports whether the proxy supports http requests in absolute form. An unchecked proxy is assumed to.
func canForward(p Proxy) bool {
	return (p.Protocol == "http" || p.Protocol == "https") && (p.Can.Forward || !p.Can.Connect && !p.Can.HTTPS)
}

// dialer returns the dialer for connections to and through a proxy.
func (t *transports) dialer(proxy Proxy) *tunnel.Dialer {
	return &tunnel.Dialer{Proxy: proxy.URL(), Dial: t.cfg.Dial, ConnectTimeout: t.cfg.ConnectTimeout, HandshakeTimeout: t.cfg.HandshakeTimeout}
}

// warnDirect logs direct connections, at most once per minute.
func (t *transports) warnDirect(site string, why error) {
	now, before := time.Now().Unix(), t.warnedAt.Load()
	if now-before >= 60 && t.warnedAt.CompareAndSwap(before, now) {
		t.cfg.Logger.Warn("no proxy available; connecting directly as configured", "site", site, "why", why)
	}
}

// newPair returns new transports for a proxy.
func (t *transports) newPair(proxy Proxy, address string) *pair {
	cfg, dialer := t.cfg, t.dialer(proxy)
	base := &http.Transport{
		MaxIdleConns:           2 * cfg.MaxInFlight,
		MaxIdleConnsPerHost:    cfg.MaxInFlight, // a smaller value causes constant reconnects under load
		ReadBufferSize:         16 << 10,
		IdleConnTimeout:        60 * time.Second,
		TLSHandshakeTimeout:    cfg.HandshakeTimeout,
		ResponseHeaderTimeout:  cfg.HeaderTimeout,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 256 << 10,
	}
	through := base.Clone()
	if cfg.TLS != nil {
		through.TLSClientConfig = cfg.TLS.Clone()
	}
	through.DialContext = dialer.DialContext
	forward := base
	// net/http writes the absolute form and the credentials. The dialer handles TLS to the proxy.
	forward.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: proxy.Address(), User: proxy.URL().User})
	forward.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialProxy(ctx) }
	return &pair{id: proxy.ID, address: address, forward: forward, tunnel: through}
}

// evict removes and closes the transports of a proxy.
func (t *transports) evict(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(t.byID[id])
}

// remove removes and closes a pair, which may be nil. The caller holds mu.
func (t *transports) remove(p *pair) {
	if p != nil {
		delete(t.byID, p.id)
		p.close()
	}
}

func (t *transports) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.byID {
		t.remove(p)
	}
}
