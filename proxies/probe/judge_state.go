package probe

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"muster/proxies/tunnel"
)

// judge is a parsed URL of Config.Judges.
type judge struct {
	url  string // without a path
	addr string // host:port
	host string
}

// judgeState is the result of querying the judges directly. It is immutable.
type judgeState struct {
	judge     judge
	baseline  *Echo
	real      []netip.Addr
	checkedAt time.Time // start of the query
}

// Start queries all judges directly to learn our public addresses and the baseline of headers. It returns an error if
// none is usable. With a Target it does nothing.
func (p *Prober) Start(ctx context.Context) error {
	if p.cfg.Target != nil {
		return nil
	}
	_, err := p.judgeSince(ctx, time.Now())
	return err
}

// judgeSince returns the state of judges that were queried after since.
func (p *Prober) judgeSince(ctx context.Context, since time.Time) (*judgeState, error) {
	p.querying.Lock()
	defer p.querying.Unlock()
	if current := p.current.Load(); current != nil && !current.checkedAt.Before(since) {
		return current, nil
	}
	next, err := p.queryJudges(ctx)
	if err != nil && ctx.Err() == nil { // retry once: a packet may be lost
		next, err = p.queryJudges(ctx)
	}
	for tries := 0; err != nil && tunnel.IsLocal(err) && ctx.Err() == nil && tries < 100; tries++ {
		time.Sleep(50 * time.Millisecond) // out of file descriptors; running probes will release some
		next, err = p.queryJudges(ctx)
	}
	p.current.Store(next)
	return next, err
}

func (p *Prober) queryJudges(ctx context.Context) (*judgeState, error) {
	found := &judgeState{checkedAt: time.Now()}
	var reasons []string
	var failures []error
	for _, j := range p.judges {
		echo, err := p.queryJudge(ctx, j)
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
	}
	if found.baseline == nil {
		return nil, &judgeError{text: strings.Join(reasons, "; "), causes: failures}
	}
	if len(reasons) > 0 {
		p.cfg.Logger.Warn("some judges are unreachable", "why", strings.Join(reasons, "; "))
	}
	return found, nil
}

// judgeError is ErrJudge with the failure of each judge.
type judgeError struct {
	text   string
	causes []error
}

func (e *judgeError) Error() string { return ErrJudge.Error() + ": " + e.text }

func (e *judgeError) Unwrap() []error { return append([]error{ErrJudge}, e.causes...) }

func (p *Prober) queryJudge(ctx context.Context, j judge) (*Echo, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.ConnectTimeout+p.cfg.ResponseTimeout)
	defer cancel()
	ask := func(path string) (*reply, error) {
		conn, err := p.cfg.Dial(ctx, "tcp", j.addr)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		return exchange(ctx, conn, exchangeRequest{target: path, host: j.addr, wait: p.cfg.ResponseTimeout})
	}
	nonce := newNonce()
	reply, err := ask(echoPath + "?n=" + nonce)
	if err != nil {
		return nil, err
	}
	echo, err := p.verifyEcho(reply, nonce)
	if reason := tunnel.ReasonOf(err); reason == Forged || reason == Injects {
		return nil, fmt.Errorf("invalid signature: judge and prober have different keys, or a middlebox modifies the response (%w)", err)
	}
	if err != nil {
		return echo, err
	}
	// A modification without a proxy must not be attributed to proxies.
	for path, status := range map[string]int{pagePath: http.StatusOK, missingPath: http.StatusNotFound} {
		reply, err := ask(path + "?n=" + nonce)
		if err != nil {
			return nil, err
		}
		if _, err := p.verifyPage(reply, nonce); err != nil || reply.status != status {
			return nil, fmt.Errorf("unexpected %s without a proxy (status %d): the judge has a different version, or a middlebox modifies the response", path, reply.status)
		}
	}
	return echo, nil
}
