package proxies

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"slices"
	"time"

	"muster/proxies/tunnel"
)

// attempts tracks the attempts of one request: the proxies used, and the cause of each failure.
type attempts struct {
	pick      PickOptions // for the next attempt
	triesLeft int
	deadline  time.Time // of waiting for a proxy
	fallback  Fallback
	suspects  []suspect
	lastErr   error // the last one, of the target if there is one
}

// defaultWait is the default of PickOptions.Wait with FallbackWait.
const defaultWait = 30 * time.Second

func newAttempts(o TransportOptions, tries int) *attempts {
	a := &attempts{pick: o.PickOptions, triesLeft: tries, fallback: o.Fallback}
	a.pick.Except = slices.Clone(o.Except)
	a.deadline = time.Now().Add(cmp.Or(o.Wait, defaultWait))
	return a
}

// next returns the options of the next pick. It waits for a proxy only if all failures so far were caused by proxies.
func (a *attempts) next() PickOptions {
	a.triesLeft--
	a.pick.Wait = 0
	if a.fallback == FallbackWait && len(a.suspects) == 0 && a.pick.unsupported == "" {
		a.pick.Wait = time.Until(a.deadline)
	}
	return a.pick
}

// takeResponse removes the last suspect with a response, if any, and returns the response. Its body ends the lease.
func (a *attempts) takeResponse() *http.Response {
	for i, s := range slices.Backward(a.suspects) {
		if s.response != nil {
			a.suspects = slices.Delete(a.suspects, i, i+1)
			return s.response
		}
	}
	return nil
}

// noProxy records that the pool has no further proxy.
func (a *attempts) noProxy(err error) {
	if a.lastErr == nil || a.allowsDirect(err) {
		a.lastErr = err
	}
}

// allowsDirect reports whether to connect directly after err. If a proxy could not reach the target or does not
// support it, the pool is not the cause and a direct connection is not allowed.
func (a *attempts) allowsDirect(err error) bool {
	return a.fallback == FallbackDirect && errors.Is(err, ErrNoProxy) && len(a.suspects) == 0 && a.pick.unsupported == ""
}

// fail records a failed attempt: its verdict, and either err or the proxy's own response.
func (a *attempts) fail(lease *Lease, v verdict, response *http.Response, err error) {
	a.pick.Except = append(a.pick.Except, lease.Proxy.ID)
	// The error of a suspect describes the target, and is not replaced by the error of a proxy.
	if err != nil && (len(a.suspects) == 0 || v == verdictUnknown || v == verdictLocal) {
		a.lastErr = &fault{error: err, proxyID: lease.Proxy.ID, certain: v == verdictProxy && tunnel.ReasonOf(err) != ""}
	}
	switch v {
	case verdictUnknown:
		a.suspects = append(a.suspects, suspect{lease, chargeOf(err), response})
	case verdictUnsupported:
		if lease.Proxy.Protocol == "socks4" && a.pick.unsupported == "" { // all of them fail in the same way, without a connection
			a.pick.unsupported = lease.Proxy.Protocol
			a.triesLeft++
		}
	}
}

// A fault is the error of a request through a proxy.
type fault struct {
	error
	proxyID string // ID of the proxy
	certain bool   // the proxy certainly caused the failure
}

// Unwrap returns the cause.
func (f *fault) Unwrap() error { return f.error }

// ProxyFault reports whether the proxy certainly caused the failure.
func (f *fault) ProxyFault() bool { return f.certain }

// Via returns the ID of the proxy that carried the request.
func (f *fault) Via() string { return f.proxyID }

// A verdict is the cause of an outcome.
type verdict int

const (
	verdictOK          verdict = iota // a response of the site
	verdictUnproven                   // a response that may come from the proxy itself and does not prove that the site was reached
	verdictProxy                      // the proxy failed and was reported
	verdictUnknown                    // the proxy or the target failed
	verdictUnsupported                // the protocol of the proxy does not support the target
	verdictLocal                      // this process failed, or the caller canceled
)

// blame returns the cause of an error and ends the lease, unless the cause is verdictUnknown.
func blame(lease *Lease, err error) verdict {
	switch reason := tunnel.ReasonOf(err); {
	case reason == tunnel.Local, reason == tunnel.Canceled:
		lease.Release()
		return verdictLocal
	case reason == tunnel.Unsupported: // such as an IPv6 target for SOCKS4, or a name that does not resolve locally
		lease.Release()
		return verdictUnsupported
	case reason == "", tunnel.MayBeTargets(err):
		return verdictUnknown
	case reason == tunnel.ConnectTimeout, reason == tunnel.Timeout:
		lease.Report(TimedOut, 0)
	default:
		lease.Report(Failed, 0)
	}
	return verdictProxy
}

// A suspect is a proxy whose failure may have been caused by the target. The target is the cause unless another proxy
// reaches it.
type suspect struct {
	lease    *Lease
	outcome  Outcome        // to report if another proxy reaches the target
	response *http.Response // the response of the proxy, if any
}

// chargeOf returns the outcome for a proxy that failed with err if another proxy reaches the target.
func chargeOf(err error) Outcome {
	var wrongCertificate *tls.CertificateVerificationError
	var unknownAuthority x509.UnknownAuthorityError
	switch {
	case errors.As(err, &wrongCertificate), errors.As(err, &unknownAuthority): // issued by the proxy, because the other proxy received a valid one
		return Failed
	case tunnel.ReasonOf(err) == tunnel.Denied:
		return useless
	case tunnel.ReasonOf(err) == tunnel.Timeout, tunnel.IsTimeout(err):
		return missedTimedOut
	}
	return missed
}

// settle ends the leases of the suspects, with a report if another proxy reached the target. A proxy that timed out
// is suspended at the target in any case, so that the next request does not wait for it.
func settle(suspects []suspect, reached bool) {
	for _, s := range suspects {
		switch {
		case reached:
			s.lease.Report(s.outcome, 0)
		case s.outcome == missedTimedOut:
			s.lease.Report(useless, 0)
		default:
			s.lease.Release()
		}
		if s.response != nil {
			s.response.Body.Close()
		}
	}
}
