package proxies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Session keeps requests to one proxy, on connections that no other session shares: that which answers the first of
// them. When the proxy cannot be had any more, the requests fail, for who has begun at one address does not go on at
// another; make a new session then. It may be used by many goroutines.
type Session struct {
	pool  *Pool
	after string        // the proxy of the session before this one
	first chan struct{} // has a token while nobody sends the first request

	mu     sync.Mutex // guards the fields below
	proxy  string     // the proxy that is kept to; "" is none yet
	direct bool       // the session has no proxy: it went directly, as configured
	pair   *pair
	closed bool
}

// Session returns a new one, which takes the place of another: it gets another proxy than that if there is one, and
// best one that no session has. After may be nil. It does no I/O.
func (p *Pool) Session(after *Session) *Session {
	s := &Session{pool: p, first: make(chan struct{}, 1)}
	s.first <- struct{}{}
	if after != nil {
		after.mu.Lock()
		s.after = cmp.Or(after.proxy, after.after)
		after.mu.Unlock()
	}
	return s
}

type sessionKey struct{}

// Bind returns a context whose requests belong to the session, when a Transport of its pool carries them.
func (s *Session) Bind(ctx context.Context) context.Context {
	return context.WithValue(ctx, sessionKey{}, s)
}

func sessionOf(ctx context.Context) *Session {
	s, _ := ctx.Value(sessionKey{}).(*Session)
	return s
}

// Close lets go of the proxy and closes the session's connections. Requests that are under way end; send no others.
func (s *Session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if s.pair != nil {
		s.pair.close()
	}
	if s.proxy != "" {
		s.pool.keep(s.proxy, -1)
	}
}

// sessionOver says that the proxy of a session cannot be had any more. The request was not sent.
type sessionOver struct{ why tally }

func (e *sessionOver) Error() string {
	return fmt.Sprintf("the session's proxy is not to be had any more (%s)", &e.why)
}

// ProxyFault tells that it was not the target's.
func (e *sessionOver) ProxyFault() bool { return true }

// Unsent tells that the request can be sent in another session, as if it had never been.
func (e *sessionOver) Unsent() bool { return true }

// patience is how long a request of a session waits while its proxy is busy with others.
const patience = 10 * time.Second

// inSession sends a request by the proxy of its session.
func (t *transport) inSession(request *http.Request, s *Session) (*http.Response, error) {
	proxy, direct := s.way()
	if proxy == "" && !direct { // one request finds the proxy, the others wait for it
		select {
		case <-s.first:
		case <-request.Context().Done():
			return nil, closeBody(request, context.Cause(request.Context()))
		}
		defer func() { s.first <- struct{}{} }()
		proxy, direct = s.way()
	}
	switch {
	case direct:
		return t.options.Direct.RoundTrip(request)
	case proxy == "":
		return t.send(request, s, t.options.Tries)
	}
	return t.send(request, s, 1)
}

// way is where the session goes; "" and false when that is not known yet.
func (s *Session) way() (proxy string, direct bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proxy, s.direct
}

// kept reports whether the session has a proxy that it keeps to. The session may be nil.
func (s *Session) kept() bool {
	if s == nil {
		return false
	}
	proxy, _ := s.way()
	return proxy != ""
}

// pick lends a proxy for a request of a session, or of none.
func (t *transport) pick(ctx context.Context, s *Session, o PickOptions) (*Lease, error) {
	if s == nil {
		return t.pool.Pick(ctx, o)
	}
	if o.only, _ = s.way(); o.only != "" {
		o.Except, o.Wait = nil, max(o.Wait, patience)
		return t.pool.Pick(ctx, o)
	}
	// A proxy that the session can use wherever the site leads it, and another than before, if there is one.
	o.apart = true
	wishes := []PickOptions{o, o, o, o}
	for i := range wishes[:3] {
		w := &wishes[i]
		w.Wait = 0
		w.Filter.Connect, w.Filter.Plain = w.Filter.Connect || i != 1, w.Filter.Plain || i != 1
		if i < 2 && s.after != "" {
			w.Except = append(slices.Clone(o.Except), s.after)
		}
	}
	var err error
	for _, w := range wishes {
		var lease *Lease
		if lease, err = t.pool.Pick(ctx, w); err == nil || !errors.Is(err, ErrNoProxy) {
			return lease, err
		}
	}
	return nil, err
}

// transport is how the session uses a proxy.
func (s *Session) transport(proxy Proxy, scheme string) (transport *http.Transport, forward bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if address := proxy.URL().String(); s.pair == nil || s.pair.id != proxy.ID || s.pair.address != address {
		if s.pair != nil {
			s.pair.close()
		}
		s.pair = newPair(s.pool.cfg, proxy, address)
	}
	return s.pair.of(proxy, scheme)
}

// keepTo makes a proxy that has answered the session's, if it has none. The session may be nil.
func (s *Session) keepTo(proxy string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proxy == "" && !s.closed {
		s.proxy = proxy
		s.pool.keep(proxy, 1)
	}
}

// goDirectly makes the session one without a proxy. The session may be nil.
func (s *Session) goDirectly() {
	if s != nil {
		s.mu.Lock()
		s.direct = true
		s.mu.Unlock()
	}
}

// keep counts the sessions that keep to a proxy.
func (p *Pool) keep(proxy string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept[proxy] += n; p.kept[proxy] <= 0 {
		delete(p.kept, proxy)
	}
}
