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

// A finding is the result of one check.
type finding struct {
	ok        bool
	exit      netip.Addr
	latency   Latency // set by checkTLS
	tampering []string
	detail    string // describes the tampering
	err       error
}

// add records a kind of tampering.
func (f *finding) add(kind, detail string) {
	f.tampering = append(f.tampering, kind)
	f.detail = strings.TrimPrefix(f.detail+"; "+detail, "; ")
}

// checks are the results of the checks of a candidate through which the judge is reachable. Checks that do not apply
// are zero.
type checks struct {
	page, missing   finding // existing and missing pages arrive unmodified
	again           finding // responses do not come from a cache
	secure, connect finding // TLS and tunnels work
}

// finish completes the result of a candidate through which the judge was reached by m; first is the echo of that
// request.
func (p *Prober) finish(ctx context.Context, c source.Candidate, m mode, judged *judgeState, first *Echo, result *Result) {
	found := p.check(ctx, c, m, judged, first)
	if err := found.localError(); err != nil { // a local failure is not a property of the proxy
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
	altered := len(result.Tampering) > 0
	result.Can.Forward = m.forward && !altered
	result.setExits(found.exits(result.Exit), judged)

	switch {
	case tunnel.ReasonOf(found.secure.err) == MITM:
		result.Reason, result.Detail = MITM, "the certificate is not the judge's certificate"
	case altered:
		result.Alive, result.Reason = false, Injects
	case result.Reason != "":
	case found.page.err != nil:
		result.Alive = false
		result.Reason, result.Detail = tunnel.ReasonOf(found.page.err), "worked once, then failed: "+found.page.err.Error()
	}
}

// check runs the checks concurrently, each on its own connection.
func (p *Prober) check(ctx context.Context, c source.Candidate, m mode, judged *judgeState, first *Echo) *checks {
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
	group.Wait()
	return found
}

// localError returns the local failure that prevented a check, or nil.
func (f *checks) localError() error {
	for _, one := range []finding{f.page, f.missing, f.again, f.secure, f.connect} {
		if tunnel.IsLocal(one.err) {
			return one.err
		}
	}
	return nil
}

// capabilities sets the capabilities of a candidate that was reached by m.
func (f *checks) capabilities(m mode, can *Capabilities) {
	can.Connect = !m.forward || f.connect.ok || f.secure.ok
	can.HTTPS = f.secure.ok
}

// exits returns the exit addresses of the candidate, of the same family as the first one.
func (f *checks) exits(first netip.Addr) []netip.Addr {
	exits := []netip.Addr{first}
	for _, one := range []finding{f.page, f.secure, f.connect} {
		if one.ok && one.exit.IsValid() && one.exit.Is4() == first.Is4() {
			exits = append(exits, one.exit)
		}
	}
	return exits
}

// tampers adds kinds of tampering.
func (r *Result) tampers(kinds ...string) {
	r.Tampering = append(r.Tampering, kinds...)
	slices.Sort(r.Tampering)
	r.Tampering = slices.Compact(r.Tampering)
}

// setExits evaluates the exit addresses of the candidate, the first of which is from the initial request.
func (r *Result) setExits(exits []netip.Addr, judged *judgeState) {
	for _, exit := range exits {
		r.Rotating = r.Rotating || exit != r.Exit
		if sameNetwork(exit, judged.real) {
			r.Reason, r.Detail = OwnNetwork, "exit address "+exit.String()
		}
	}
}

// httpsUnknown reports whether a failed TLS check is inconclusive for HTTPS: many proxies allow tunnels to port 443
// only.
func (p *Prober) httpsUnknown(judged *judgeState, secure *finding) bool {
	hint := judged.baseline.TLS
	if hint == nil {
		return true
	}
	if hint.Port == "443" || tunnel.ReasonOf(secure.err) != tunnel.Denied {
		return false
	}
	if here, err := netip.ParseAddr(judged.judge.host); (err != nil || !here.IsLoopback()) && !p.warned.Swap(true) {
		p.cfg.Logger.Warn("proxies refuse tunnels to the TLS port of the judge, so their HTTPS support is unknown; run the judge with TLS on port 443", "port", hint.Port)
	}
	return true
}

// checkEcho checks that the judge is reachable by another mode.
func (p *Prober) checkEcho(ctx context.Context, c source.Candidate, m mode, j judge) finding {
	response, err := p.echoThrough(ctx, c, m, j)
	if err != nil {
		return finding{err: err}
	}
	return finding{ok: true, exit: response.echo.Peer}
}

// checkPage checks that a page arrives unmodified. It makes two attempts, so that a lost packet is not reported as a
// fault of the proxy.
func (p *Prober) checkPage(ctx context.Context, c source.Candidate, m mode, j judge, path string, status int) finding {
	var last error
	for range 2 {
		nonce := newNonce()
		reply, _, err := p.fetch(ctx, c, m, j, path+"?n="+nonce)
		if err == nil && reply.status != status && reply.status/100 != 2 {
			if err = p.statusError(c, m, reply.status); tunnel.ReasonOf(err) == NotProxy { // the proxy did not refuse the request
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
			found.add(TamperStatus, fmt.Sprintf("status %d instead of %d", reply.status, status))
		} else if err != nil {
			found.add(TamperBody, err.Error())
		}
		found.ok, found.exit = len(found.tampering) == 0, peer
		return found
	}
	return finding{err: last}
}

// checkCache repeats the first request: each response of the judge has a unique serial number.
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
		found.add(TamperCache, "serves cached responses despite no-store")
	}
	return found
}

// checkTLS opens a TLS connection to the judge through a tunnel and compares the certificate.
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
	handshakeStart := time.Now()
	secure := tls.Client(conn, config)
	handshake, cancel := context.WithTimeout(ctx, p.cfg.ResponseTimeout)
	defer cancel()
	if err := secure.HandshakeContext(handshake); err != nil {
		if wrong {
			return finding{err: &tunnel.Error{Reason: MITM}}
		}
		return finding{err: err}
	}
	took := time.Since(handshakeStart)
	nonce := newNonce()
	reply, err := exchange(ctx, secure, exchangeRequest{target: echoPath + "?n=" + nonce, host: j.addr, wait: p.cfg.ResponseTimeout})
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
