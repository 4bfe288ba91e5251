package proxies

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// A Session sends its requests through the proxy that served its first request. If the proxy becomes unavailable,
// requests fail, because the site must see one address per session. Create a new session in that case. A Session is
// safe for concurrent use.
type Session struct {
	first chan struct{} // has a token while no goroutine sends the first request

	mu     sync.Mutex // guards the fields below
	proxy  string     // "" until a proxy has served a request
	direct bool       // the session connects directly, as configured
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
	proxy, direct := s.route()
	if proxy == "" && !direct { // one request selects the proxy while the others wait
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

// route returns the proxy of the session, or direct. Both are zero before the first response.
func (s *Session) route() (proxy string, direct bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proxy, s.direct
}

// hasProxy reports whether the session has a proxy. s may be nil.
func (s *Session) hasProxy() bool {
	if s == nil {
		return false
	}
	proxy, _ := s.route()
	return proxy != ""
}

// pick returns a lease for a request, in a session or without one.
func (t *transport) pick(ctx context.Context, s *Session, o PickOptions) (*Lease, error) {
	if s == nil {
		return t.pool.Pick(ctx, o)
	}
	if o.requiredID, _ = s.route(); o.requiredID != "" {
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
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proxy == "" {
		s.proxy = proxy
	}
}

// setDirect makes the session connect directly. s may be nil.
func (s *Session) setDirect() {
	if s != nil {
		s.mu.Lock()
		s.direct = true
		s.mu.Unlock()
	}
}
