package probe

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"muster/proxies/tunnel"
)

// judge is one of Config.Judges, taken apart.
type judge struct {
	url  string // without a path
	addr string // host:port
	host string
}

// standing is what the judges have answered when asked directly. It is not changed once it is made.
type standing struct {
	judge    judge
	judge6   *judge // one that is an IPv6 address, or nil
	baseline *Echo
	real     []netip.Addr
}

// Start asks all judges directly, to learn our real addresses and the baseline. An error says why none can be used. With
// a Target it does nothing.
func (p *Prober) Start(ctx context.Context) error {
	if p.cfg.Target != nil {
		return nil
	}
	_, err := p.judgeSince(ctx, time.Now())
	return err
}

// RealAddresses returns our addresses as the judges see them. It is empty before Start.
func (p *Prober) RealAddresses() []netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return nil
	}
	return slices.Clone(p.current.real)
}

// judgeSince returns a standing of judges that were asked after since.
func (p *Prober) judgeSince(ctx context.Context, since time.Time) (*standing, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	p.mu.Lock()
	current, checkedAt := p.current, p.checkedAt
	p.mu.Unlock()
	if current != nil && !checkedAt.Before(since) {
		return current, nil
	}

	begin := time.Now()
	next, err := p.askJudges(ctx)
	if err != nil && ctx.Err() == nil { // it may have been one lost packet
		next, err = p.askJudges(ctx)
	}
	for tries := 0; err != nil && tunnel.IsLocal(err) && ctx.Err() == nil && tries < 100; tries++ {
		time.Sleep(50 * time.Millisecond) // this machine has no descriptor for it; the running probes will free some
		next, err = p.askJudges(ctx)
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

func (p *Prober) askJudges(ctx context.Context) (*standing, error) {
	found := &standing{real: slices.Clone(p.cfg.RealAddresses)}
	var reasons []string
	var failures []error
	for _, j := range p.judges {
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

func (e *judgeError) Error() string { return ErrJudge.Error() + ": " + e.text }

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
	reply, err := ask(echoPath + "?n=" + nonce)
	if err != nil {
		return nil, err
	}
	echo, err := p.verifyEcho(reply, nonce)
	if reason := tunnel.ReasonOf(err); reason == Forged || reason == Injects {
		return nil, fmt.Errorf("its signature is wrong: the judge has another key than the prober, or something in between changes its answers (%w)", err)
	}
	if err != nil {
		return echo, err
	}
	// A page that does not arrive unchanged without a proxy is no fault of a proxy.
	for path, status := range map[string]int{pagePath: http.StatusOK, missingPath: http.StatusNotFound} {
		reply, err := ask(path + "?n=" + nonce)
		if err != nil {
			return nil, err
		}
		_, err = p.verifyPage(reply, nonce)
		if headers := changedHeaders(reply.header); err != nil || reply.status != status || len(headers) > 0 {
			return nil, fmt.Errorf("its %s does not come as it should without a proxy (status %d, headers changed: %s): the judge is of another version, or something in between changes it",
				path, reply.status, cmp.Or(strings.Join(headers, ", "), "none"))
		}
	}
	return echo, nil
}
