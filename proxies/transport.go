package proxies

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"muster/proxies/tunnel"
)

// Fallback is what happens when the pool has no proxy for a request.
type Fallback string

// The fallbacks. There is none that goes directly without being told to.
const (
	FallbackFail   Fallback = "fail"   // ErrNoProxy at once: the default
	FallbackWait   Fallback = "wait"   // wait for one, up to TransportOptions.Wait, then ErrNoProxy
	FallbackDirect Fallback = "direct" // without a proxy, with a warning
)

// TransportOptions say how a transport uses the pool.
type TransportOptions struct {
	PickOptions // Site is set by Transport; Wait counts with FallbackWait only and defaults to 30 s there
	// Fallback defaults to FallbackFail.
	Fallback Fallback
	// Tries is how many proxies a request is tried with. Defaults to 3.
	Tries int
	// Direct is used by FallbackDirect. Defaults to http.DefaultTransport.
	Direct http.RoundTripper
	// KeepEncoding leaves bodies compressed as they come, for who passes them on. Defaults to false.
	KeepEncoding bool
	// Bans tells from the head of an answer that the site does not want this proxy. Defaults to status 403.
	Bans func(*http.Response) bool
}

// Transport lends the pool for requests to one site. Each request goes by a proxy that suits it, and what becomes of it
// is charged to whom it belongs: what the proxy does wrong counts on all sites, a ban on this one only, and the site's
// own 404 or 500 on nobody. While nothing of an answer has been passed on, and the request can be sent again, another
// proxy is tried. The transport may be used by many goroutines.
//
// An error says by its methods ProxyFault and Via whether it was the proxy's for certain, and which proxy that was.
//
// Close the body of each answer: the proxy is held until then.
func (p *Pool) Transport(site string, o TransportOptions) http.RoundTripper {
	o.Site = site
	o.Fallback = cmp.Or(o.Fallback, FallbackFail)
	o.Tries = cmp.Or(o.Tries, 3)
	if o.Fallback != FallbackWait {
		o.Wait = 0
	} else {
		o.Wait = cmp.Or(o.Wait, 30*time.Second)
	}
	if o.Direct == nil {
		o.Direct = http.DefaultTransport
	}
	if o.Bans == nil {
		o.Bans = func(r *http.Response) bool { return r.StatusCode == http.StatusForbidden }
	}
	return &transport{pool: p, options: o}
}

type transport struct {
	pool    *Pool
	options TransportOptions
	warned  atomic.Int64 // unix s when it last said that requests go directly
}

// warnEvery is how often it is said again that requests go directly, in s.
const warnEvery = 60

type leaseKey struct{}

// Used returns the proxy that an answer came by, and false when it came directly.
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

// Blocked tells the pool that the body of an answer is the site's way to say no to this proxy, such as a captcha. The
// proxy rests on this site; on others nothing changes. It may be called before or after the body was read and closed: what
// a page says is known only then.
func Blocked(r *http.Response) {
	if r != nil && r.Request != nil {
		if lease, ok := r.Request.Context().Value(leaseKey{}).(*Lease); ok {
			lease.banned()
		}
	}
}

// suspect is a proxy whose failure may as well be the target's. Who else reaches the target shows whose it was.
type suspect struct {
	lease    *Lease
	response *http.Response
	err      error
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if s := sessionOf(request.Context()); s != nil {
		return t.inSession(request, s)
	}
	return t.send(request, nil, t.options.Tries)
}

// send tries up to so many proxies; in a session the first of them that answers becomes its own.
func (t *transport) send(request *http.Request, s *Session, tries int) (*http.Response, error) {
	var suspects []suspect
	var last error
	tried := slices.Clone(t.options.Except)
	for try := range tries {
		if try > 0 && !canRepeat(request) {
			break
		}
		pick := t.options.PickOptions
		pick.Except = tried
		pick.Filter.Connect = pick.Filter.Connect || request.URL.Scheme == "https"
		pick.Filter.Plain = pick.Filter.Plain || request.URL.Scheme == "http"
		if try > 0 {
			pick.Wait = 0
		}
		lease, err := t.pick(request.Context(), s, pick)
		if err != nil {
			if last == nil {
				last = err
			}
			break
		}
		tried = append(tried, lease.Proxy.ID)
		response, verdict, err := t.once(request, s, lease)
		switch {
		case err == nil && verdict == clean:
			acquit(suspects, true)
			closeBody(request, nil)
			s.keepTo(lease.Proxy.ID)
			return response, nil
		case verdict == doubtful:
			suspects = append(suspects, suspect{lease, response, err})
			if err != nil {
				last = &fault{error: err, via: lease.Proxy.ID}
			}
		case verdict == guilty:
			last = &fault{error: err, via: lease.Proxy.ID, sure: tunnel.ReasonOf(err) != ""}
		default: // the caller's own doing
			acquit(suspects, false)
			return nil, closeBody(request, err)
		}
	}

	// Everyone who was tried says the same: it is the target. Its answer, if there is one, is passed on.
	if n := len(suspects); n > 0 {
		final := suspects[n-1]
		acquit(suspects[:n-1], false)
		if final.response != nil {
			closeBody(request, nil)
			return final.response, nil
		}
		final.lease.Release()
		last = &fault{error: final.err, via: final.lease.Proxy.ID}
	}
	if errors.Is(last, ErrNoProxy) && t.options.Fallback == FallbackDirect {
		now, before := time.Now().Unix(), t.warned.Load()
		if now-before >= warnEvery && t.warned.CompareAndSwap(before, now) {
			t.pool.cfg.Logger.Warn("no proxy: going directly, as configured", "site", t.options.Site, "why", last)
		}
		s.goDirectly()
		return t.options.Direct.RoundTrip(request)
	}
	return nil, closeBody(request, last)
}

