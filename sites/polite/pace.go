package polite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// pace sends requests at the times that the clock allows.
type pace struct {
	next http.RoundTripper
	cfg  Config
}

// crawlDelay is the context key for the crawl delay of a request's host.
type crawlDelay struct{}

// RoundTrip implements http.RoundTripper.
func (p *pace) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, interval := req.Context(), p.cfg.Interval()
	asked, _ := ctx.Value(crawlDelay{}).(time.Duration)
	asked = min(asked, p.cfg.CrawlDelayMax)
	if p.cfg.Vary {
		interval = interval/2 + rand.N(interval+1)
		asked += rand.N(asked/2 + 1)
	}
	interval = max(interval, asked)
	patience := p.cfg.Patience
	if _, patient := ctx.Value(patientKey{}).(bool); patient || req.Response != nil { // or a redirect
		patience = forever
	}
	key := p.cfg.Key(req.URL)
	if err := p.turn(ctx, key, interval, patience); err != nil {
		return nil, err
	}
	again := func(ctx context.Context) error { return p.turn(ctx, key, interval, forever) }
	return p.next.RoundTrip(req.WithContext(context.WithValue(ctx, againKey{}, again)))
}

// againKey is the context key for Again: a func(context.Context) error.
type againKey struct{}

// Again waits until a request that the clock has allowed may be sent again. Transports below the clock call it before they repeat
// a request that the server may have received, for example through another proxy. ctx is the context of the request.
func Again(ctx context.Context) error {
	if again, ok := ctx.Value(againKey{}).(func(context.Context) error); ok {
		return again(ctx)
	}
	return nil
}

// forever is a patience that only the context limits.
const forever = 365 * 24 * time.Hour

type patientKey struct{}

// Patient returns a context whose requests wait for the clock until the context is done. Use it for requests in a sequence that
// would otherwise be lost. Redirects do not need it.
func Patient(ctx context.Context) context.Context {
	return context.WithValue(ctx, patientKey{}, true)
}

// turn takes a turn of the clock and waits at most patience. It does not reserve the turn in advance, so a Hold during the wait
// takes effect.
func (p *pace) turn(ctx context.Context, key string, interval, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; {
		wait, err := p.cfg.Clock.Take(ctx, key, interval)
		if err != nil {
			return unsentError{err}
		}
		if wait <= 0 {
			return nil
		}
		if time.Now().Add(wait).After(deadline) {
			return &WaitError{Key: key, After: wait, Err: fmt.Errorf("request rate of %s: next request in %v", key, wait.Round(time.Millisecond))}
		}
		if err := sleep(ctx, wait); err != nil {
			return unsentError{err}
		}
	}
}
