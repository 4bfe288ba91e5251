// Package probe determines whether an endpoint is a proxy, and measures its protocol, speed, exit address and
// anonymity.
//
// A [Prober] sends requests to a [Judge], a small server that returns each request as it arrived, or fetches a
// [Target] instead. It queries the judge directly first, for our public addresses and the baseline of headers, and
// then through each candidate. Each attempt has its own connection, each request a unique nonce and each response a
// signature, so a response cannot come from another candidate or another server.
//
//	candidate ── TCP ── each protocol, starting with the label's ── echo ──┬── page: unmodified? same exit?
//	              └ refused, timeout, …: dead, with a Reason               ├── TLS judge: valid certificate?
//	                                                                       └── other capabilities
package probe

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster/proxies/source"
	"muster/proxies/tunnel"
)

// ErrJudge is wrapped by errors that mean that no judge was reachable. They imply nothing about candidates.
var ErrJudge = errors.New("no judge is reachable; start one with muster judge and add its URL to proxies.judges")

// A Prober probes candidates. It is safe for concurrent use.
type Prober struct {
	cfg    Config
	judges []judge

	warned atomic.Bool // about a judge whose TLS port is refused by proxies

	querying sync.Mutex                 // held while the judges are queried directly
	current  atomic.Pointer[judgeState] // nil if the last query failed
}

// New validates cfg and returns a Prober. It does no I/O; Start or the first probe queries the judges.
func New(cfg Config) (*Prober, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Prober{cfg: cfg}
	for _, text := range cfg.Judges {
		u, _ := url.Parse(text)
		addr := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80"))
		p.judges = append(p.judges, judge{url: "http://" + addr, addr: addr, host: u.Hostname()})
	}
	return p, nil
}

// Probe probes one candidate. A dead candidate is a result, not an error. The error is ErrJudge or the error of ctx.
func (p *Prober) Probe(ctx context.Context, c source.Candidate) (Result, error) {
	if p.cfg.Target != nil {
		u, _ := url.Parse(p.cfg.Target.URL) // validated by New
		result := (&visitor{p, u}).try(ctx, c)
		return result, ctx.Err()
	}
	judged := p.current.Load()
	if judged == nil {
		var err error
		if judged, err = p.judgeSince(ctx, time.Now()); err != nil {
			return Result{}, err
		}
	}

	if unreachableFrom(c, judged.judge) {
		return Result{}, fmt.Errorf("%w: the judge listens on loopback (%s), which remote proxies such as %s cannot reach; run muster judge on a public address", ErrJudge, judged.judge.addr, c.Address())
	}
	result := p.try(ctx, c, judged, modesFor(c.Protocol))
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	if !result.Alive && mayBeJudge(result.Reason) {
		// The judge may have failed instead of the proxy; query it directly.
		again, err := p.judgeSince(ctx, time.Now())
		if err != nil {
			return Result{}, err
		}
		if again.judge.url != judged.judge.url { // another judge has replaced the one of this probe
			result = p.try(ctx, c, again, modesFor(c.Protocol))
		}
	}
	return result, ctx.Err()
}

// unreachableFrom reports whether the judge is unreachable for the candidate, which would be misreported as dead.
func unreachableFrom(c source.Candidate, j judge) bool {
	here, err := netip.ParseAddr(j.host)
	there, err1 := netip.ParseAddr(c.Host)
	return err == nil && err1 == nil && here.IsLoopback() && there.IsGlobalUnicast() && !there.IsPrivate()
}

// mayBeJudge reports whether a failed judge could cause the reason.
func mayBeJudge(reason Reason) bool {
	return reason == tunnel.Upstream || reason == tunnel.Closed || reason == tunnel.Timeout || reason == NotProxy || reason == Forged
}

func newNonce() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // documented never to fail
	return hex.EncodeToString(b[:])
}

