package fetch

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

// exchange measures the requests for a page, apart from what they waited for:
// robots.txt, the site's pace, a proxy.
type exchange struct {
	mu    sync.Mutex // guards the fields below
	asked time.Time  // when the last request asked for a connection; zero: it has not
	took  time.Duration
}

type exchangeKey struct{}

// measured returns a context whose requests the exchange measures.
func measured(ctx context.Context) (context.Context, *exchange) {
	e := &exchange{}
	ctx = context.WithValue(ctx, exchangeKey{}, e)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: func(string) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.asked = time.Now()
	}}), e
}

// carry sends a request by a transport. A transport that tries several proxies
// is measured with the last of them; one that does not say when it asks for a
// connection, as a whole.
func carry(by http.RoundTripper, req *http.Request) (*http.Response, error) {
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

// isSent reports whether the last request asked for a connection.
func (e *exchange) isSent() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.asked.IsZero()
}

// heads is how long it took from requests to the heads of their answers.
func (e *exchange) heads() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.took
}
