// Package polite is how Muster treats the servers that it gets pages and files from: it obeys robots.txt, keeps requests
// apart, honours Retry-After, and leaves alone what is down.
//
// [New] stacks transports, each of which does one thing, outermost first: a breaker, robots.txt, slots, and the clock.
// Each request passes all of them, those that redirects lead to as well. A request that has to wait for longer than a
// moment is not made: it fails with a [WaitError], so that a worker can do something else. Scrapes of sites and the
// http.fetch of work queues use the same stack.
//
// A [SiteBreaker] is for pages that come through proxies: a failure may be the proxy's, and one page of a site may be
// broken while the others are not.
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

// Config sets up a stack of transports. Parts that are nil are left out.
type Config struct {
	// Key names what the breaker, the slots and the clock are of: the host of a URL, or the whole site. Required.
	Key func(*url.URL) string
	// Breaker stops the requests to what keeps failing. It suits requests without a proxy.
	Breaker *limit.Breaker
	Robots  *Robots
	// Slots bound the requests at a time, until the body of the answer is closed. See WithSlots.
	Slots *limit.KeyedLimiter
	Clock Clock
	// Interval is how far apart requests are to be. A crawl delay may be longer. Defaults to 0: as the clock says.
	Interval      func() time.Duration
	CrawlDelayMax time.Duration // bounds the crawl delay of a robots.txt. Defaults to 0: it does not count.
	Patience      time.Duration // the longest wait for the clock that a request sits out. Defaults to 250 ms.
	Logger        *slog.Logger  // Defaults to none.
}

// New returns a transport that sends by next what cfg allows.
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

// WaitError says that a request was not made because it is not its turn. Nothing was tried.
type WaitError struct {
	Key   string        // what no request may be made of before; "" when only this one has to wait
	After time.Duration // how long
	Err   error         // for what
}

// Error implements error.
func (e *WaitError) Error() string { return e.Err.Error() }

// Unwrap returns what the request waits for.
func (e *WaitError) Unwrap() error { return e.Err }

// OpenError says that a request was not made because the breaker of its key is open.
type OpenError struct {
	Key   string
	After time.Duration // until a request is let through
}

// Error implements error.
func (e *OpenError) Error() string { return "the host keeps failing; it is left alone for now" }

// RobotsError says that a robots.txt could not be fetched: until it can, no page of its host may be.
type RobotsError struct {
	Request  *http.Request  // for the robots.txt
	Response *http.Response // whose status or body is the error, closed; nil: there was none
	Err      error
}

// Error implements error.
func (e *RobotsError) Error() string { return fmt.Sprintf("robots.txt cannot be fetched: %v", e.Err) }

// Unwrap returns the cause.
func (e *RobotsError) Unwrap() error { return e.Err }

// unsentError is an error of a limit itself. It says nothing about the host.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// sleep waits for d, or returns why ctx has ended.
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