// try attempts the modes in order until one reaches the judge and returns its responses unmodified.
func (p *Prober) try(ctx context.Context, c source.Candidate, judged *judgeState, modes []mode) (result Result) {
	begin := time.Now()
	result = Result{Candidate: c, Protocol: c.Protocol, CheckedAt: begin.UTC()}
	attempts, cancel := context.WithTimeout(ctx, p.cfg.TotalTimeout)
	defer cancel()

	failed := &failures{}
	forwarded := Result{} // the results of forwarded requests, if a tunnel has better ones
	defer func() {
		if result.Alive || result.Reason == Injects { // otherwise the endpoint is not a proxy
			result.tampers(forwarded.Tampering...)
			result.Detail = cmp.Or(result.Detail, forwarded.Detail)
		}
	}()
	for _, m := range modes {
		if failed.final || attempts.Err() != nil || !failed.worthTrying(m) {
			continue
		}
		response, err := p.echoThrough(attempts, c, m, judged.judge)
		if err != nil {
			failed.add(m, err)
			if wrong, ok := errors.AsType[*wrongBody](err); ok && m.forward {
				forwarded.tampers(wrong.tampering)
				forwarded.Detail = m.String() + ": " + wrong.Error()
			}
			if !m.isTunnelOverHTTP() || tunnel.ReasonOf(err) != tunnel.Denied || judged.baseline.TLS == nil {
				continue
			}
			// Many proxies allow tunnels to port 443 only.
			secure := p.checkTLS(attempts, c, m, judged.judge, *judged.baseline.TLS)
			if !secure.ok {
				if tunnel.ReasonOf(secure.err) == MITM {
					failed.add(m, secure.err)
				}
				continue
			}
			result.Latency = secure.latency
			result.recordReached(m, secure.exit)
			result.Can.HTTPS, result.Anonymity = true, Elite
			result.setExits([]netip.Addr{secure.exit}, judged)
			return result
		}
		cancel()
		result.Latency = response.latency
		result.Latency.Total = milliseconds(response.took)
		result.recordReached(m, response.echo.Peer)
		result.Anonymity, result.Added = grade(judged.baseline, response.echo, judged.real)
		p.finish(ctx, c, m, judged, response.echo, &result)
		if !result.Alive && m.forward && result.Can.Connect && result.Reason != tunnel.Local { // a tunnel may work although forwarding does not
			if other := p.try(ctx, c, judged, []mode{{scheme: m.scheme}}); other.Alive {
				forwarded, result = result, other
			}
		}
		return result
	}
	result.Reason, result.Detail = failed.reason, failed.detail
	result.Latency.Total = milliseconds(time.Since(begin))
	return result
}

// recordReached records that the judge was reached by mode m.
func (r *Result) recordReached(m mode, exit netip.Addr) {
	r.Alive, r.Protocol, r.Exit, r.Tunnel = true, m.scheme, exit, !m.forward
	r.Can.Auth = r.Candidate.Username != "" || r.Candidate.Password != ""
}

// failures collects the failed attempts with one candidate and derives the reason of its result.
type failures struct {
	final        bool   // further attempts are useless
	spokenFamily string // the protocol family that it speaks, although it refused the request
	tls          bool   // it may be a TLS server
	silentFamily string // the protocol family that timed out
	reason       Reason
	detail       string
	rank         int // the significance of reason; the first reason of the highest rank is kept
}

func (f *failures) worthTrying(m mode) bool {
	if f.spokenFamily != "" && f.spokenFamily != m.family() || f.silentFamily == m.family() {
		return false
	}
	return m.scheme != "https" || f.tls
}

func (f *failures) add(m mode, err error) {
	failure, ok := errors.AsType[*tunnel.Error](err)
	if !ok {
		failure = &tunnel.Error{Reason: tunnel.Garbage, Err: err}
	}
	rank := 0
	switch failure.Reason {
	case tunnel.AuthRequired, tunnel.AuthRejected:
		f.final, rank = true, 6
	case tunnel.Denied, tunnel.Upstream, NotProxy, Forged, Injects, MITM:
		rank = 5
		f.spokenFamily = m.family()
		// TLS servers reject plain HTTP with status 400.
		f.tls = f.tls || m.scheme == "http" && failure.Status == http.StatusBadRequest
	case tunnel.Timeout:
		rank = 4
		f.final = f.silentFamily != "" // two protocol families timed out
		f.silentFamily = m.family()
	case tunnel.Closed, tunnel.Garbage:
		rank = 3
		f.tls = f.tls || m.scheme == "http" // or with an alert, or by closing the connection
	case tunnel.Unsupported:
		rank = 1
	case tunnel.TLS:
		f.tls, rank = false, 1
	default: // no connection; the results of an earlier connection are more significant
		f.final, rank = true, 2
	}
	if rank > f.rank {
		f.rank, f.reason = rank, failure.Reason
		f.detail = m.String() + ": " + strings.TrimPrefix(failure.Error(), string(failure.Reason)+": ")
	}
}

