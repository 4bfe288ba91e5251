package proxies

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// A Session sends its requests through the proxy that served its first request. If the proxy becomes unavailable,
// requests fail, because the site must see one address per session. Create a new session in that case. A Session is
// safe for concurrent use.
type Session struct {
	first  chan struct{}          // has a token while no goroutine sends the first request
	proxy  atomic.Pointer[string] // nil until a proxy has served a request
	direct atomic.Bool            // the session connects directly, as configured
}

// NewSession returns a new session.
func NewSession() *Session {
	s := &Session{first: make(chan struct{}, 1)}
	s.first <- struct{}{}
	return s
}

type sessionKey struct{}

// Bind returns a context that assigns the requests of a Transport of the pool to the session.
func (s *Session) Bind(ctx context.Context) context.Context {
	return context.WithValue(ctx, sessionKey{}, s)
}

func sessionOf(ctx context.Context) *Session {
	s, _ := ctx.Value(sessionKey{}).(*Session)
	return s
}

// sessionError means that the proxy of a session is unavailable. The request was not sent.
type sessionError struct{ why *shortage }

func (e *sessionError) Error() string {
	return fmt.Sprintf("the proxy of the session has become unavailable (%s)", e.why)
}

// ProxyFault reports that the target did not cause the failure.
func (e *sessionError) ProxyFault() bool { return true }

// Unsent reports that the request may be sent in another session.
func (e *sessionError) Unsent() bool { return true }

// sessionWait is the maximum time that a request waits for the busy proxy of its session.
const sessionWait = 10 * time.Second

// inSession sends a request through the proxy of its session.
func (t *transport) inSession(request *http.Request, s *Session) (*http.Response, error) {
	if !s.hasProxy() && !s.direct.Load() { // one request selects the proxy while the others wait
		select {
		case <-s.first:
		case <-request.Context().Done():
			return nil, closeBody(request, context.Cause(request.Context()))
		}
		defer func() { s.first <- struct{}{} }()
	}
	switch {
	case s.direct.Load():
		return t.options.Direct.RoundTrip(request)
	case !s.hasProxy():
		return t.send(request, s, t.options.Tries)
	}
	return t.send(request, s, 1)
}

// hasProxy reports whether the session has a proxy. s may be nil.
func (s *Session) hasProxy() bool { return s != nil && s.proxy.Load() != nil }

// pick returns a lease for a request, in a session or without one.
func (t *transport) pick(ctx context.Context, s *Session, o PickOptions) (*Lease, error) {
	if s == nil {
		return t.pool.Pick(ctx, o)
	}
	if proxy := s.proxy.Load(); proxy != nil {
		o.requiredID = *proxy
		o.Except, o.Wait = nil, max(o.Wait, sessionWait)
		return t.pool.Pick(ctx, o)
	}
	both := o // the site may redirect
	both.Filter.Connect, both.Filter.Plain, both.Wait = true, true, 0
	if lease, err := t.pool.Pick(ctx, both); !errors.Is(err, ErrNoProxy) {
		return lease, err
	}
	return t.pool.Pick(ctx, o)
}

// setProxy sets the proxy of a session that has none. s may be nil.
func (s *Session) setProxy(proxy string) {
	if s != nil {
		s.proxy.CompareAndSwap(nil, &proxy)
	}
}

// setDirect makes the session connect directly. s may be nil.
func (s *Session) setDirect() {
	if s != nil {
		s.direct.Store(true)
	}
}
