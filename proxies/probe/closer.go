package probe

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/proxies/source"
	"muster/proxies/tunnel"
)

// finding is what one of the closer looks has seen. Each look writes only its own.
type finding struct {
	ok        bool
	exit      netip.Addr
	latency   Latency // of the look at TLS
	tampering []string
	detail    string // what the tampering is
	err       error
}

// add notes a kind of tampering.
func (f *finding) add(kind, detail string) {
	f.tampering = append(f.tampering, kind)
	f.detail = strings.TrimPrefix(f.detail+"; "+detail, "; ")
}

// lookCloser finishes the result of a candidate through which the judge has been reached by m.
// The looks run side by side, each on a connection of its own.
func (p *Prober) lookCloser(ctx context.Context, c source.Candidate, m mode, judged *standing, first *Echo, result *Result) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.TotalTimeout)
	defer cancel()
	isHTTP := m.forward || m.isTunnelOverHTTP()
	tunnelMode := mode{scheme: m.scheme}

	var group sync.WaitGroup
	look := func(f func() finding) *finding {
		out := &finding{}
		group.Go(func() { *out = f() })
		return out
	}
	echo := func(m mode, j judge) func() finding {
		return func() finding {
			answer, err := p.echoThrough(ctx, c, m, j)
			if err != nil {
				return finding{err: err}
			}
			return finding{ok: true, exit: answer.echo.Peer}
		}
	}
	none := &finding{}
	missing, again, secure, connect, v6, socks4, socks4a, socks5 := none, none, none, none, none, none, none, none
	pageSeen := look(func() finding { return p.lookAtPage(ctx, c, m, judged.judge, pagePath, http.StatusOK) })
	if judged.judge.public == "" {
		missing = look(func() finding { return p.lookAtPage(ctx, c, m, judged.judge, missingPath, http.StatusNotFound) })
		again = look(func() finding { return p.lookAgain(ctx, c, m, judged.judge, first) })
	}
	if hint := judged.baseline.TLS; hint != nil {
		secure = look(func() finding { return p.lookAtTLS(ctx, c, tunnelMode, judged.judge, *hint) })
	}
	if m.forward {
		connect = look(echo(tunnelMode, judged.judge))
	}
	if judged.judge6 != nil {
		v6 = look(echo(m, *judged.judge6))
	}
	if !isHTTP {
		for scheme, found := range map[string]**finding{"socks4": &socks4, "socks4a": &socks4a, "socks5": &socks5} {
			if scheme != m.scheme {
				*found = look(echo(mode{scheme: scheme}, judged.judge))
			}
		}
	}
	group.Wait()
	for _, f := range []*finding{pageSeen, missing, again, secure, connect, v6, socks4, socks4a, socks5} {
		if tunnel.IsLocal(f.err) { // what this machine could not look at is not to be held against the proxy
			result.Alive, result.Reason, result.Detail = false, tunnel.Local, f.err.Error()
			return
		}
	}

	can := &result.Can
	can.Connect = !m.forward || connect.ok || secure.ok
	can.HTTPS = secure.ok
	can.HTTPSUnknown = p.httpsUnknown(judged, secure)
	can.IPv6 = v6.ok
	can.SOCKS4 = m.scheme == "socks4" || socks4.ok
	can.SOCKS4A = m.scheme == "socks4a" || socks4a.ok
	can.SOCKS5 = m.scheme == "socks5" || socks5.ok
	switch { // of several, the most able one is used: 5 carries names and IPv6, 4a names
	case can.SOCKS5:
		result.Protocol = "socks5"
	case can.SOCKS4A:
		result.Protocol = "socks4a"
	}
	result.Latency.TLS = secure.latency.TLS

	exits := []netip.Addr{result.Exit}
	for _, f := range []*finding{pageSeen, secure, connect} {
		if f.ok && f.exit.IsValid() && f.exit.Is4() == result.Exit.Is4() {
			exits = append(exits, f.exit)
		}
	}
	for _, f := range []*finding{pageSeen, missing, again} {
		result.tampers(f.tampering...)
		result.Detail = strings.TrimPrefix(strings.TrimSuffix(result.Detail+"; "+f.detail, "; "), "; ")
	}
	altered := slices.ContainsFunc(result.Tampering, func(kind string) bool { return kind != TamperHeaders })
	can.Forward = m.forward && !altered
	result.finish(exits, judged, p.cfg)

	switch {
	case tunnel.ReasonOf(secure.err) == MITM:
		result.Reason, result.Detail = MITM, "a certificate that is not the judge's"
	case altered:
		result.Alive, result.Reason = false, Injects
	case result.Reason != "":
	case pageSeen.err != nil:
		result.Alive = false
		result.Reason, result.Detail = tunnel.ReasonOf(pageSeen.err), "worked once and then not again: "+pageSeen.err.Error()
	}
}

// tampers notes kinds of tampering.
func (r *Result) tampers(kinds ...string) {
	r.Tampering = append(r.Tampering, kinds...)
	slices.Sort(r.Tampering)
	r.Tampering = slices.Compact(r.Tampering)
}

