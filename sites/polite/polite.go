// Package polite limits the requests to the servers that pages and files are fetched from: it obeys robots.txt,
// spaces requests, honours Retry-After, and sends nothing to servers that are down.
//
// [New] stacks transports, each of which does one thing, outermost first: a breaker, robots.txt, slots, and the
// clock. Each request passes all of them, also after redirects. A request that would have to wait for longer than a
// moment is not sent: it fails with a [WaitError], so that a worker can do something else. Scrapes of sites and the
// http.fetch of work queues use the same stack.
//
// A [SiteBreaker] is for pages that come through proxies: a failure may be the proxy's, and one page of a site may
// fail while the others do not.
package polite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"muster/tasks/limit"
)

// Config sets up a stack of transports. Parts that are nil are omitted.
type Config struct {
	// Key returns the key of a request's URL at the breaker, the slots and the clock: its host, or the site. Required.
	Key func(*url.URL) string
	// Breaker stops the requests of keys that keep failing. It is for requests without a proxy.
	Breaker *limit.Breaker
	Robots  *Robots
	// Slots bound the concurrent requests, until the body of the response is closed. See WithSlots.
	Slots *limit.KeyedLimiter
	Clock Clock
	// Interval returns the shortest time between requests. A crawl delay may be longer. Defaults to 0: the clock
	// decides.
	Interval      func() time.Duration
	CrawlDelayMax time.Duration // bounds the crawl delay of a robots.txt. Defaults to 0: it is ignored.
	// Vary makes intervals random, so that requests are not evenly spaced: from half to one and a half of Interval, and
	// from one to one and a half of a crawl delay, which is a minimum.
	Vary     bool
	Patience time.Duration // the longest that a request waits for the clock. Defaults to 250 ms.
	Logger   *slog.Logger  // Defaults to none.
}

// New returns a transport that sends with next the requests that cfg allows.
func New(next http.RoundTripper, cfg Config) http.RoundTripper {
	if cfg.Interval == nil {
		cfg.Interval = func() time.Duration { return 0 }
	}
	if cfg.Patience <= 0 {
		cfg.Patience = 250 * time.Millisecond
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
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

// ErrDisallowed is the error of a request that robots.txt forbids.
var ErrDisallowed = errors.New("robots.txt forbids it")

// WaitError says that a request was not sent because it must wait.
type WaitError struct {
	Key   string        // all of whose requests must wait; "" if only this one must
	After time.Duration // how long to wait
	Err   error         // what the request waits for
}

// Error implements error.
func (e *WaitError) Error() string { return e.Err.Error() }

// Unwrap returns what the request waits for.
func (e *WaitError) Unwrap() error { return e.Err }

// OpenError says that a request was not sent because the breaker of its key is open.
type OpenError struct {
	Key   string
	After time.Duration // how long until a request is allowed
}

// Error implements error.
func (e *OpenError) Error() string { return "the host keeps failing; its breaker is open" }

// RobotsError says that a robots.txt could not be fetched. Until it can, no page of its host may be fetched.
type RobotsError struct {
	Request  *http.Request  // for the robots.txt
	Response *http.Response // closed; its status or body is the error; nil: none
	Err      error
}

// Error implements error.
func (e *RobotsError) Error() string { return fmt.Sprintf("robots.txt cannot be fetched: %v", e.Err) }

// Unwrap returns the cause.
func (e *RobotsError) Unwrap() error { return e.Err }

// unsentError is an error of a limiter, before the request was sent. It says nothing about the host.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// sleep waits for d, or until ctx is done, and then returns its error.
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
