// Package probe finds out whether an endpoint is a proxy, of which kind, how fast, where it leaves, and what it gives away.
//
// It does so with the help of a [Judge], a small server that answers with what it saw. A [Prober] first asks the judge
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
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster/internal/addressfilter"
	"muster/proxies/source"
	"muster/proxies/tunnel"
)

// ErrJudge is in the error when no judge answers. It says nothing of any candidate.
var ErrJudge = errors.New("no judge answers; start one with muster judge and name it in proxies.judges")

// Config says how to probe.
type Config struct {
	// Judges are the URLs of judges, http://host:port, the first that answers being used. An IPv6 one is also used to
	// see who reaches IPv6. Needed.
	Judges []string
	// Key is the judges' key. Defaults to none.
	Key string
	// PublicJudges are pages that show a request's headers, for those who have no judge of their own on the net: of the
	// kind of http://httpbin.org/get?show_env=1 or of azenv.php. They are asked after Judges, when none of those answers.
	// They sign nothing, so they cannot tell an altered page or certificate. Defaults to none.
	PublicJudges []string
	// RealAddresses are addresses of ours that a judge cannot see, such as that of another way out. Defaults to none.
	RealAddresses []netip.Addr
	// OwnBits4 and OwnBits6 are the size of what counts as our own network. Default to 24 and 48.
	OwnBits4, OwnBits6 int
	// ConnectTimeout bounds TCP to the candidate. It decides how long a run takes. Defaults to 4 s.
	ConnectTimeout time.Duration
	// GreetingTimeout bounds the first answer of a SOCKS server. Defaults to a third of TotalTimeout.
	GreetingTimeout time.Duration
	// AnswerTimeout bounds every other wait for an answer. Defaults to two thirds of TotalTimeout.
	AnswerTimeout time.Duration
	// TotalTimeout bounds all attempts with a candidate together, and then the closer look at one that works. Defaults to 12 s.
	TotalTimeout time.Duration
	// Tries is how often Each probes a candidate that gives no answer; one that has worked before is probed at least
	// twice. Defaults to 1.
	Tries int
	// Concurrency is how many candidates Each probes at once; the file limit may lower it. Defaults to 256.
	Concurrency int
	// PerNetwork is how many of them may be in the same /24 or /48, or ports of the same name; loopback is exempt.
	// Defaults to 32.
	PerNetwork int
	// Filter says which addresses that are not public the names of candidates may stand for. A candidate that is written
	// as an address or localhost is probed in any case. Defaults to none.
	Filter *addressfilter.Filter
	// Dial reaches candidates and judges. Defaults to a net.Dialer, for candidates with Filter.
	Dial tunnel.DialFunc
	// Logger defaults to none.
	Logger *slog.Logger

	dialCandidate tunnel.DialFunc
}

func (c Config) withDefaults() Config {
	c.OwnBits4 = cmp.Or(c.OwnBits4, 24)
	c.OwnBits6 = cmp.Or(c.OwnBits6, 48)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 4*time.Second)
	c.TotalTimeout = cmp.Or(c.TotalTimeout, 12*time.Second)
	c.GreetingTimeout = cmp.Or(c.GreetingTimeout, c.TotalTimeout/3)
	c.AnswerTimeout = cmp.Or(c.AnswerTimeout, 2*c.TotalTimeout/3)
	c.Tries = cmp.Or(c.Tries, 1)
	c.Concurrency = cmp.Or(c.Concurrency, 256)
	c.PerNetwork = cmp.Or(c.PerNetwork, 32)
	c.dialCandidate = c.Dial
	if c.Dial == nil {
		d := &net.Dialer{KeepAlive: -1}
		c.Dial, c.dialCandidate = d.DialContext, c.Filter.DialNames(d)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if len(c.Judges)+len(c.PublicJudges) == 0 {
		return fmt.Errorf("probe: Judges is empty: %w", ErrJudge)
	}
	for _, judge := range slices.Concat(c.Judges, c.PublicJudges) {
		u, err := url.Parse(judge)
		if err != nil || u.Scheme != "http" || u.Hostname() == "" {
			return fmt.Errorf("probe: judge %q must be http://host:port", judge)
		}
	}
	if c.OwnBits4 < 0 || c.OwnBits4 > 32 || c.OwnBits6 < 0 || c.OwnBits6 > 128 {
		return fmt.Errorf("probe: OwnBits4 %d must be 0 to 32 and OwnBits6 %d 0 to 128", c.OwnBits4, c.OwnBits6)
	}
	if c.Concurrency < 1 || c.PerNetwork < 1 {
		return fmt.Errorf("probe: Concurrency %d and PerNetwork %d must be at least 1", c.Concurrency, c.PerNetwork)
	}
	if c.Tries < 1 || min(c.ConnectTimeout, c.GreetingTimeout, c.AnswerTimeout, c.TotalTimeout) <= 0 {
		return fmt.Errorf("probe: Tries %d must be at least 1, and ConnectTimeout %s, GreetingTimeout %s, AnswerTimeout %s and TotalTimeout %s more than 0",
			c.Tries, c.ConnectTimeout, c.GreetingTimeout, c.AnswerTimeout, c.TotalTimeout)
	}
	return nil
}

