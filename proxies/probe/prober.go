// Package probe finds out whether an endpoint is a proxy, of which kind, how fast, what its exit address is, and what it shows of the client.
//
// It does so with the help of a [Judge], a small server that answers with what it saw, or fetches a [Target] alone. A [Prober] first asks the judge
// directly, which yields our real addresses and the baseline of headers, and then through each candidate. Every request
// carries a nonce of its own and every answer a signature, and every attempt has a connection of its own, so an answer
// can only be that candidate's and only the judge's.
//
//	candidate ── TCP ── protocol by protocol, the label's first ── echo ──┬── page: unchanged? same exit?
//	              └ refused, silent, …: dead, with a Reason               ├── TLS judge: the right certificate?
//	                                                                      └── what else can it do?
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

// ErrJudge is in the error when no judge answers. It says nothing of any candidate.
var ErrJudge = errors.New("no judge answers; start one with muster judge and name it in proxies.judges")

// Prober probes candidates, any number at once.
type Prober struct {
	cfg    Config
	judges []judge

	warned atomic.Bool // of a judge whose TLS is on a port that proxies refuse

	asking sync.Mutex // held while the judges are asked directly

	mu        sync.Mutex // guards the fields below
	current   *standing
	checkedAt time.Time // when the judges were last asked with success
}

// New checks cfg. It does no I/O: the first probe looks for the judge, or Start does.
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

// Probe finds out about one candidate. The error is nil for a dead candidate as well: that is a result. Without a result
// it is ErrJudge or that of ctx.
func (p *Prober) Probe(ctx context.Context, c source.Candidate) (Result, error) {
	if p.cfg.Target != nil {
		u, _ := url.Parse(p.cfg.Target.URL) // New has checked it
		result := (&visitor{p, u}).try(ctx, c)
		return result, ctx.Err()
	}
	p.mu.Lock()
	judged := p.current
	p.mu.Unlock()
	if judged == nil {
		var err error
		if judged, err = p.judgeSince(ctx, time.Now()); err != nil {
			return Result{}, err
		}
	}

	if unreachableFrom(c, judged.judge) {
		return Result{}, fmt.Errorf("%w: the judge is on loopback (%s), where proxies of the net such as %s cannot reach it; run muster judge on a public address", ErrJudge, judged.judge.addr, c.Address())
	}
	result := p.try(ctx, c, judged, modesFor(c.Protocol))
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	if !result.Alive && mayBeJudge(result.Reason) {
		// It may be the judge that failed, and not the proxy: ask it directly.
		again, err := p.judgeSince(ctx, time.Now())
		if err != nil {
			return Result{}, err
		}
		if again.judge.url != judged.judge.url { // the judge of this probe is gone, and another took its place
			result = p.try(ctx, c, again, modesFor(c.Protocol))
		}
	}
	return result, ctx.Err()
}

// unreachableFrom reports whether the candidate cannot possibly reach the judge: it would seem dead, and is not.
func unreachableFrom(c source.Candidate, j judge) bool {
	here, err := netip.ParseAddr(j.host)
	there, err1 := netip.ParseAddr(c.Host)
	return err == nil && err1 == nil && here.IsLoopback() && there.IsGlobalUnicast() && !there.IsPrivate()
}

// mayBeJudge reports whether a dead judge could be the reason.
func mayBeJudge(reason Reason) bool {
	return reason == tunnel.Upstream || reason == tunnel.Closed || reason == tunnel.Timeout || reason == NotProxy || reason == Forged
}

