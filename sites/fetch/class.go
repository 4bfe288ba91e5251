package fetch

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"muster/sites/definition"
)

// Class is what kind of thing went wrong with a page. It decides whether the
// page is fetched again, when, and whether the proxy or the site has failed.
type Class string

// The classes.
const (
	OK          Class = "ok"
	NoProxy     Class = "no_proxy"     // there is no proxy to ask through; with After, not now
	Proxy       Class = "proxy"        // the proxy failed, not the site
	Truncated   Class = "truncated"    // the body ended early
	Timeout     Class = "timeout"      // the answer took too long
	Connect     Class = "connect"      // there was no answer: no connection, or one that was closed before
	RateLimited Class = "rate_limited" // 429, or 503 with Retry-After
	Server      Class = "server"       // any other 5xx
	Blocked     Class = "blocked"      // 401 or 403
	SoftBlock   Class = "soft_block"   // the page is blocked although its status says otherwise
	Empty       Class = "empty"        // 200 and nothing in it
	Gone        Class = "gone"         // 404 or 410
	Refused     Class = "client"       // any other 4xx
	TooBig      Class = "too_big"
	BadType     Class = "bad_type"  // a picture, an archive, …
	Redirect    Class = "redirect"  // too many, or out of the site
	Robots      Class = "robots"    // robots.txt forbids it
	Address     Class = "address"   // it leads to an address that is not public, and not allowed
	Parse       Class = "parse"     // what came cannot be read
	Validate    Class = "validate"  // no record of the page passes its checks
	Throttled   Class = "throttled" // it is not this request's turn yet
	Canceled    Class = "canceled"  // the caller gave up
	Limit       Class = "limit"     // the job may take no longer
	Enough      Class = "enough"    // the job has as many records or bytes as it may
)

// Answered reports whether the class is of an answer of a site that is up, be
// it one that nothing can be done with.
func (c Class) Answered() bool {
	switch c {
	case OK, Gone, Refused, Validate, Parse, BadType, TooBig, Redirect:
		return true
	}
	return false
}

// Policy is what is done about a class.
type Policy struct {
	Retries int           // how often a page is asked for again
	Free    bool          // asking again is not counted, only bounded in time
	Base    time.Duration // of the exponential back-off with full jitter; 0: at once
}

// PolicyFor is the retry table. The definition bounds retries and waits.
func PolicyFor(c Class, r definition.Retries) Policy {
	switch c {
	case Proxy:
		return Policy{Retries: max(5, r.Attempts)} // at once, through another
	case Truncated, NoProxy:
		return Policy{Retries: max(5, r.Attempts), Base: r.Base}
	case Timeout:
		return Policy{Retries: r.Attempts, Base: r.Base / 2}
	case Connect, Server, Empty:
		return Policy{Retries: r.Attempts, Base: r.Base}
	case RateLimited, Throttled, Canceled:
		return Policy{Free: true}
	case Blocked, SoftBlock:
		return Policy{Retries: r.Attempts, Base: 2 * r.Base}
	case Validate:
		return Policy{Retries: min(1, r.Attempts)}
	}
	return Policy{}
}

// Wait is how long to wait before the n-th retry, n from 1: a random time up
// to the base doubled n times, at most the cap.
func (p Policy) Wait(n int, limit time.Duration) time.Duration {
	if p.Base <= 0 {
		return 0
	}
	d := p.Base
	for range min(n-1, 30) {
		if d *= 2; d >= limit {
			break
		}
	}
	if d = min(d, limit); d <= 0 {
		return 0
	}
	return rand.N(d)
}

// Error is why a page could not be fetched.
type Error struct {
	Class  Class
	URL    string
	Status int           // 0: there was no answer
	Via    string        // the proxy that the request went by; "": none, or not known
	Direct bool          // the site itself was asked, without a proxy
	After  time.Duration // do not ask again before; from Retry-After or the site's clock
	Err    error
}

// Error names the class, the status and the cause.
func (e *Error) Error() string {
	return string(e.Class) + ": " + e.Err.Error()
}

// OfSite reports whether the failure may be that of the whole site, and not
// of one page. Seen through a proxy it may as well be the proxy's.
func (e *Error) OfSite() bool {
	switch e.Class {
	case Connect, Truncated, Server, Blocked:
		return e.Direct || e.Via != ""
	case Timeout:
		return e.Direct
	}
	return false
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf is the class of any error from fetching or reading a page.
func ClassOf(err error) Class {
	if err == nil {
		return OK
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return classOfNetwork(err)
}

// Proxied is implemented by errors of a transport that lends proxies, to say
// that the proxy failed and not the site.
type Proxied interface{ ProxyFault() bool }

func classOfNetwork(err error) Class {
	if p, ok := errors.AsType[interface {
		error
		Proxied
	}](err); ok && p.ProxyFault() {
		return Proxy
	}
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return Timeout
	}
	text := err.Error()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.Is(err, context.Canceled):
		return Canceled
	case strings.Contains(text, "proxyconnect"), strings.Contains(text, "socks connect"), strings.Contains(text, "Proxy Authentication"):
		return Proxy
	}
	return Connect
}