// Prober probes candidates, any number at once.
type Prober struct {
	cfg    Config
	judges []judge

	warned atomic.Bool // of a judge whose TLS is on a port that proxies refuse

	check sync.Mutex // held while the judges are asked directly

	mu        sync.Mutex // guards the fields below
	current   *standing
	checkedAt time.Time // when the last good direct look began
}

// judge is one of Config.Judges, taken apart.
type judge struct {
	url    string // without a path
	addr   string // host:port
	host   string
	public string // path and query of a judge that is not ours, or ""
}

// path is what to ask for to see one's request with a nonce.
func (j judge) path(nonce string) string {
	switch {
	case j.public == "":
		return echoPath + "?n=" + nonce
	case strings.Contains(j.public, "?"):
		return j.public + "&n=" + nonce
	}
	return j.public + "?n=" + nonce
}

// standing is what a direct look at the judges has found. It is not changed once it is made.
type standing struct {
	judge    judge
	judge6   *judge // one that is an IPv6 address, or nil
	baseline *Echo
	real     []netip.Addr
}

// New checks cfg. It does no I/O: the first probe looks for the judge, or Start does.
func New(cfg Config) (*Prober, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Prober{cfg: cfg}
	for i, text := range slices.Concat(cfg.Judges, cfg.PublicJudges) {
		u, _ := url.Parse(text)
		addr := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80"))
		j := judge{url: "http://" + addr, addr: addr, host: u.Hostname()}
		if i >= len(cfg.Judges) {
			j.public = u.RequestURI()
		}
		p.judges = append(p.judges, j)
	}
	return p, nil
}

// Start asks all judges directly, to learn our real addresses and the baseline. An error says why none can be used.
func (p *Prober) Start(ctx context.Context) error {
	_, err := p.judgeSince(ctx, time.Now())
	return err
}

// RealAddresses returns the addresses that the judges see us come from. It is empty before Start.
func (p *Prober) RealAddresses() []netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return nil
	}
	return slices.Clone(p.current.real)
}

// judgeSince returns a standing that rests on a direct look begun after since.
func (p *Prober) judgeSince(ctx context.Context, since time.Time) (*standing, error) {
	p.check.Lock()
	defer p.check.Unlock()
	p.mu.Lock()
	current, checkedAt := p.current, p.checkedAt
	p.mu.Unlock()
	if current != nil && !checkedAt.Before(since) {
		return current, nil
	}

	begin := time.Now()
	next, err := p.lookAtJudges(ctx)
	if err != nil && ctx.Err() == nil { // one lost packet is not the end of a judge
		next, err = p.lookAtJudges(ctx)
	}
	for tries := 0; err != nil && tunnel.IsLocal(err) && ctx.Err() == nil && tries < 100; tries++ {
		time.Sleep(50 * time.Millisecond) // we have no descriptor for it; the probes under way will free some
		next, err = p.lookAtJudges(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.current = nil
		return nil, err
	}
	p.current, p.checkedAt = next, begin
	return next, nil
}

func (p *Prober) lookAtJudges(ctx context.Context) (*standing, error) {
	found := &standing{real: slices.Clone(p.cfg.RealAddresses)}
	var reasons []string
	var failures []error
	for _, j := range p.judges {
		if j.public != "" && found.baseline != nil { // only when none of ours answers
			break
		}
		echo, err := p.askDirectly(ctx, j)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			reasons = append(reasons, fmt.Sprintf("%s: %v", j.url, err))
			failures = append(failures, err)
			continue
		}
		if !slices.Contains(found.real, echo.Peer) {
			found.real = append(found.real, echo.Peer)
		}
		if found.baseline == nil {
			found.judge, found.baseline = j, echo
		}
		if addr, err := netip.ParseAddr(j.host); err == nil && addr.Is6() && found.judge6 == nil {
			found.judge6 = &j
		}
	}
	if found.baseline == nil {
		return nil, &judgeError{text: strings.Join(reasons, "; "), causes: failures}
	}
	if len(reasons) > 0 {
		p.cfg.Logger.Warn("some judges do not answer", "why", strings.Join(reasons, "; "))
	}
	return found, nil
}

// judgeError is ErrJudge with what each judge's failure was.
type judgeError struct {
	text   string
	causes []error
}

func (e *judgeError) Error() string   { return ErrJudge.Error() + ": " + e.text }
func (e *judgeError) Unwrap() []error { return append([]error{ErrJudge}, e.causes...) }

