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

// Reasons of checks against a Target, beyond those of all checks.
const (
	Unexpected  Reason = "unexpected"  // an answer came, with another status than 2xx or without the text
	Certificate Reason = "certificate" // the certificate that came for the target is not valid
)

// MaxTarget is how much of a target's answer is read, in bytes.
const MaxTarget = 1 << 20

// Target is a page that candidates must bring, instead of the answers of a judge. It is fetched through each candidate and
// never directly. Redirects are not followed.
type Target struct {
	// URL is of http or https, without a login. An http one needs Expect: any server could answer for it.
	URL string
	// Expect must be in the first MaxTarget bytes of the body. Defaults to nothing, so that any 2xx will do.
	Expect string
	// RootCAs sign the certificate of the target. Defaults to those of the system.
	RootCAs *x509.CertPool
}

// validate returns what is wrong with a target.
func (t *Target) validate() error {
	u, err := url.Parse(t.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("target %q is no http or https URL", t.URL)
	case u.User != nil:
		return errors.New("a target has no login in its URL")
	case u.Scheme == "http" && t.Expect == "":
		return errors.New("an http target needs a text to expect, since any server could answer for it; or use https")
	}
	return tunnel.CheckTarget(targetAddress(u))
}

// targetAddress is the host:port of a URL.
func targetAddress(u *url.URL) string {
	port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
}

// visitor fetches the target of a prober.
type visitor struct {
	*Prober
	url *url.URL
}

// try fetches the target by the candidate's modes until one brings what is expected. What a proxy answers to a request in
// absolute form may be its own; then its tunnel decides.
func (v *visitor) try(ctx context.Context, c source.Candidate) Result {
	begin := time.Now()
	attempts, cancel := context.WithTimeout(ctx, v.cfg.TotalTimeout)
	defer cancel()
	failed := &failures{}
	var wrong *Result // an answer that is not as expected
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

// judge returns what is wrong with an answer of the target.
func (t *Target) judge(r *reply) error {
	switch {
	case r.status/100 == 3 && r.header.Get("Location") != "":
		return &tunnel.Error{Reason: Unexpected, Detail: fmt.Sprintf("answered %d, a redirect to %.200q", r.status, r.header.Get("Location"))}
	case r.status/100 != 2:
		return &tunnel.Error{Reason: Unexpected, Detail: fmt.Sprintf("answered %d", r.status)}
	case !bytes.Contains(r.body, []byte(t.Expect)) && r.truncated:
		return &tunnel.Error{Reason: Unexpected, Detail: fmt.Sprintf("answered %d, without the text in its first %d bytes", r.status, len(r.body))}
	case !bytes.Contains(r.body, []byte(t.Expect)):
		return &tunnel.Error{Reason: Unexpected, Detail: fmt.Sprintf("answered %d, without the text", r.status)}
	}
	return nil
}

// fetch fetches the target by one mode, on a connection of its own. An answer that may be the target's has no error.
func (v *visitor) fetch(ctx context.Context, c source.Candidate, m mode) (*reply, Latency, error) {
	u := v.url
	conn, d, err := v.open(ctx, c, m, targetAddress(u))
	if err != nil {
		return nil, Latency{}, err
	}
	defer conn.Close()
	latency := Latency{Connect: milliseconds(conn.Timing.Connect), Handshake: milliseconds(conn.Timing.Handshake)}
	request := exchangeRequest{target: u.RequestURI(), host: u.Host, wait: v.cfg.AnswerTimeout, most: MaxTarget}
	if m.forward {
		request.target, request.proxyAuth = u.Scheme+"://"+u.Host+u.RequestURI(), d.BasicAuth()
	}
	var stream net.Conn = conn
	if u.Scheme == "https" {
		shaking := time.Now()
		secure := tls.Client(conn, &tls.Config{ServerName: u.Hostname(), RootCAs: v.cfg.Target.RootCAs})
		handshake, cancel := context.WithTimeout(ctx, v.cfg.AnswerTimeout)
		defer cancel()
		if err := secure.HandshakeContext(handshake); err != nil {
			if wrong, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
				return nil, latency, &tunnel.Error{Reason: Certificate, Detail: wrong.Error()}
			}
			return nil, latency, tunnel.Classify(ctx, "TLS with the target", err)
		}
		stream, latency.TLS = secure, milliseconds(time.Since(shaking))
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
