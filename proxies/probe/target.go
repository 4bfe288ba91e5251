package probe

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"muster/proxies/source"
	"muster/proxies/tunnel"
)

// Reasons of checks against a Target, in addition to the other reasons.
const (
	Unexpected  Reason = "unexpected"  // a response with a status other than 2xx or without the expected string
	Certificate Reason = "certificate" // the certificate presented for the target is invalid
)

// MaxTarget is the number of bytes read of a target's body.
const MaxTarget = 1 << 20

// A Target is a page that is fetched through each candidate instead of the judge's pages. It is never fetched
// directly. Redirects are not followed.
type Target struct {
	// URL is an http or https URL without credentials. An http URL requires Expect, because any server could respond
	// to it.
	URL string
	// Expect must occur in the first MaxTarget bytes of the body. Defaults to empty: any 2xx response is accepted.
	Expect string
	// RootCAs are the trusted authorities for the certificate of the target. Defaults to the system's.
	RootCAs *x509.CertPool
}

// validate returns an error if t is invalid.
func (t *Target) validate() error {
	u, err := url.Parse(t.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("invalid target %q: must be an http or https URL", t.URL)
	case u.User != nil:
		return errors.New("invalid target: the URL must not contain credentials")
	case u.Scheme == "http" && t.Expect == "":
		return errors.New("an http target requires an expected string, because any server could respond to it; or use https")
	}
	return tunnel.CheckTarget(tunnel.AddressOf(u))
}

// A visitor fetches the target of a prober.
type visitor struct {
	*Prober
	url *url.URL
}

// try fetches the target by the candidate's modes until one returns the expected response. An unexpected response to
// a request in absolute form may come from the proxy itself, so a tunnel is tried too.
func (v *visitor) try(ctx context.Context, c source.Candidate) Result {
	begin := time.Now()
	attempts, cancel := context.WithTimeout(ctx, v.cfg.TotalTimeout)
	defer cancel()
	failed := &failures{}
	var wrong *Result // the first unexpected response
	for _, m := range modesFor(c.Protocol) {
		if failed.final || attempts.Err() != nil || !failed.worthTrying(m) || m.forward && v.url.Scheme == "https" {
			continue
		}
		reply, latency, err := v.fetch(attempts, c, m)
		if reply == nil && tunnel.ReasonOf(err) != Certificate {
			failed.add(m, err)
			continue
		}
		r := Result{Candidate: c, Protocol: m.scheme, Alive: true, Tunnel: !m.forward, Latency: latency, CheckedAt: begin.UTC()}
		r.Latency.Total = milliseconds(time.Since(begin))
		if reply != nil {
			r.Status, err = reply.status, v.cfg.Target.judge(reply)
		}
		if failure, ok := errors.AsType[*tunnel.Error](err); ok {
			r.Reason, r.Detail = failure.Reason, failure.Detail
			wrong = cmp.Or(wrong, &r)
			if m.forward {
				failed.add(m, &tunnel.Error{Reason: NotProxy, Status: r.Status})
				continue
			}
			return *wrong
		}
		return r
	}
	if wrong != nil {
		return *wrong
	}
	result := Result{Candidate: c, Protocol: c.Protocol, Reason: failed.reason, Detail: failed.detail, CheckedAt: begin.UTC()}
	result.Latency.Total = milliseconds(time.Since(begin))
	return result
}

// judge returns an error if r is not the expected response of the target.
func (t *Target) judge(r *reply) error {
	switch {
	case r.status/100 == 3 && r.header.Get("Location") != "":
		return &tunnel.Error{Reason: Unexpected, Detail: fmt.Sprintf("status %d, a redirect to %.200q", r.status, r.header.Get("Location"))}
	case r.status/100 != 2:
		return &tunnel.Error{Reason: Unexpected, Detail: fmt.Sprintf("status %d", r.status)}
	case !bytes.Contains(r.body, []byte(t.Expect)) && r.truncated:
		return &tunnel.Error{Reason: Unexpected, Detail: fmt.Sprintf("status %d, without the expected string in the first %d bytes", r.status, len(r.body))}
	case !bytes.Contains(r.body, []byte(t.Expect)):
		return &tunnel.Error{Reason: Unexpected, Detail: fmt.Sprintf("status %d, without the expected string", r.status)}
	}
	return nil
}

// fetch fetches the target by one mode on a new connection. The error is nil for any response that may be the
// target's.
func (v *visitor) fetch(ctx context.Context, c source.Candidate, m mode) (*reply, Latency, error) {
	u := v.url
	conn, d, err := v.open(ctx, c, m, tunnel.AddressOf(u))
	if err != nil {
		return nil, Latency{}, err
	}
	defer conn.Close()
	latency := Latency{Connect: milliseconds(conn.Timing.Connect), Handshake: milliseconds(conn.Timing.Handshake)}
	request := exchangeRequest{target: u.RequestURI(), host: u.Host, wait: v.cfg.ResponseTimeout, maxBytes: MaxTarget}
	if m.forward {
		request.target, request.proxyAuth = u.Scheme+"://"+u.Host+u.RequestURI(), d.BasicAuth()
	}
	var stream net.Conn = conn
	if u.Scheme == "https" {
		handshakeStart := time.Now()
		secure := tls.Client(conn, &tls.Config{ServerName: u.Hostname(), RootCAs: v.cfg.Target.RootCAs})
		handshake, cancel := context.WithTimeout(ctx, v.cfg.ResponseTimeout)
		defer cancel()
		if err := secure.HandshakeContext(handshake); err != nil {
			if wrong, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
				return nil, latency, &tunnel.Error{Reason: Certificate, Detail: wrong.Error()}
			}
			return nil, latency, tunnel.Classify(ctx, "TLS with the target", err)
		}
		stream, latency.TLS = secure, milliseconds(time.Since(handshakeStart))
	}
	reply, err := exchange(ctx, stream, request)
	if err != nil {
		return nil, latency, tunnel.Classify(ctx, "request", err)
	}
	latency.FirstByte = milliseconds(reply.firstByte)
	if m.forward && reply.status == http.StatusProxyAuthRequired {
		return nil, latency, tunnel.StatusError(reply.status, c.Username != "" || c.Password != "")
	}
	return reply, latency, nil
}
