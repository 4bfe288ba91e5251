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

// attempts is the tries of one request: which proxies were tried, and whose fault the failures were.
type attempts struct {
	pick     PickOptions // of the next one
	left     int
	deadline time.Time // for proxies to wait for
	wait     bool
	direct   bool
	suspects []suspect
	last     error // what to return when no other proxy is tried
}

// defaultWait is how long FallbackWait waits.
const defaultWait = 30 * time.Second

func newAttempts(o PickOptions, fallback Fallback, tries int) *attempts {
	a := &attempts{pick: o, left: tries, wait: fallback == FallbackWait, direct: fallback == FallbackDirect}
	a.pick.Except = slices.Clone(o.Except)
	a.deadline = time.Now().Add(cmp.Or(o.Wait, defaultWait))
	return a
}

// next returns what to pick next. It waits for a proxy only while the failures so far were certainly the proxies' own.
func (a *attempts) next() PickOptions {
	a.left--
	a.pick.Wait = 0
	if a.wait && len(a.suspects) == 0 && a.pick.without == "" {
		a.pick.Wait = time.Until(a.deadline)
	}
	return a.pick
}

// noProxy records that no proxy is left to try.
func (a *attempts) noProxy(err error) {
	if a.last == nil || a.goDirectly(err) {
		a.last = err
	}
}

// goDirectly reports whether to connect directly after err. It returns false when a proxy could not reach the target: then the
// pool is not at fault.
func (a *attempts) goDirectly(err error) bool {
	return a.direct && errors.Is(err, ErrNoProxy) && len(a.suspects) == 0 && a.pick.without == ""
}

// fail records how a proxy failed, by an error or an answer of its own, and whose fault that was.
func (a *attempts) fail(lease *Lease, v verdict, response *http.Response, err error) {
	a.pick.Except = append(a.pick.Except, lease.Proxy.ID)
	if err != nil {
		a.last = &fault{error: err, via: lease.Proxy.ID, sure: v == guilty && tunnel.ReasonOf(err) != ""}
	}
	switch v {
	case doubtful:
		a.suspects = append(a.suspects, suspect{lease, chargeOf(err), response})
	case unfit:
		if lease.Proxy.Protocol == "socks4" && a.pick.without == "" { // which all fail alike, before they are asked
			a.pick.without = lease.Proxy.Protocol
			a.left++
		}
	}
}

// fault is an error of a request through a proxy.
type fault struct {
	error
	via  string // the proxy
	sure bool   // it was the proxy's and not the target's
}

// Unwrap returns the cause.
func (f *fault) Unwrap() error { return f.error }

// ProxyFault reports whether the proxy failed for certain, and not the target.
func (f *fault) ProxyFault() bool { return f.sure }

// Via is the id of the proxy that carried the request.
func (f *fault) Via() string { return f.via }

// verdict is whose fault an outcome was.
type verdict int

const (
	clean    verdict = iota // an answer of the site, to pass on
	unproven                // an answer to pass on that may be the proxy's own, without reaching the site
	guilty                  // the proxy's; it has been reported
	doubtful                // the proxy's or the target's
	unfit                   // no one's: the protocol of the proxy cannot carry the target
	ours                    // this process's or the caller's
)

// blame returns whose fault an error was, and ends the lease unless that is in doubt.
func blame(lease *Lease, err error) verdict {
	switch reason := tunnel.ReasonOf(err); {
	case reason == tunnel.Local, reason == tunnel.Canceled:
		lease.Release()
		return ours
	case reason == tunnel.Unsupported: // such as an IPv6 target for SOCKS4, or a name that does not resolve here
		lease.Release()
		return unfit
	case reason == "", tunnel.MayBeTargets(err):
		return doubtful
	case reason == tunnel.ConnectTimeout, reason == tunnel.Timeout:
		lease.Report(TimedOut, 0)
	default:
		lease.Report(Failed, 0)
	}
	return guilty
}

// suspect is a proxy whose failure may be the target's fault. The target is at fault unless another proxy reaches it.
type suspect struct {
	lease    *Lease
	outcome  Outcome        // to report if another reaches the target
	response *http.Response // its own, if it gave one
}

// chargeOf is the outcome of a proxy that failed with err when another reaches the target.
func chargeOf(err error) Outcome {
	var wrongCertificate *tls.CertificateVerificationError
	var unknownAuthority x509.UnknownAuthorityError
	switch {
	case errors.As(err, &wrongCertificate), errors.As(err, &unknownAuthority): // its own, since the other saw a good one
		return Failed
	case tunnel.ReasonOf(err) == tunnel.Denied:
		return useless
	case tunnel.ReasonOf(err) == tunnel.Timeout, isTimeout(err):
		return missedTimedOut
	}
	return missed
}

// settle ends the leases of the suspects: with a report when another proxy has reached the target, else with none. A proxy
// that timed out rests at the target in any case, so that the next request does not take as long.
func settle(suspects []suspect, guilty bool) {
	for _, s := range suspects {
		switch {
		case guilty:
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

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}
