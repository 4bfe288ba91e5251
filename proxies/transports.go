package proxies

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"muster/proxies/tunnel"
)

// transports keeps the connections of the proxies used last: each has transports of its own, so that no connection,
// and no HTTP/2 session, is ever shared by two proxies.
type transports struct {
	cfg      PoolConfig
	warnedAt atomic.Int64 // unix s when the log last said that requests go directly

	mu    sync.Mutex // guards the fields below
	used  *list.List // of *pair, the last used first
	byKey map[string]*list.Element
}

// pair is the two transports of one proxy.
type pair struct {
	id      string
	address string          // of the proxy, with credentials: a change makes new transports
	forward *http.Transport // http requests in absolute form
	tunnel  *http.Transport // everything through a tunnel
}

func newTransports(cfg PoolConfig) *transports {
	return &transports{cfg: cfg, used: list.New(), byKey: map[string]*list.Element{}}
}

// of returns the transport for a request of a scheme through the proxy.
func (t *transports) of(proxy Proxy, scheme string) (transport *http.Transport, forward bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	address := proxy.URL().String()
	element := t.byKey[proxy.ID]
	if element != nil && element.Value.(*pair).address != address {
		t.remove(element)
		element = nil
	}
	if element == nil {
		element = t.used.PushFront(t.newPair(proxy, address))
		t.byKey[proxy.ID] = element
		for t.used.Len() > t.cfg.MaxTransports {
			t.remove(t.used.Back())
		}
	}
	t.used.MoveToFront(element)
	return element.Value.(*pair).of(proxy, scheme)
}

// of returns the one of the two for a request of a scheme.
func (p *pair) of(proxy Proxy, scheme string) (transport *http.Transport, forward bool) {
	if scheme == "http" && canForward(proxy) {
		return p.forward, true
	}
	return p.tunnel, false
}

// close ends the connections that are idle. Those in use end when they become so: a transport whose idle ones were
// closed keeps no new ones.
func (p *pair) close() {
	p.forward.CloseIdleConnections()
	p.tunnel.CloseIdleConnections()
}

// canForward reports whether the proxy takes http requests in absolute form. One that was not checked is assumed to.
func canForward(p Proxy) bool {
	return (p.Protocol == "http" || p.Protocol == "https") && (p.Can.Forward || !p.Can.Connect && !p.Can.HTTPS)
}

// dialer returns what connects to and through a proxy.
func (t *transports) dialer(proxy Proxy) *tunnel.Dialer {
	return &tunnel.Dialer{Proxy: proxy.URL(), Dial: t.cfg.Dial, ConnectTimeout: t.cfg.ConnectTimeout, HandshakeTimeout: t.cfg.HandshakeTimeout}
}

// warnDirect logs that requests go directly, once a minute.
func (t *transports) warnDirect(site string, why error) {
	now, before := time.Now().Unix(), t.warnedAt.Load()
	if now-before >= 60 && t.warnedAt.CompareAndSwap(before, now) {
		t.cfg.Logger.Warn("no proxy: going directly, as configured", "site", site, "why", why)
	}
}

// newPair returns transports of a proxy that are not kept.
func (t *transports) newPair(proxy Proxy, address string) *pair {
	cfg, dialer := t.cfg, t.dialer(proxy)
	base := &http.Transport{
		MaxIdleConns:           2 * cfg.MaxInFlight,
		MaxIdleConnsPerHost:    cfg.MaxInFlight, // less would close and open connections all the time under load
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
	// net/http writes the absolute form and the credentials; TLS with the proxy, if any, is the dialer's.
	forward.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: proxy.Candidate().Address(), User: proxy.URL().User})
	forward.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialProxy(ctx) }
	return &pair{id: proxy.ID, address: address, forward: forward, tunnel: through}
}

// evict closes what is kept for a proxy.
func (t *transports) evict(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if element := t.byKey[id]; element != nil {
		t.remove(element)
	}
}

func (t *transports) remove(element *list.Element) {
	p := t.used.Remove(element).(*pair)
	delete(t.byKey, p.id)
	p.close()
}

func (t *transports) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.used.Len() > 0 {
		t.remove(t.used.Back())
	}
}

func (t *transports) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.used.Len()
}