// fault is an error of a request through a proxy.
type fault struct {
	error
	via  string // the proxy
	sure bool   // it was the proxy's and not the target's
}

// Unwrap returns the cause.
func (f *fault) Unwrap() error { return f.error }

// ProxyFault tells whether the proxy failed for certain, and not the target.
func (f *fault) ProxyFault() bool { return f.sure }

// Via is the id of the proxy that the request went by.
func (f *fault) Via() string { return f.via }

// acquit settles the suspects: when somebody else has reached the target, they are to blame.
func acquit(suspects []suspect, guilty bool) {
	for _, s := range suspects {
		if guilty {
			s.lease.Report(Failed, 0)
		} else {
			s.lease.Release()
		}
		if s.response != nil {
			s.response.Body.Close()
		}
	}
}

// closeBody closes the request's body, as a RoundTripper must, and passes err on.
func closeBody(request *http.Request, err error) error {
	if request.Body != nil {
		request.Body.Close()
	}
	return err
}

// canRepeat tells whether the request may be sent twice.
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

// verdict is whose fault an outcome was.
type verdict int

const (
	clean    verdict = iota // an answer to pass on
	guilty                  // the proxy's; it has been reported
	doubtful                // the proxy's or the target's
	caller                  // ours
)

// once sends the request by one proxy.
func (t *transport) once(request *http.Request, s *Session, lease *Lease) (*http.Response, verdict, error) {
	out := request.Clone(context.WithValue(request.Context(), leaseKey{}, lease))
	if request.GetBody != nil {
		body, err := request.GetBody()
		if err != nil {
			lease.Release()
			return nil, caller, err
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
		return nil, t.blame(request, lease, err), err
	}
	if forward {
		switch proxysAnswer(response) {
		case guilty:
			response.Body.Close()
			lease.Report(Failed, 0)
			return nil, guilty, &tunnel.Error{Reason: tunnel.Upstream, Detail: "the proxy answered " + response.Status}
		case doubtful:
			response.Body = &body{ReadCloser: response.Body, lease: lease} // nothing learned
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
	return response, clean, nil
}

// blame finds whose fault an error is, and reports the proxy's.
func (t *transport) blame(request *http.Request, lease *Lease, err error) verdict {
	if request.Context().Err() == context.Canceled {
		lease.Release()
		return caller
	}
	var wrongCertificate *tls.CertificateVerificationError
	var unknownAuthority x509.UnknownAuthorityError
	switch reason := tunnel.ReasonOf(err); {
	case reason == tunnel.Local, reason == tunnel.Canceled:
		lease.Release()
		return caller
	case reason == tunnel.Unsupported: // such as an IPv6 target for SOCKS4
		return doubtful
	case reason == tunnel.Upstream, reason == tunnel.Denied:
		return doubtful
	case reason == tunnel.ConnectTimeout, reason == tunnel.Timeout:
		lease.Report(TimedOut, 0)
		return guilty
	case reason != "":
		lease.Report(Failed, 0)
		return guilty
	case errors.As(err, &wrongCertificate), errors.As(err, &unknownAuthority):
		return doubtful
	case isTimeout(err) || request.Context().Err() != nil:
		lease.Report(TimedOut, 0)
		return guilty
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), strings.Contains(err.Error(), "malformed HTTP"),
		strings.Contains(err.Error(), "connection reset"), strings.Contains(err.Error(), "server closed"), strings.Contains(err.Error(), "broken pipe"):
		return doubtful
	}
	return doubtful
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// proxysAnswer tells whether an answer to an http request in absolute form is the proxy's own rather than the site's.
func proxysAnswer(r *http.Response) verdict {
	switch r.StatusCode {
	case http.StatusProxyAuthRequired:
		return guilty
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusForbidden:
		h := r.Header
		if h.Get("X-Squid-Error") != "" || strings.Contains(h.Get("Proxy-Status"), "error=") || h.Get("Proxy-Connection") != "" || h.Get("X-Proxy-Error") != "" {
			return guilty
		}
		if r.StatusCode == http.StatusBadGateway || r.StatusCode == http.StatusGatewayTimeout {
			return doubtful
		}
	}
	return clean
}

// retryAfter is how long the site wants to be left alone, between 1 s and an hour.
func retryAfter(r *http.Response) time.Duration {
	value := r.Header.Get("Retry-After")
	wait := 5 * time.Second
	if seconds, err := strconv.Atoi(value); err == nil {
		wait = time.Duration(min(seconds, 3600)) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		wait = time.Until(at)
	}
	return min(max(wait, time.Second), time.Hour)
}

// body gives the proxy back when it is closed or fails.
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
		b.lease.Report(TimedOut, 0)
	default: // broke off in the middle
		b.ended = true
		b.lease.Report(Failed, 0)
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
