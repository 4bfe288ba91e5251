package proxies

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"muster/internal/addressfilter"
	"muster/internal/retryafter"
	"muster/proxies/tunnel"
)

// Fallback says what happens when the pool has no proxy for a request.
type Fallback string

// The fallbacks. Only FallbackDirect goes directly.
const (
	FallbackFail   Fallback = "fail"   // ErrNoProxy at once: the default
	FallbackWait   Fallback = "wait"   // wait for one, up to TransportOptions.Wait, then ErrNoProxy
	FallbackDirect Fallback = "direct" // without a proxy, with a warning
)

// defaultTries is how many proxies a request or a tunnel is tried with.
const defaultTries = 3

// TransportOptions say how a transport uses the pool.
type TransportOptions struct {
	PickOptions // Site is set by Transport; Wait counts with FallbackWait only and defaults to 30 s there
	// Fallback defaults to FallbackFail.
	Fallback Fallback
	// Tries is how many proxies a request is tried with. Defaults to 3.
	Tries int
	// Direct is used by FallbackDirect. Defaults to a transport that connects to public addresses alone, and to no proxy
	// that the environment names.
	Direct http.RoundTripper
	// KeepEncoding leaves bodies compressed as received, to pass them on. Defaults to false.
	KeepEncoding bool
	// Bans reports whether the header of a response says that the site bans the proxy. Defaults to status 403.
	Bans func(*http.Response) bool
}

// Transport sends requests to one site through the pool. Each request goes through a proxy that fits. A fault of the
// proxy counts against it on all sites, a ban on this one only, and the site's own 404 or 500 against no proxy. As long as
// no part of an answer has been passed on, and the request can be sent again, another proxy is tried. The transport may
// be used by many goroutines.
//
// An error's methods ProxyFault and Via say whether it was the proxy's fault for certain, and which proxy that was.
//
// Close the body of each answer: the proxy stays in use until then.
func (p *Pool) Transport(site string, o TransportOptions) http.RoundTripper {
	o.Site = site
	o.Fallback = cmp.Or(o.Fallback, FallbackFail)
	o.Tries = cmp.Or(o.Tries, defaultTries)
	if o.Direct == nil {
		o.Direct = direct
	}
	if o.Bans == nil {
		o.Bans = func(r *http.Response) bool { return r.StatusCode == http.StatusForbidden }
	}
	return &transport{pool: p, options: o}
}

// direct is the default of TransportOptions.Direct.
var direct = (*addressfilter.Filter)(nil).Transport()

type transport struct {
	pool    *Pool
	options TransportOptions
}

type leaseKey struct{}

// Used returns the proxy that an answer came through, and false when it came directly.
func Used(r *http.Response) (Proxy, bool) {
	if r == nil || r.Request == nil {
		return Proxy{}, false
	}
	lease, ok := r.Request.Context().Value(leaseKey{}).(*Lease)
	if !ok {
		return Proxy{}, false
	}
	return lease.Proxy, true
}

// Blocked reports to the pool that the body of an answer says that the site blocks its proxy, as a captcha does. The proxy
// rests on this site; on others nothing changes. It may be called before or after the body was read and closed.
func Blocked(r *http.Response) {
	if r != nil && r.Request != nil {
		if lease, ok := r.Request.Context().Value(leaseKey{}).(*Lease); ok {
			lease.reportBan()
		}
	}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if s := sessionOf(request.Context()); s != nil {
		return t.inSession(request, s)
	}
	return t.send(request, nil, t.options.Tries)
}

// send tries up to tries proxies; in a session the first that answers becomes the session's proxy.
func (t *transport) send(request *http.Request, s *Session, tries int) (*http.Response, error) {
	if err := tunnel.CheckTarget(addressOf(request.URL)); err != nil {
		return nil, closeBody(request, err)
	}
	a := newAttempts(t.options.PickOptions, t.options.Fallback, tries)
	a.pick.Filter.Connect = a.pick.Filter.Connect || request.URL.Scheme == "https"
	a.pick.Filter.Plain = a.pick.Filter.Plain || request.URL.Scheme == "http"
	for sent := false; a.left > 0; sent = true {
		if sent && !canRepeat(request) {
			break
		}
		lease, err := t.pick(request.Context(), s, a.next())
		if err != nil {
			a.noProxy(err)
			break
		}
		response, verdict, err := t.once(request, s, lease)
		switch verdict {
		case clean, unproven:
			settle(a.suspects, verdict == clean)
			closeBody(request, nil)
			s.setProxy(lease.Proxy.ID)
			return response, nil
		case ours:
			settle(a.suspects, false)
			return nil, closeBody(request, err)
		}
		a.fail(lease, verdict, response, err)
	}

	// All that were tried failed alike: it is the target. Its answer, if there is one, is passed on.
	if n := len(a.suspects); n > 0 {
		final := a.suspects[n-1]
		if final.response != nil {
			settle(a.suspects[:n-1], false)
			closeBody(request, nil)
			return final.response, nil
		}
		settle(a.suspects, false)
	}
	if a.goDirectly(a.last) {
		t.pool.transports.warnDirect(t.options.Site, a.last)
		s.goDirectly()
		return t.options.Direct.RoundTrip(request)
	}
	return nil, closeBody(request, a.last)
}