func (p *Prober) askDirectly(ctx context.Context, j judge) (*Echo, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.ConnectTimeout+p.cfg.AnswerTimeout)
	defer cancel()
	ask := func(path string) (*reply, error) {
		conn, err := p.cfg.Dial(ctx, "tcp", j.addr)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		return exchange(ctx, conn, exchangeRequest{target: path, host: j.addr, wait: p.cfg.AnswerTimeout})
	}
	nonce := newNonce()
	reply, err := ask(j.path(nonce))
	if err != nil {
		return nil, err
	}
	echo, err := p.echoOf(j, reply, nonce)
	if reason := tunnel.ReasonOf(err); reason == Forged || reason == Injects {
		return nil, fmt.Errorf("its signature is wrong: the judge has another key than the prober, or something on the way changes its answers (%w)", err)
	}
	if err != nil || j.public != "" {
		return echo, err
	}
	// What does not come unchanged without a proxy cannot be held against one.
	for path, status := range map[string]int{pagePath: http.StatusOK, missingPath: http.StatusNotFound} {
		reply, err := ask(path + "?n=" + nonce)
		if err != nil {
			return nil, err
		}
		_, err = p.verifyPage(reply, nonce)
		if headers := changedHeaders(reply.header); err != nil || reply.status != status || len(headers) > 0 {
			return nil, fmt.Errorf("its %s does not come as it should without a proxy (status %d, headers changed: %s): the judge is of another version, or something on the way changes it",
				path, reply.status, cmp.Or(strings.Join(headers, ", "), "none"))
		}
	}
	return echo, nil
}

// Probe finds out about one candidate. The error is nil for a dead candidate as well: that is a result. It is not nil
// when there is none: ErrJudge, or ctx done.
func (p *Prober) Probe(ctx context.Context, c source.Candidate) (Result, error) {
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
		// Is it the proxy that fails, or what stands behind it? Whoever asks directly after the failure knows.
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

// unreachableFrom tells whether the candidate cannot possibly reach the judge: it would look dead, and is not.
func unreachableFrom(c source.Candidate, j judge) bool {
	here, err := netip.ParseAddr(j.host)
	there, err1 := netip.ParseAddr(c.Host)
	return err == nil && err1 == nil && here.IsLoopback() && there.IsGlobalUnicast() && !there.IsPrivate()
}

// mayBeJudge tells whether a dead judge could look like this.
func mayBeJudge(reason Reason) bool {
	return reason == tunnel.Upstream || reason == tunnel.Closed || reason == tunnel.Timeout || reason == NotProxy || reason == Forged
}

func newNonce() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// mode is a way to use an endpoint.
type mode struct {
	scheme  string
	forward bool // an http request in absolute form, rather than a tunnel
}

// isTunnelOverHTTP reports whether it is CONNECT.
func (m mode) isTunnelOverHTTP() bool {
	return !m.forward && (m.scheme == "http" || m.scheme == "https")
}

func (m mode) String() string {
	if m.forward {
		return m.scheme + " GET"
	}
	if m.isTunnelOverHTTP() {
		return m.scheme + " CONNECT"
	}
	return m.scheme
}

// family is what speaks one wire protocol: who does not answer one mode of a family will not answer the rest of it.
func (m mode) family() string {
	return strings.TrimSuffix(strings.TrimSuffix(m.scheme, "s"), "a")
}

var (
	httpModes  = []mode{{"http", true}, {"http", false}, {"https", true}, {"https", false}}
	socks5Mode = []mode{{"socks5", false}}
	socks4Mode = []mode{{"socks4a", false}, {"socks4", false}}
)

// modesFor orders the ways to try by the label. An https label stands for CONNECT in most lists and seldom for TLS
// with the proxy; a TLS server turns plain HTTP away at once, so plain HTTP comes first there too. HTTP comes before
// SOCKS when there is no label: SOCKS servers hang up on HTTP, while HTTP servers wait for the rest of a SOCKS greeting,
// as SOCKS4 servers do.
func modesFor(label string) []mode {
	switch label {
	case "socks5", "socks5h":
		return slices.Concat(socks5Mode, httpModes, socks4Mode)
	case "socks4", "socks4a":
		return slices.Concat(socks4Mode, httpModes, socks5Mode)
	}
	return slices.Concat(httpModes, socks5Mode, socks4Mode)
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
			secure := p.lookAtTLS(attempts, c, m, judged.judge, *judged.baseline.TLS)
			if !secure.ok {
				if tunnel.ReasonOf(secure.err) == MITM {
					failed.add(m, secure.err)
				}
				continue
			}
			result.Latency = secure.latency
			result.reached(m, secure.exit)
			result.Can.HTTPS, result.Anonymity = true, Elite
			result.finish([]netip.Addr{secure.exit}, judged, p.cfg)
			return result
		}
		cancel()
		result.Latency = answer.latency
		result.Latency.Total = milliseconds(answer.took)
		result.reached(m, answer.echo.Peer)
		result.Anonymity, result.Added = grade(judged.baseline, answer.echo, judged.real)
		p.lookCloser(ctx, c, m, judged, answer.echo, &result)
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
		f.tls = f.tls || m.scheme == "http" && strings.Contains(failure.Detail, "answered 400")
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
	reply, conn, err := p.get(ctx, c, m, j, j.path(nonce))
	if err != nil {
		return nil, err
	}
	echo, err := p.echoOf(j, reply, nonce)
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
		err = &tunnel.Error{Reason: NotProxy, Detail: fmt.Sprintf("answered %d", status)}
	}
	return err
}
