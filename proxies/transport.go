package proxies

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"muster/internal/retryafter"
	"muster/proxies/tunnel"
)

// Fallback is the behavior if the pool has no proxy for a request.
type Fallback string

// Fallbacks. Only FallbackDirect connects directly.
const (
	FallbackFail   Fallback = "fail"   // return ErrNoProxy immediately; the default
	FallbackWait   Fallback = "wait"   // wait for a proxy for up to TransportOptions.Wait, then return ErrNoProxy
	FallbackDirect Fallback = "direct" // connect without a proxy and log a warning
)

// defaultTries is the default number of proxies per request or tunnel.
const defaultTries = 3

// TransportOptions configure a Transport and Dial, which has no use for the last two.
type TransportOptions struct {
	PickOptions // Transport sets Site; Wait applies with FallbackWait only and defaults to 30 s there
	// Fallback defaults to FallbackFail.
	Fallback Fallback
	// Tries is the maximum number of proxies per request. Defaults to 3.
	Tries int
	// Direct connects to the target with FallbackDirect. Required there.
	Direct *http.Transport
	// KeepEncoding keeps bodies compressed as received, for forwarding. Defaults to false.
	KeepEncoding bool
	// Again is called before a request that the site may have received is sent through another proxy. It waits for the
	// pace of the site; an error ends the attempts. Defaults to no wait.
	Again func(context.Context) error
}

// Transport returns a RoundTripper that sends requests to one site through the pool. A failure of a proxy is recorded
// for all sites, a ban for this site only; responses such as 404 or 500 from the site itself are no failures. If no
// part of the response has been returned and the request is repeatable, it is retried with another proxy. The
// RoundTripper is safe for concurrent use.
//
// Errors have the methods ProxyFault, which reports whether the proxy certainly failed, and Via, which returns its
// ID.
//
// Close the body of each response: the proxy is in use until then.
func (p *Pool) Transport(site string, o TransportOptions) http.RoundTripper {
	o.Site = site
	o.Fallback = cmp.Or(o.Fallback, FallbackFail)
	o.Tries = cmp.Or(o.Tries, defaultTries)
	return &transport{pool: p, options: o}
}

type transport struct {
	pool    *Pool
	options TransportOptions
}

type leaseKey struct{}

// Used returns the proxy that carried a response. ok is false for a direct connection.
func Used(r *http.Response) (proxy Proxy, ok bool) {
	if r == nil || r.Request == nil {
		return Proxy{}, false
	}
	lease, ok := r.Request.Context().Value(leaseKey{}).(*Lease)
	if !ok {
		return Proxy{}, false
	}
	return lease.Proxy, true
}

// Blocked reports that the body of a response shows that the site blocks its proxy, for example with a captcha. The
// proxy is suspended at this site only. Blocked may be called before or after the body is read and closed.
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

// send attempts the request with up to tries proxies. In a session, the first proxy that responds becomes the
// session's proxy.
func (t *transport) send(request *http.Request, s *Session, tries int) (*http.Response, error) {
	if err := tunnel.CheckTarget(tunnel.AddressOf(request.URL)); err != nil {
		return nil, closeBody(request, err)
	}
	a := newAttempts(t.options, tries)
	a.pick.Filter.Connect = a.pick.Filter.Connect || request.URL.Scheme == "https"
	a.pick.Filter.Plain = a.pick.Filter.Plain || request.URL.Scheme == "http"
	received := false // the site may have received the last attempt
	for sent := false; a.triesLeft > 0; sent = true {
		if sent && !canRepeat(request) {
			break
		}
		lease, err := t.pick(request.Context(), s, a.next())
		if err != nil {
			a.noProxy(err)
			break
		}
		if received && t.options.Again != nil {
			if err := t.options.Again(request.Context()); err != nil {
				lease.Release()
				break
			}
		}
		response, verdict, err := t.sendOnce(request, s, lease)
		switch verdict {
		case verdictOK, verdictUnproven:
			settle(a.suspects, verdict == verdictOK)
			closeBody(request, nil)
			s.setProxy(lease.Proxy.ID)
			return response, nil
		case verdictLocal:
			settle(a.suspects, false)
			return nil, closeBody(request, err)
		}
		received = verdict == verdictUnknown
		a.fail(lease, verdict, response, err)
	}

	// No proxy reached the target, so the target is considered the cause. The last response, if any, is returned.
	final := a.takeResponse()
	settle(a.suspects, false)
	if final != nil {
		closeBody(request, nil)
		return final, nil
	}
	if a.allowsDirect(a.lastErr) {
		t.pool.transports.warnDirect(t.options.Site, a.lastErr)
		s.setDirect()
		return t.options.Direct.RoundTrip(request)
	}
	return nil, closeBody(request, a.lastErr)
}

