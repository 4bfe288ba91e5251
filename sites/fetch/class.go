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

// Class is the kind of a failure. It decides whether the page is fetched again, when, and whether the proxy or the
// site has failed.
type Class string

// The classes.
const (
	OK          Class = "ok"
	NoProxy     Class = "no_proxy"     // no proxy is available; with After, for that long
	Proxy       Class = "proxy"        // the proxy failed, not the site
	Truncated   Class = "truncated"    // the body ended early
	Timeout     Class = "timeout"      // the answer took too long
	Connect     Class = "connect"      // no answer: no connection, or it was closed early
	RateLimited Class = "rate_limited" // 429, or 503 with Retry-After
	Server      Class = "server"       // any other 5xx
	Blocked     Class = "blocked"      // 401 or 403
	SoftBlock   Class = "soft_block"   // the page is blocked although its status is a success
	Empty       Class = "empty"        // 204, or no content
	Gone        Class = "gone"         // 404 or 410
	ClientError Class = "client"       // any other 4xx
	TooBig      Class = "too_big"
	BadType     Class = "bad_type"  // an image, an archive, …
	Redirect    Class = "redirect"  // too many, or off the site
	Robots      Class = "robots"    // robots.txt forbids it
	Address     Class = "address"   // the address is not public and not allowed
	Parse       Class = "parse"     // the page cannot be parsed
	Validate    Class = "validate"  // no record of the page passes its checks
	Login       Class = "login"     // the site refuses the login, or pages lack its sign
	Throttled   Class = "throttled" // the request must wait for its turn
	Canceled    Class = "canceled"  // the context was canceled
	Enough      Class = "enough"    // the scrape needs no more listing pages
)

// Answered reports whether the class is that of an answer from a site that is up, even if the answer is useless.
func (c Class) Answered() bool {
	switch c {
	case OK, Gone, ClientError, Validate, Parse, BadType, TooBig, Redirect, Login:
		return true
	}
	return false
}

// Policy says how pages of a class are retried.
type Policy struct {
	Retries int           // how often a page is fetched again
	Free    bool          // retries are not counted, only bounded in time
	Base    time.Duration // of the exponential backoff; 0: at once
}

// PolicyFor returns the policy for a class. The definition bounds retries and waits.
func PolicyFor(c Class, r definition.Retries) Policy {
	switch c {
	case Proxy:
		return Policy{Retries: max(5, r.Attempts)} // at once, through another proxy
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
	case Validate: // an error page with status 200, or the definition is wrong for the page
		return Policy{Retries: min(2, r.Attempts), Base: 2 * r.Base}
	}
	return Policy{}
}

// Wait returns how long to wait before the n-th retry, n from 1: from half of Base doubled n-1 times to all of it, at
// most limit.
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
	return d/2 + rand.N(d/2+1)
}

// Error is why a page could not be fetched.
type Error struct {
	Class  Class
	URL    string
	Status int           // 0: no answer
	Via    string        // the proxy of the request; "": none, or not known
	Direct bool          // the request was sent without a proxy
	After  time.Duration // how long to wait before a retry; from Retry-After or the site's clock
	Err    error
}

// Error names the class, the status and the cause.
func (e *Error) Error() string {
	return string(e.Class) + ": " + e.Err.Error()
}

// OfSite reports whether the whole site may have failed, and not just one page. With a proxy, it may be the proxy's
// failure instead.
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

// ClassOf returns the class of an error from fetching or reading a page.
func ClassOf(err error) Class {
	if err == nil {
		return OK
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return classOfNetwork(err)
}

// Proxied is implemented by errors of a transport with proxies, to say that the proxy failed and not the site.
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
