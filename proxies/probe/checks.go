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

// finding is what one check has seen.
type finding struct {
	ok        bool
	exit      netip.Addr
	latency   Latency // of the check of TLS
	tampering []string
	detail    string // what the tampering is
	err       error
}

// add notes a kind of tampering.
func (f *finding) add(kind, detail string) {
	f.tampering = append(f.tampering, kind)
	f.detail = strings.TrimPrefix(f.detail+"; "+detail, "; ")
}

// checks are what is found out about a candidate once the judge was reached through it. Checks that do not apply stay
// zero.
type checks struct {
	page, missing         finding // a page that exists, and one that does not, arrive unchanged
	again                 finding // an answer is not one that was kept
	secure, connect, ipv6 finding // TLS, a tunnel, and an IPv6 address get through
}

// finish completes the result of a candidate through which the judge has been reached by m, with the answer first.
func (p *Prober) finish(ctx context.Context, c source.Candidate, m mode, judged *standing, first *Echo, result *Result) {
	found := p.check(ctx, c, m, judged, first)
	if err := found.localError(); err != nil { // what this machine could not check says nothing of the proxy
		result.Alive, result.Reason, result.Detail = false, tunnel.Local, err.Error()
		return
	}
	found.capabilities(m, &result.Can)
	result.Can.HTTPSUnknown = p.httpsUnknown(judged, &found.secure)
	result.Latency.TLS = found.secure.latency.TLS
	for _, f := range []finding{found.page, found.missing, found.again} {
		result.tampers(f.tampering...)
		result.Detail = strings.TrimPrefix(strings.TrimSuffix(result.Detail+"; "+f.detail, "; "), "; ")
	}
	altered := slices.ContainsFunc(result.Tampering, func(kind string) bool { return kind != TamperHeaders })
	result.Can.Forward = m.forward && !altered
	result.setExits(found.exits(result.Exit), judged, p.cfg)

	switch {
	case tunnel.ReasonOf(found.secure.err) == MITM:
		result.Reason, result.Detail = MITM, "a certificate that is not the judge's"
	case altered:
		result.Alive, result.Reason = false, Injects
	case result.Reason != "":
	case found.page.err != nil:
		result.Alive = false
		result.Reason, result.Detail = tunnel.ReasonOf(found.page.err), "worked once and then not again: "+found.page.err.Error()
	}
}

// check runs the checks side by side, each on a connection of its own.
func (p *Prober) check(ctx context.Context, c source.Candidate, m mode, judged *standing, first *Echo) *checks {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.TotalTimeout)
	defer cancel()
	found := &checks{}
	tunnelMode := mode{scheme: m.scheme}
	var group sync.WaitGroup
	run := func(out *finding, check func() finding) { group.Go(func() { *out = check() }) }

	run(&found.page, func() finding { return p.checkPage(ctx, c, m, judged.judge, pagePath, http.StatusOK) })
	run(&found.missing, func() finding { return p.checkPage(ctx, c, m, judged.judge, missingPath, http.StatusNotFound) })
	run(&found.again, func() finding { return p.checkCache(ctx, c, m, judged.judge, first) })
	if hint := judged.baseline.TLS; hint != nil {
		run(&found.secure, func() finding { return p.checkTLS(ctx, c, tunnelMode, judged.judge, *hint) })
	}
	if m.forward {
		run(&found.connect, func() finding { return p.checkEcho(ctx, c, tunnelMode, judged.judge) })
	}
	if judged.judge6 != nil {
		run(&found.ipv6, func() finding { return p.checkEcho(ctx, c, m, *judged.judge6) })
	}
	group.Wait()
	return found
}

// localError returns why this machine could not do a check, nil if it could do all.
func (f *checks) localError() error {
	for _, one := range []finding{f.page, f.missing, f.again, f.secure, f.connect, f.ipv6} {
		if tunnel.IsLocal(one.err) {
			return one.err
		}
	}
	return nil
}

// capabilities notes what gets through a candidate that was reached by m.
func (f *checks) capabilities(m mode, can *Capabilities) {
	can.Connect = !m.forward || f.connect.ok || f.secure.ok
	can.HTTPS = f.secure.ok
	can.IPv6 = f.ipv6.ok
}

// exits returns the addresses that the candidate left by, of the same family as the first.
func (f *checks) exits(first netip.Addr) []netip.Addr {
	exits := []netip.Addr{first}
	for _, one := range []finding{f.page, f.secure, f.connect} {
		if one.ok && one.exit.IsValid() && one.exit.Is4() == first.Is4() {
			exits = append(exits, one.exit)
		}
	}
	return exits
}

// tampers notes kinds of tampering.
func (r *Result) tampers(kinds ...string) {
	r.Tampering = append(r.Tampering, kinds...)
	slices.Sort(r.Tampering)
	r.Tampering = slices.Compact(r.Tampering)
}

// setExits notes what the addresses show by which the candidate left; the first is the one it was reached by.
func (r *Result) setExits(exits []netip.Addr, judged *standing, cfg Config) {
	for _, exit := range exits {
		r.Rotating = r.Rotating || exit != r.Exit
		if sameNetwork(exit, judged.real, cfg.OwnBits4, cfg.OwnBits6) {
			r.Reason, r.Detail = OwnNetwork, "it leaves by "+exit.String()
		}
	}
}

// httpsUnknown reports whether a failed check of TLS leaves open if https gets through: many proxies open tunnels to port
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

// checkEcho checks that the judge can be reached by another mode.
func (p *Prober) checkEcho(ctx context.Context, c source.Candidate, m mode, j judge) finding {
	answer, err := p.echoThrough(ctx, c, m, j)
	if err != nil {
		return finding{err: err}
	}
	return finding{ok: true, exit: answer.echo.Peer}
}

// checkPage checks that a page comes through unchanged. It has two tries: what we report is a fault of the proxy, not a
// lost packet.
func (p *Prober) checkPage(ctx context.Context, c source.Candidate, m mode, j judge, path string, status int) finding {
	var last error
	for range 2 {
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

// checkCache repeats the first request: each answer of the judge has a serial number of its own, whatever the request.
func (p *Prober) checkCache(ctx context.Context, c source.Candidate, m mode, j judge, first *Echo) finding {
	reply, _, err := p.get(ctx, c, m, j, echoPath+"?n="+first.Nonce)
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
		found.add(TamperCache, "it answers from a cache, though the judge forbids that")
	}
	return found
}

// checkTLS speaks TLS with the judge through a tunnel and compares its certificate.
func (p *Prober) checkTLS(ctx context.Context, c source.Candidate, m mode, j judge, hint tlsHint) finding {
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