// addressOf returns the host:port of a URL.
func addressOf(u *url.URL) string {
	port := u.Port()
	if port == "" && u.Scheme == "http" {
		port = "80"
	} else if port == "" {
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// closeBody closes the request's body, as a RoundTripper must, and passes err on.
func closeBody(request *http.Request, err error) error {
	if request.Body != nil {
		request.Body.Close()
	}
	return err
}

// canRepeat reports whether the request may be sent twice.
func canRepeat(r *http.Request) bool {
	if r.Context().Err() != nil {
		return false
	}
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
	}
	return r.Header.Get("Idempotency-Key") != "" && (r.Body == nil || r.GetBody != nil)
}

// once sends the request through one proxy.
func (t *transport) once(request *http.Request, s *Session, lease *Lease) (*http.Response, verdict, error) {
	out := request.Clone(context.WithValue(request.Context(), leaseKey{}, lease))
	if request.GetBody != nil {
		body, err := request.GetBody()
		if err != nil {
			lease.Release()
			return nil, ours, err
		}
		out.Body = body
	}
	if t.options.KeepEncoding && out.Header.Get("Accept-Encoding") == "" {
		out.Header["Accept-Encoding"] = []string{"identity"} // or net/http would ask for gzip and undo it
	}
	var via *http.Transport
	var forward bool
	if s != nil {
		via, forward = s.transport(lease.Proxy, request.URL.Scheme)
	} else {
		via, forward = t.pool.transports.of(lease.Proxy, request.URL.Scheme)
	}
	begun := time.Now()
	response, err := via.RoundTrip(out)
	took := time.Since(begun)
	if err != nil {
		return nil, t.blame(request, s, lease, err), err
	}
	if forward {
		answer, refusal := proxysAnswer(response)
		switch {
		case refusal != nil:
			response.Body.Close()
			return nil, blame(lease, refusal), refusal
		case answer:
			response.Body = &body{ReadCloser: response.Body, lease: lease} // no outcome
			return response, doubtful, nil
		}
	}

	b := &body{ReadCloser: response.Body, lease: lease, outcome: Succeeded, latency: took}
	switch {
	case response.StatusCode == http.StatusTooManyRequests:
		b.outcome, b.cooldown = Paused, retryAfter(response)
	case t.options.Bans(response):
		b.outcome = Banned
	}
	response.Body = b
	if forward && response.StatusCode >= 400 { // many say so of a name that does not resolve
		return response, unproven, nil
	}
	return response, clean, nil
}

// blame returns whose fault an error of a request is, and ends the lease unless that is in doubt.
func (t *transport) blame(request *http.Request, s *Session, lease *Lease, err error) verdict {
	switch {
	case request.Context().Err() == context.Canceled:
		lease.Release()
		return ours
	case request.Context().Err() != nil, s.hasProxy() && isTimeout(err): // of a proxy that has reached the site
		lease.Report(TimedOut, 0)
		return guilty
	}
	return blame(lease, err)
}

// proxysAnswer reports whether an answer to an http request in absolute form may be the proxy's own rather than the
// site's. An answer that is certainly its own is an error.
func proxysAnswer(r *http.Response) (may bool, refusal error) {
	refuse := func(reason tunnel.Reason, asked bool) (bool, error) {
		return true, &tunnel.Error{Reason: reason, Detail: "the proxy answered " + r.Status, TargetSent: asked}
	}
	switch r.StatusCode {
	case http.StatusProxyAuthRequired:
		return refuse(tunnel.AuthRequired, false)
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusForbidden:
		h := r.Header
		if h.Get("X-Squid-Error") != "" || strings.Contains(h.Get("Proxy-Status"), "error=") || h.Get("Proxy-Connection") != "" || h.Get("X-Proxy-Error") != "" {
			if r.StatusCode == http.StatusForbidden {
				return refuse(tunnel.Denied, true)
			}
			return refuse(tunnel.Upstream, true)
		}
		return r.StatusCode == http.StatusBadGateway || r.StatusCode == http.StatusGatewayTimeout, nil
	}
	return false, nil
}

// retryAfter is the pause that a site asks for, between 1 s and an hour.
func retryAfter(r *http.Response) time.Duration {
	wait, ok := retryafter.Parse(r.Header.Get("Retry-After"), time.Now(), time.Hour)
	if !ok {
		wait = 5 * time.Second
	}
	return max(wait, time.Second)
}

// body ends its lease when it is closed, read to the end, or fails.
type body struct {
	io.ReadCloser
	lease    *Lease
	outcome  Outcome
	latency  time.Duration
	cooldown time.Duration
	ended    bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == nil, b.ended:
	case err == io.EOF:
		b.end()
	case errors.Is(err, context.Canceled):
		b.ended = true
		b.lease.Release()
	case isTimeout(err):
		b.ended = true
		b.lease.Report(missedTimedOut, 0)
	default: // broke off in the middle
		b.ended = true
		b.lease.Report(missed, 0)
	}
	return n, err
}

func (b *body) Close() error {
	if !b.ended {
		b.end()
	}
	return b.ReadCloser.Close()
}

func (b *body) end() {
	b.ended = true
	switch {
	case b.outcome == "":
		b.lease.Release()
	case b.outcome == Paused:
		b.lease.Pause(Paused, b.cooldown)
	default:
		b.lease.Report(b.outcome, b.latency)
	}
}
