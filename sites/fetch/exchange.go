package fetch

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

// exchange measures the requests for a page, without waits for robots.txt, the request rate and a proxy.
type exchange struct {
	mu    sync.Mutex // guards the fields below
	asked time.Time  // connection request of the last HTTP request; zero: none
	took  time.Duration
}

type exchangeKey struct{}

// measure returns a context with an exchange that measures its requests.
func measure(ctx context.Context) (context.Context, *exchange) {
	e := &exchange{}
	ctx = context.WithValue(ctx, exchangeKey{}, e)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: func(string) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.asked = time.Now()
	}}), e
}

// send sends a request with a transport. If the transport tries several proxies, only the last one is measured. If it does not
// trace its connections, the whole round trip is.
func send(by http.RoundTripper, req *http.Request) (*http.Response, error) {
	e, ok := req.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		return by.RoundTrip(req)
	}
	began := time.Now()
	e.mu.Lock()
	e.asked = time.Time{}
	e.mu.Unlock()
	res, err := by.RoundTrip(req)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked.After(began) {
		began = e.asked
	}
	e.took += time.Since(began)
	return res, err
}

// isSent reports whether the last request has requested a connection.
func (e *exchange) isSent() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.asked.IsZero()
}

// headTime returns the time between requests and response headers.
func (e *exchange) headTime() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.took
}