// An echoResult is a valid echo with its timings.
type echoResult struct {
	echo    *Echo
	latency Latency
	took    time.Duration
}

// dialer returns the tunnel dialer for one attempt.
func (p *Prober) dialer(c source.Candidate, m mode) *tunnel.Dialer {
	proxy := c.URL()
	proxy.Scheme = m.scheme
	wait := p.cfg.ResponseTimeout
	return &tunnel.Dialer{Proxy: proxy, Dial: p.cfg.dialCandidate, ConnectTimeout: p.cfg.ConnectTimeout, HandshakeTimeout: wait}
}

// open connects to the candidate and, unless m forwards, opens a tunnel to addr.
func (p *Prober) open(ctx context.Context, c source.Candidate, m mode, addr string) (*tunnel.Conn, *tunnel.Dialer, error) {
	d := p.dialer(c, m)
	if m.forward {
		conn, err := d.DialProxy(ctx)
		return conn, d, err
	}
	if strings.HasPrefix(m.scheme, "socks") {
		d.HandshakeTimeout = p.cfg.GreetingTimeout
	}
	conn, err := d.Tunnel(ctx, addr)
	return conn, d, err
}

// echoThrough sends an echo request to the judge through the candidate.
func (p *Prober) echoThrough(ctx context.Context, c source.Candidate, m mode, j judge) (*echoResult, error) {
	begin := time.Now()
	nonce := newNonce()
	reply, conn, err := p.get(ctx, c, m, j, echoPath+"?n="+nonce)
	if err != nil {
		return nil, err
	}
	echo, err := p.verifyEcho(reply, nonce)
	if err != nil {
		wrong := &wrongBody{err, TamperBody}
		if errors.Is(err, errOtherRequest) {
			wrong.tampering = TamperCache
		}
		return nil, wrong
	}
	return &echoResult{echo: echo, took: time.Since(begin), latency: Latency{
		Connect:   milliseconds(conn.Timing.Connect),
		Handshake: milliseconds(conn.Timing.Handshake),
		FirstByte: milliseconds(reply.firstByte),
	}}, nil
}

// get fetches a path of the judge through the candidate on a new connection, which it closes. A status other than 2xx
// is an error.
func (p *Prober) get(ctx context.Context, c source.Candidate, m mode, j judge, path string) (*reply, *tunnel.Conn, error) {
	reply, conn, err := p.fetch(ctx, c, m, j, path)
	if err == nil && reply.status/100 != 2 {
		err = p.statusError(c, m, reply.status)
	}
	if err != nil {
		return nil, nil, err
	}
	return reply, conn, nil
}

// fetch is like get, but returns responses of any status.
func (p *Prober) fetch(ctx context.Context, c source.Candidate, m mode, j judge, path string) (*reply, *tunnel.Conn, error) {
	conn, d, err := p.open(ctx, c, m, j.addr)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	request := exchangeRequest{target: path, host: j.addr, wait: p.cfg.ResponseTimeout}
	if m.forward {
		request.target, request.proxyAuth = j.url+path, d.BasicAuth()
	}
	reply, err := exchange(ctx, conn, request)
	if err != nil {
		return nil, nil, tunnel.Classify(ctx, "request", err)
	}
	return reply, conn, nil
}

// statusError returns the error for a status that the judge did not send: a refusal by the proxy, or NotProxy.
func (p *Prober) statusError(c source.Candidate, m mode, status int) error {
	err := tunnel.StatusError(status, m.forward && (c.Username != "" || c.Password != ""))
	if tunnel.ReasonOf(err) == tunnel.Garbage || !m.forward && tunnel.ReasonOf(err) != tunnel.Upstream {
		err = &tunnel.Error{Reason: NotProxy, Detail: fmt.Sprintf("status %d", status), Status: status}
	}
	return err
}
