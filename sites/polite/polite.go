// Package polite limits the requests to servers: it obeys robots.txt, spaces requests, honours Retry-After, and sends nothing to
// servers that are down.
//
// [New] stacks transports with one responsibility each, outermost first: circuit breaker, robots.txt, slots, clock. Every request
// passes all of them, also after redirects. A request that would have to wait longer than a moment is not sent: it fails with a
// [WaitError], so that the worker can do something else. Scrapes of sites and the http.fetch of work queues use the same stack.
//
// A [SiteBreaker] is for pages that are fetched through proxies: a failure may be the proxy's, and one page of a site may fail
// while others succeed.
package polite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"muster/internal/addressfilter"
	"muster/internal/limit"
)

// Config configures a stack of transports. Nil parts are omitted.
type Config struct {
	// Key returns the key of a URL for the circuit breaker, the slots and the clock: its host or site. Required.
	Key func(*url.URL) string
	// Breaker stops requests to keys that keep failing. It is for requests without a proxy.
	Breaker *limit.Breaker
	Robots  *Robots
	// Slots limit concurrent requests until the response body is closed. See WithSlots.
	Slots *limit.KeyedLimiter
	Clock Clock
	// Interval returns the minimum time between requests. A crawl delay may be longer. Defaults to 0: the clock decides.
	Interval      func() time.Duration
	CrawlDelayMax time.Duration // limits the crawl delay of a robots.txt. Defaults to 0: the delay is ignored.
	// Vary randomizes intervals: from 0.5 to 1.5 times Interval, and from 1 to 1.5 times a crawl delay, which is a minimum.
	Vary     bool
	Patience time.Duration // maximum wait of a request for the clock. Defaults to 250 ms.
	Logger   *slog.Logger  // Defaults to none.
}

// New returns a transport that sends requests with next as far as cfg allows.
func New(next http.RoundTripper, cfg Config) http.RoundTripper {
	if cfg.Interval == nil {
		cfg.Interval = func() time.Duration { return 0 }
	}
	cfg.Patience = cmp.Or(cfg.Patience, 250*time.Millisecond)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Clock != nil {
		next = &pace{next: next, cfg: cfg}
	}
	if cfg.Slots != nil {
		next = &slots{next: next, cfg: cfg}
	}
	if cfg.Robots != nil {
		next = &robots{Robots: cfg.Robots, next: next}
	}
	if cfg.Breaker != nil {
		next = &breaker{next: next, cfg: cfg}
	}
	return next
}

// ErrDisallowed means that robots.txt forbids a request.
var ErrDisallowed = errors.New("disallowed by robots.txt")

// WaitError means that a request was not sent because it must wait.
type WaitError struct {
	Key   string        // key whose requests must all wait; "" if only this one must
	After time.Duration // remaining wait
	Err   error         // reason for the wait
}

// Error implements error.
func (e *WaitError) Error() string { return e.Err.Error() }

// Unwrap returns the reason for the wait.
func (e *WaitError) Unwrap() error { return e.Err }

// OpenError means that a request was not sent because the circuit breaker of its key is open.
type OpenError struct {
	Key   string
	After time.Duration // time until a request is allowed
}

// Error implements error.
func (e *OpenError) Error() string { return "circuit breaker open after repeated failures of the host" }

// RobotsError means that a robots.txt could not be fetched. No page of its host may be fetched until it can be.
type RobotsError struct {
	Request  *http.Request  // request for the robots.txt
	Response *http.Response // closed; with a status or body that is the error; may be nil
	Err      error
}

// Error implements error.
func (e *RobotsError) Error() string { return fmt.Sprintf("fetch robots.txt: %v", e.Err) }

// Unwrap returns the cause.
func (e *RobotsError) Unwrap() error { return e.Err }

// unsentError is an error of a limiter before the request was sent, which does not concern the host.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// sleep waits for d or until ctx is done, and then returns the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// breaker rejects requests while requests with the same key keep failing.
type breaker struct {
	next http.RoundTripper
	cfg  Config
}

// RoundTrip implements http.RoundTripper.
func (b *breaker) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, key := req.Context(), b.cfg.Key(req.URL)
	permit, ok, wait, err := b.cfg.Breaker.Allow(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case !ok && permit.TrialsRunning():
		return nil, &WaitError{Key: key, After: wait, Err: errors.New("a trial request to the host is in progress")}
	case !ok:
		return nil, &OpenError{Key: key, After: wait}
	}
	res, err := b.next.RoundTrip(req)
	if rerr := report(ctx, permit, res, err); rerr != nil {
		b.cfg.Logger.WarnContext(ctx, "cannot report the result of a request to the circuit breaker", "err", rerr)
	}
	return res, err
}

// report reports the result of a request to a circuit breaker.
func report(ctx context.Context, permit limit.Permit, res *http.Response, err error) error {
	ended := ctx.Err() != nil
	ctx = context.WithoutCancel(ctx) // a trial must always end
	switch {
	case ended, err != nil && !isOfHost(err), err == nil && res.StatusCode == http.StatusTooManyRequests:
		return permit.Cancel(ctx)
	case errors.As(err, new(*RobotsError)):
		return permit.Failure(ctx, "robots.txt")
	case err != nil:
		return permit.Failure(ctx, "connection")
	case res.StatusCode >= http.StatusInternalServerError:
		return permit.Failure(ctx, res.Status)
	}
	return permit.Success(ctx)
}

// isOfHost reports whether the host may have caused the error of a request, because the request was sent.
func isOfHost(err error) bool {
	return !errors.Is(err, ErrDisallowed) && !addressfilter.Is(err) && !errors.As(err, new(*WaitError)) && !errors.As(err, new(unsentError))
}

// slotPatience is the maximum wait of a request for a slot.
const slotPatience = 5 * time.Second

type heldSlots struct{}

// WithSlots returns a context whose requests take no slots for the keys, because the caller already holds them.
func WithSlots(ctx context.Context, keys []string) context.Context {
	return context.WithValue(ctx, heldSlots{}, keys)
}

// slots limits the concurrent requests per key.
type slots struct {
	next http.RoundTripper
	cfg  Config
}

// RoundTrip implements http.RoundTripper.
func (s *slots) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, key := req.Context(), s.cfg.Key(req.URL)
	if held, _ := ctx.Value(heldSlots{}).([]string); slices.Contains(held, key) {
		return s.next.RoundTrip(req)
	}
	slot, err := s.cfg.Slots.TryAcquireFor(ctx, key, slotPatience)
	if err != nil {
		return nil, unsentError{err}
	}
	if slot == nil {
		return nil, &WaitError{After: slotPatience, Err: fmt.Errorf("all slots of %s are in use", key)}
	}
	release := func() {
		if err := slot.Release(ctx); err != nil {
			s.cfg.Logger.WarnContext(ctx, "cannot release a slot; it will expire", "key", key, "err", err)
		}
	}
	res, err := s.next.RoundTrip(req)
	if err != nil {
		release()
		return nil, err
	}
	res.Body = &slotBody{res.Body, release}
	return res, nil
}

// slotBody releases a slot when the body is closed.
type slotBody struct {
	io.ReadCloser
	release func()
}

// Close implements io.Closer.
func (b *slotBody) Close() error {
	defer b.release() // idempotent
	return b.ReadCloser.Close()
}