func newNonce() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// try goes through the modes until one reaches the judge and brings its answers unchanged.
func (p *Prober) try(ctx context.Context, c source.Candidate, judged *standing, modes []mode) (result Result) {
	begin := time.Now()
	result = Result{Candidate: c, Protocol: c.Protocol, CheckedAt: begin.UTC()}
	attempts, cancel := context.WithTimeout(ctx, p.cfg.TotalTimeout)
	defer cancel()

	failed := &failures{}
	forwarded := Result{} // what requests in absolute form have shown, where tunnels show something better
	defer func() {
		if result.Alive || result.Reason == Injects { // else what answered was no proxy
			result.tampers(forwarded.Tampering...)
			result.Detail = cmp.Or(result.Detail, forwarded.Detail)
		}
	}()
	for _, m := range modes {
		if failed.final || attempts.Err() != nil || !failed.worthTrying(m) {
			continue
		}
		answer, err := p.echoThrough(attempts, c, m, judged.judge)
		if err != nil {
			failed.add(m, err)
			if wrong, ok := errors.AsType[*wrongBody](err); ok && m.forward {
				forwarded.tampers(wrong.tampering)
				forwarded.Detail = m.String() + ": " + wrong.Error()
			}
			if !m.isTunnelOverHTTP() || tunnel.ReasonOf(err) != tunnel.Denied || judged.baseline.TLS == nil {
				continue
			}
			// Many proxies open tunnels to the port of https alone.
			secure := p.checkTLS(attempts, c, m, judged.judge, *judged.baseline.TLS)
			if !secure.ok {
				if tunnel.ReasonOf(secure.err) == MITM {
					failed.add(m, secure.err)
				}
				continue
			}
			result.Latency = secure.latency
			result.reached(m, secure.exit)
			result.Can.HTTPS, result.Anonymity = true, Elite
			result.setExits([]netip.Addr{secure.exit}, judged, p.cfg)
			return result
		}
		cancel()
		result.Latency = answer.latency
		result.Latency.Total = milliseconds(answer.took)
		result.reached(m, answer.echo.Peer)
		result.Anonymity, result.Added = grade(judged.baseline, answer.echo, judged.real)
		p.finish(ctx, c, m, judged, answer.echo, &result)
		if !result.Alive && m.forward && result.Can.Connect && result.Reason != tunnel.Local { // a tunnel may be good where what is forwarded is not
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

// reached notes that the judge was reached by a mode.
func (r *Result) reached(m mode, exit netip.Addr) {
	r.Alive, r.Protocol, r.Exit, r.Tunnel = true, m.scheme, exit, !m.forward
	r.Can.Auth = r.Candidate.Username != "" || r.Candidate.Password != ""
}

// failures gathers what the attempts with one candidate have shown, to say in the end what it is.
type failures struct {
	final  bool   // nothing else is worth a try
	spoke  string // the family that it is known to speak, without letting us through
	tls    bool   // it may be a TLS server
	silent string // the family to which it said nothing at all
	reason Reason
	detail string
	rank   int // how much reason says; the first of the highest rank stays
}

func (f *failures) worthTrying(m mode) bool {
	if f.spoke != "" && f.spoke != m.family() || f.silent == m.family() {
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
		f.spoke = m.family()
		// TLS servers answer plain HTTP with a 400 that says so.
		f.tls = f.tls || m.scheme == "http" && failure.Status == http.StatusBadRequest
	case tunnel.Timeout:
		rank = 4
		f.final = f.silent != "" // to the other protocol as well
		f.silent = m.family()
	case tunnel.Closed, tunnel.Garbage:
		rank = 3
		f.tls = f.tls || m.scheme == "http" // or with an alert, or by hanging up
	case tunnel.Unsupported:
		rank = 1
	case tunnel.TLS:
		f.tls, rank = false, 1
	default: // no connection at all; if it did take an earlier one, what that one showed says more
		f.final, rank = true, 2
	}
	if rank > f.rank {
		f.rank, f.reason = rank, failure.Reason
		f.detail = m.String() + ": " + strings.TrimPrefix(failure.Error(), string(failure.Reason)+": ")
	}
}

// answer is a good echo and what it took.
type answer struct {
	echo    *Echo
	latency Latency
	took    time.Duration
}

// dialer makes the tunnel dialer for one attempt.
func (p *Prober) dialer(c source.Candidate, m mode) *tunnel.Dialer {
	proxy := c.URL()
	proxy.Scheme = m.scheme
	wait := p.cfg.AnswerTimeout
	return &tunnel.Dialer{Proxy: proxy, Dial: p.cfg.dialCandidate, ConnectTimeout: p.cfg.ConnectTimeout, HandshakeTimeout: wait}
}

// open connects to the candidate, and for a tunnel through it to addr.
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

// echoThrough asks the judge through the candidate.
func (p *Prober) echoThrough(ctx context.Context, c source.Candidate, m mode, j judge) (*answer, error) {
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
	return &answer{echo: echo, took: time.Since(begin), latency: Latency{
		Connect:   milliseconds(conn.Timing.Connect),
		Handshake: milliseconds(conn.Timing.Handshake),
		FirstByte: milliseconds(reply.firstByte),
	}}, nil
}

// get fetches a path of the judge through the candidate, on a connection of its own, which is closed on return. A status
// other than 2xx is an error.
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

// fetch is get with any status.
func (p *Prober) fetch(ctx context.Context, c source.Candidate, m mode, j judge, path string) (*reply, *tunnel.Conn, error) {
	conn, d, err := p.open(ctx, c, m, j.addr)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	request := exchangeRequest{target: path, host: j.addr, wait: p.cfg.AnswerTimeout}
	if m.forward {
		request.target, request.proxyAuth = j.url+path, d.BasicAuth()
	}
	reply, err := exchange(ctx, conn, request)
	if err != nil {
		return nil, nil, tunnel.Classify(ctx, "request", err)
	}
	return reply, conn, nil
}

// statusError is what a status that is not the judge's says of the candidate: a refusal of its own, or NotProxy.
func (p *Prober) statusError(c source.Candidate, m mode, status int) error {
	err := tunnel.StatusError(status, m.forward && (c.Username != "" || c.Password != ""))
	if tunnel.ReasonOf(err) == tunnel.Garbage || !m.forward && tunnel.ReasonOf(err) != tunnel.Upstream {
		err = &tunnel.Error{Reason: NotProxy, Detail: fmt.Sprintf("answered %d", status), Status: status}
	}
	return err
}
