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

// Session sends its requests through one proxy, the one that answers the first request, on connections that it shares with
// no other session. When the proxy can no longer be used, the requests fail: a site must not see a session change its
// address. Make a new session then. It may be used by many goroutines.
type Session struct {
	pool  *Pool
	after string        // the proxy of the session before this one
	first chan struct{} // has a token while no goroutine sends the first request

	mu     sync.Mutex // guards the fields below
	proxy  string     // "" until one has answered
	direct bool       // the session has no proxy and goes directly, as configured
	pair   *pair
	closed bool
}

// Session returns a new session. It gets another proxy than the session after, if there is one, preferably one that no
// session uses. After may be nil. It does no I/O.
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

// Close closes the session's idle connections. Requests in flight continue; send no others.
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
		s.pool.picker.addSession(s.proxy, -1)
	}
}

// sessionError says that the proxy of a session can no longer be used. The request was not sent.
type sessionError struct{ why *shortage }

func (e *sessionError) Error() string {
	return fmt.Sprintf("the session's proxy can no longer be used (%s)", e.why)
}

// ProxyFault reports that it was not the target's fault.
func (e *sessionError) ProxyFault() bool { return true }

// Unsent reports that the request can be sent in another session.
func (e *sessionError) Unsent() bool { return true }

// sessionWait is how long a request of a session waits while its proxy is busy with others.
const sessionWait = 10 * time.Second

// inSession sends a request through the proxy of its session.
func (t *transport) inSession(request *http.Request, s *Session) (*http.Response, error) {
	proxy, direct := s.route()
	if proxy == "" && !direct { // one request finds the proxy, the others wait for it
		select {
		case <-s.first:
		case <-request.Context().Done():
			return nil, closeBody(request, context.Cause(request.Context()))
		}
		defer func() { s.first <- struct{}{} }()
		proxy, direct = s.route()
	}
	switch {
	case direct:
		return t.options.Direct.RoundTrip(request)
	case proxy == "":
		return t.send(request, s, t.options.Tries)
	}
	return t.send(request, s, 1)
}

// route returns the proxy of the session, or true when it goes directly; "" and false before the first answer.
func (s *Session) route() (proxy string, direct bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proxy, s.direct
}

// hasProxy reports whether the session has found its proxy. The session may be nil.
func (s *Session) hasProxy() bool {
	if s == nil {
		return false
	}
	proxy, _ := s.route()
	return proxy != ""
}

// pick lends a proxy for a request of a session, or of none.
func (t *transport) pick(ctx context.Context, s *Session, o PickOptions) (*Lease, error) {
	if s == nil {
		return t.pool.Pick(ctx, o)
	}
	if o.only, _ = s.route(); o.only != "" {
		o.Except, o.Wait = nil, max(o.Wait, sessionWait)
		return t.pool.Pick(ctx, o)
	}
	o.apart = true
	for _, w := range s.wishes(o) {
		if lease, err := t.pool.Pick(ctx, w); !errors.Is(err, ErrNoProxy) {
			return lease, err
		}
	}
	return t.pool.Pick(ctx, o)
}

// wishes returns the options to try before o for the first request of the session, the best first: a proxy that carries http and
// https, wherever the site leads, and another than that of the session before.
func (s *Session) wishes(o PickOptions) []PickOptions {
	o.Wait = 0
	both := o
	both.Filter.Connect, both.Filter.Plain = true, true
	if s.after == "" {
		return []PickOptions{both}
	}
	bothOther, other := both, o
	other.Except = append(slices.Clone(o.Except), s.after)
	bothOther.Except = other.Except
	return []PickOptions{bothOther, other, both}
}

// transport is how the session uses a proxy.
func (s *Session) transport(proxy Proxy, scheme string) (transport *http.Transport, forward bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if address := proxy.URL().String(); s.pair == nil || s.pair.id != proxy.ID || s.pair.address != address {
		if s.pair != nil {
			s.pair.close()
		}
		s.pair = s.pool.transports.newPair(proxy, address)
	}
	return s.pair.of(proxy, scheme)
}

// setProxy makes a proxy that has answered the session's, if it has none. The session may be nil.
func (s *Session) setProxy(proxy string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proxy == "" && !s.closed {
		s.proxy = proxy
		s.pool.picker.addSession(proxy, 1)
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
