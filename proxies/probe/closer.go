package probe

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"muster/proxies/source"
	"muster/proxies/tunnel"
)

// finding is what one of the closer looks has seen. Each look writes only its own.
type finding struct {
	ok   bool
	exit netip.Addr
	tls  time.Duration
	err  error
}

// lookCloser finishes the result of a candidate through which the judge has been reached by m.
// The looks run side by side, each on a connection of its own.
func (p *Prober) lookCloser(ctx context.Context, c source.Candidate, m mode, judged *standing, result *Result) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.TotalTimeout)
	defer cancel()
	isHTTP := m.scheme == "http" || m.scheme == "https"
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
	secure, connect, v6, socks4, socks4a, socks5 := none, none, none, none, none, none
	pageSeen := look(func() finding { return p.lookAtPage(ctx, c, m, judged.judge) })
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
	for _, f := range []*finding{pageSeen, secure, connect, v6, socks4, socks4a, socks5} {
		if tunnel.IsLocal(f.err) { // what this machine could not look at is not to be held against the proxy
			result.Alive, result.Reason, result.Detail = false, tunnel.Local, f.err.Error()
			return
		}
	}

	can := &result.Can
	can.Forward = m.forward
	can.Connect = !m.forward || connect.ok || secure.ok
	can.HTTPS = secure.ok
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
	result.Tunnel = !m.forward
	result.Latency.TLS = milliseconds(secure.tls)

	exits := []netip.Addr{result.Exit}
	for _, f := range []*finding{pageSeen, secure, connect} {
		if f.ok && f.exit.IsValid() && f.exit.Is4() == result.Exit.Is4() {
			exits = append(exits, f.exit)
		}
	}
	own := false
	for _, exit := range exits {
		result.Rotating = result.Rotating || exit != result.Exit
		own = own || sameNetwork(exit, judged.real, p.cfg.OwnBits4, p.cfg.OwnBits6)
	}

	switch {
	case tunnel.ReasonOf(secure.err) == MITM:
		result.Reason, result.Detail = MITM, "a certificate that is not the judge's"
	case errors.Is(pageSeen.err, errAltered):
		result.Reason, result.Detail = Injects, errAltered.Error()
	case own:
		result.Reason, result.Detail = OwnNetwork, "it leaves by "+result.Exit.String()
	case pageSeen.err != nil:
		result.Alive = false
		result.Reason, result.Detail = tunnel.ReasonOf(pageSeen.err), "worked once and then not again: "+pageSeen.err.Error()
	}
}

// lookAtPage checks that a page comes through unchanged. It has two tries: what we report is a fault of the proxy, not a lost packet.
func (p *Prober) lookAtPage(ctx context.Context, c source.Candidate, m mode, j judge) finding {
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
		reply, _, err := p.get(ctx, c, m, j, pagePath+"?n="+nonce)
		if err != nil {
			last = err
			continue
		}
		peer, err := p.verifyPage(reply, nonce)
		return finding{ok: err == nil, exit: peer, err: err}
	}
	return finding{err: last}
}

// lookAtTLS speaks TLS with the judge through a tunnel and compares its certificate.
func (p *Prober) lookAtTLS(ctx context.Context, c source.Candidate, m mode, j judge, hint tlsHint) finding {
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
	begin := time.Now()
	secure := tls.Client(conn, config)
	handshake, cancel := context.WithTimeout(ctx, p.cfg.AnswerTimeout)
	defer cancel()
	if err := secure.HandshakeContext(handshake); err != nil {
		if wrong {
			return finding{err: &tunnel.Error{Reason: MITM}}
		}
		return finding{err: err}
	}
	took := time.Since(begin)
	nonce := newNonce()
	reply, err := exchange(ctx, secure, exchangeRequest{target: echoPath + "?n=" + nonce, host: j.addr, wait: p.cfg.AnswerTimeout})
	if err != nil {
		return finding{err: err}
	}
	echo, err := p.verifyEcho(reply, nonce)
	if err != nil {
		return finding{err: err}
	}
	return finding{ok: true, exit: echo.Peer, tls: took}
}