// closeBody closes the request's body, as required of a RoundTripper, and returns err.
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

// sendOnce sends the request through one proxy.
func (t *transport) sendOnce(request *http.Request, s *Session, lease *Lease) (*http.Response, verdict, error) {
	out := request.Clone(context.WithValue(request.Context(), leaseKey{}, lease))
	if request.GetBody != nil {
		body, err := request.GetBody()
		if err != nil {
			lease.Release()
			return nil, verdictLocal, err
		}
		out.Body = body
	}
	if t.options.KeepEncoding && out.Header.Get("Accept-Encoding") == "" {
		out.Header["Accept-Encoding"] = []string{"identity"} // prevents net/http from adding gzip and decompressing the body
	}
	via, forward := t.pool.transports.of(lease.Proxy, request.URL.Scheme)
	begun := time.Now()
	response, err := via.RoundTrip(out)
	took := time.Since(begun)
	if err != nil {
		return nil, t.blame(request, s, lease, err), err
	}
	if forward {
		ambiguous, refusal := classifyResponse(response)
		switch {
		case refusal != nil:
			response.Body.Close()
			return nil, blame(lease, refusal), refusal
		case ambiguous:
			response.Body = &body{ReadCloser: response.Body, lease: lease} // no outcome
			return response, verdictUnknown, nil
		}
	}

	b := &body{ReadCloser: response.Body, lease: lease, outcome: Succeeded, latency: took}
	switch response.StatusCode {
	case http.StatusTooManyRequests:
		b.outcome, b.cooldown = Paused, retryAfter(response)
	case http.StatusForbidden:
		b.outcome = Banned
	}
	response.Body = b
	if forward && response.StatusCode >= 400 { // many proxies do this for names that do not resolve
		return response, verdictUnproven, nil
	}
	return response, verdictOK, nil
}

// blame returns the cause of a failed request and ends the lease, unless the cause is verdictUnknown.
func (t *transport) blame(request *http.Request, s *Session, lease *Lease, err error) verdict {
	switch {
	case request.Context().Err() == context.Canceled:
		lease.Release()
		return verdictLocal
	case request.Context().Err() != nil, s.hasProxy() && tunnel.IsTimeout(err): // the proxy of a session has reached the site before
		lease.Report(TimedOut, 0)
		return verdictProxy
	}
	return blame(lease, err)
}

// classifyResponse determines whether the proxy itself created the response to a plain http request. If it certainly
// did, refusal is not nil; ambiguous means that it may have.
func classifyResponse(r *http.Response) (ambiguous bool, refusal error) {
	refuse := func(reason tunnel.Reason, targetSent bool) (bool, error) {
		return true, &tunnel.Error{Reason: reason, Detail: "proxy returned status " + r.Status, TargetSent: targetSent}
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

// retryAfter returns the pause requested by a site, between 1 s and an hour.
func retryAfter(r *http.Response) time.Duration {
	wait, ok := retryafter.Parse(r.Header.Get("Retry-After"), time.Now(), time.Hour)
	if !ok {
		wait = 5 * time.Second
	}
	return max(wait, time.Second)
}

// A body ends its lease on Close, EOF or an error.
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
	case tunnel.IsTimeout(err):
		b.ended = true
		b.lease.Report(missedTimedOut, 0)
	default: // truncated
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