// finish says what the addresses are by which the candidate was seen to leave; the first is the one it was reached by.
func (r *Result) finish(exits []netip.Addr, judged *standing, cfg Config) {
	for _, exit := range exits {
		r.Rotating = r.Rotating || exit != r.Exit
		if sameNetwork(exit, judged.real, cfg.OwnBits4, cfg.OwnBits6) {
			r.Reason, r.Detail = OwnNetwork, "it leaves by "+exit.String()
		}
	}
}

// httpsUnknown reports whether a failed look at TLS leaves open if https gets through: many proxies open tunnels to port
// 443 alone.
func (p *Prober) httpsUnknown(judged *standing, secure *finding) bool {
	hint := judged.baseline.TLS
	if hint == nil {
		return true
	}
	if hint.Port == "443" || tunnel.ReasonOf(secure.err) != tunnel.Denied {
		return false
	}
	if here, err := netip.ParseAddr(judged.judge.host); (err != nil || !here.IsLoopback()) && !p.warned.Swap(true) {
		p.cfg.Logger.Warn("proxies refuse tunnels to the port on which the judge speaks TLS, so whether https gets through them is not known; run the judge with its TLS on port 443", "port", hint.Port)
	}
	return true
}

// lookAtPage checks that a page comes through unchanged. It has two tries: what we report is a fault of the proxy, not a lost packet.
func (p *Prober) lookAtPage(ctx context.Context, c source.Candidate, m mode, j judge, path string, status int) finding {
	var last error
	for range 2 {
		if j.public != "" { // the page is the echo, and all that can be seen is whether it comes again
			answer, err := p.echoThrough(ctx, c, m, j)
			if err == nil {
				return finding{ok: true, exit: answer.echo.Peer}
			}
			last = err
			continue
		}
		nonce := newNonce()
		reply, _, err := p.fetch(ctx, c, m, j, path+"?n="+nonce)
		if err == nil && reply.status != status && reply.status/100 != 2 {
			if err = p.statusError(c, m, reply.status); tunnel.ReasonOf(err) == NotProxy { // no refusal of its own
				err = nil
			}
		}
		if err != nil {
			last = err
			continue
		}
		var found finding
		peer, err := p.verifyPage(reply, nonce)
		if reply.status != status {
			found.add(TamperStatus, fmt.Sprintf("it makes status %d of %d", reply.status, status))
		} else if err != nil {
			found.add(TamperBody, err.Error())
		}
		found.ok, found.exit = len(found.tampering) == 0, peer
		if headers := changedHeaders(reply.header); found.ok && len(headers) > 0 {
			found.add(TamperHeaders, "it changes headers of answers: "+strings.Join(headers, ", "))
		}
		return found
	}
	return finding{err: last}
}

// lookAgain asks what was asked before: each answer of the judge has a serial number of its own, whatever the question.
func (p *Prober) lookAgain(ctx context.Context, c source.Candidate, m mode, j judge, first *Echo) finding {
	reply, _, err := p.get(ctx, c, m, j, j.path(first.Nonce))
	if err != nil {
		return finding{err: err}
	}
	echo, err := p.verifyEcho(reply, first.Nonce)
	if err != nil {
		return finding{err: err}
	}
	found := finding{ok: true, exit: echo.Peer}
	if echo.Serial == first.Serial {
		found = finding{}
		found.add(TamperCache, "it answers with what it kept, though the judge forbids to keep it")
	}
	return found
}

// lookAtTLS speaks TLS with the judge through a tunnel and compares its certificate.
func (p *Prober) lookAtTLS(ctx context.Context, c source.Candidate, m mode, j judge, hint tlsHint) finding {
	begin := time.Now()
	j.addr = net.JoinHostPort(j.host, hint.Port)
	conn, _, err := p.open(ctx, c, m, j.addr)
	if err != nil {
		return finding{err: err}
	}
	defer conn.Close()
	wrong := false
	config := &tls.Config{
		ServerName:         "judge.muster",
		InsecureSkipVerify: true, // the fingerprint is compared instead, which is stricter
		VerifyConnection: func(state tls.ConnectionState) error {
			sum := sha256.Sum256(state.PeerCertificates[0].Raw)
			if hex.EncodeToString(sum[:]) != strings.ToLower(hint.Fingerprint) {
				wrong = true
				return &tunnel.Error{Reason: MITM}
			}
			return nil
		},
	}
	shaking := time.Now()
	secure := tls.Client(conn, config)
	handshake, cancel := context.WithTimeout(ctx, p.cfg.AnswerTimeout)
	defer cancel()
	if err := secure.HandshakeContext(handshake); err != nil {
		if wrong {
			return finding{err: &tunnel.Error{Reason: MITM}}
		}
		return finding{err: err}
	}
	took := time.Since(shaking)
	nonce := newNonce()
	reply, err := exchange(ctx, secure, exchangeRequest{target: echoPath + "?n=" + nonce, host: j.addr, wait: p.cfg.AnswerTimeout})
	if err != nil {
		return finding{err: err}
	}
	echo, err := p.verifyEcho(reply, nonce)
	if err != nil {
		return finding{err: err}
	}
	return finding{ok: true, exit: echo.Peer, latency: Latency{
		Connect:   milliseconds(conn.Timing.Connect),
		Handshake: milliseconds(conn.Timing.Handshake),
		TLS:       milliseconds(took),
		FirstByte: milliseconds(reply.firstByte),
		Total:     milliseconds(time.Since(begin)),
	}}
}
