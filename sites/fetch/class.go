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

// Class is the kind of a failure. It determines whether and when the page is retried, and whether the proxy or the site has
// failed.
type Class string

// Classes of failures.
const (
	OK          Class = "ok"
	NoProxy     Class = "no_proxy"     // no proxy is available, for the duration After if set
	Proxy       Class = "proxy"        // the proxy failed, not the site
	Truncated   Class = "truncated"    // the body ended early
	Timeout     Class = "timeout"      // no response in time
	Connect     Class = "connect"      // no response: no connection, or it was closed early
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
	Validate    Class = "validate"  // all records of the page fail their checks
	Renderer    Class = "renderer"  // the browser failed, not the site
	Extractor   Class = "extractor" // the extractor of the definition failed, not the site
	Login       Class = "login"     // the site rejects the login, or pages lack session.login.signed_in
	Throttled   Class = "throttled" // the request rate delays the request
	Canceled    Class = "canceled"  // the context was canceled
)

// SiteUp reports whether the class implies a response from a running site, even a useless one.
func (c Class) SiteUp() bool {
	switch c {
	case OK, Gone, ClientError, Validate, Parse, BadType, TooBig, Redirect, Login, Extractor:
		return true
	}
	return false
}

// Policy determines the retries of a class.
type Policy struct {
	Retries int           // maximum number of retries
	Free    bool          // retries are limited in time instead of number
	Base    time.Duration // of the exponential backoff; 0: no delay
}

// PolicyFor returns the policy of a class. The definition limits retries and delays.
func PolicyFor(c Class, r definition.Retries) Policy {
	switch c {
	case Proxy:
		return Policy{Retries: max(5, r.Attempts)} // without delay, through another proxy
	case NoProxy: // no request was sent
		return Policy{Retries: max(5, r.Attempts), Base: r.Base}
	case Timeout:
		return Policy{Retries: r.Attempts, Base: r.Base / 2}
	case Connect, Truncated, Server, Empty, Renderer, Extractor:
		return Policy{Retries: r.Attempts, Base: r.Base}
	case RateLimited, Throttled, Canceled:
		return Policy{Free: true}
	case Blocked, SoftBlock:
		return Policy{Retries: r.Attempts, Base: 2 * r.Base}
	case Validate: // an error page with status 200, or a wrong definition
		return Policy{Retries: min(2, r.Attempts), Base: 2 * r.Base}
	}
	return Policy{}
}

// Wait returns the delay before the n-th retry, n from 1: a random share, from one half to all, of Base doubled n-1 times and
// capped at limit.
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

// Error is the reason why a page could not be fetched.
type Error struct {
	Class  Class
	URL    string
	Status int           // 0: no response
	Via    string        // proxy of the request; "": none or unknown
	Direct bool          // the request was sent without a proxy
	After  time.Duration // delay before a retry, from Retry-After or the site's clock
	Err    error
}

// Error names the class, the status and the cause.
func (e *Error) Error() string {
	return string(e.Class) + ": " + e.Err.Error()
}

// OfSite reports whether the whole site may have failed instead of one page. With a proxy, the proxy may be the cause.
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

// ClassOf returns the class of an error of fetching or reading a page.
func ClassOf(err error) Class {
	if err == nil {
		return OK
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return classOfNetwork(err)
}

// Proxied is implemented by errors of a transport with proxies to report a fault of the proxy instead of the site.
type Proxied interface{ ProxyFault() bool }

func classOfNetwork(err error) Class {
	var p Proxied
	if errors.As(err, &p) && p.ProxyFault() {
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
