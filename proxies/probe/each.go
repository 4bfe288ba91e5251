package probe

import (
	"context"
	"iter"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"muster/proxies/source"
	"muster/proxies/tunnel"
)

// Each probes all candidates, up to Config.Concurrency in parallel, and calls report with each result, one call at a
// time, in order of completion. It returns after its probes have finished. The error is nil if all candidates were
// probed. After ErrJudge or the cancellation of ctx, the results reported before it are valid.
//
// If this machine runs out of file descriptors or ports, Each lowers its concurrency and probes the affected
// candidates again.
func (p *Prober) Each(ctx context.Context, candidates iter.Seq[source.Candidate], report func(Result)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The checks of a live candidate use up to five connections, but few candidates are alive.
	gate := newGate(min(p.cfg.Concurrency, max(8, int(fileLimit()*3/4))))
	networks := &networks{limit: p.cfg.PerNetwork, inside: map[string]int{}, waiting: map[string][]source.Candidate{}}

	var group sync.WaitGroup
	var reporting sync.Mutex
	one := func(c source.Candidate) bool {
		result, err := p.probeWithRetries(ctx, c, gate)
		if err != nil {
			if ctx.Err() == nil {
				cancel(err)
			}
			return false
		}
		reporting.Lock()
		defer reporting.Unlock()
		report(result)
		return true
	}
	for c := range candidates {
		if !networks.enter(c) {
			continue // networks.next returns it when a probe of its network finishes
		}
		if !gate.enter(ctx) {
			break
		}
		group.Go(func() {
			defer gate.leave()
			for more := true; more && one(c); {
				c, more = networks.next(c)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// probeWithRetries probes c and retries with backoff and lower concurrency while failures are local to this machine.
// The caller holds a slot of gate, which is released during a backoff. A candidate that times out or closes the
// connection is probed Config.Tries times, at least twice if it is known to have worked before, because a packet may
// have been lost.
func (p *Prober) probeWithRetries(ctx context.Context, c source.Candidate, gate *gate) (Result, error) {
	tries := p.cfg.Tries
	if c.Known {
		tries = max(tries, 2)
	}
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		result, err := p.Probe(ctx, c)
		for ; tries > 1 && err == nil && (result.Reason == tunnel.ConnectTimeout || result.Reason == tunnel.Timeout || result.Reason == tunnel.Closed); tries-- {
			result, err = p.Probe(ctx, c)
		}
		if err != nil || result.Alive || result.Reason != tunnel.Local || wait > 10*time.Second {
			return result, err
		}
		if limit, lowered := gate.lower(); lowered {
			p.cfg.Logger.Warn("out of file descriptors or ports; lowering the probe concurrency", "concurrency", limit, "err", result.Detail)
		}
		gate.leave()
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-ctx.Done():
		}
		gate.reenter(ctx)
		if ctx.Err() != nil {
			return result, ctx.Err()
		}
	}
}

// gate is a semaphore whose limit can be lowered while it is in use.
type gate struct {
	mu     sync.Mutex // guards the fields below
	limit  int
	inside int
	at     time.Time     // of the last decrease
	freed  chan struct{} // closed and replaced by leave
}

// minConcurrency is the lower bound of a gate's limit.
const minConcurrency = 4

func newGate(limit int) *gate { return &gate{limit: limit, freed: make(chan struct{})} }

func (g *gate) enter(ctx context.Context) bool {
	for {
		if ctx.Err() != nil {
			return false
		}
		g.mu.Lock()
		if g.inside < g.limit {
			g.inside++
			g.mu.Unlock()
			return true
		}
		freed := g.freed
		g.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		}
	}
}

// reenter is enter for a caller that leaves in any case: if ctx is done, it enters above the limit.
func (g *gate) reenter(ctx context.Context) {
	if !g.enter(ctx) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.inside++
	}
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	close(g.freed)
	g.freed = make(chan struct{})
}

// lower decreases the limit by a quarter, at most once per interval, because a shortage makes many probes fail
// together.
func (g *gate) lower() (limit int, lowered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.at) < 100*time.Millisecond || g.limit <= minConcurrency {
		return g.limit, false
	}
	g.limit, g.at = max(minConcurrency, min(g.limit, g.inside)*3/4), time.Now()
	return g.limit, true
}

// networks limits the concurrent probes of each network and each host name, so that they do not resemble an attack.
// Waiting candidates occupy no slot of another network.
type networks struct {
	limit int

	mu      sync.Mutex // guards the fields below
	inside  map[string]int
	waiting map[string][]source.Candidate
}

// networkOf returns the network of a candidate, or "" for loopback, which has no limit.
func networkOf(c source.Candidate) string {
	addr, err := netip.ParseAddr(c.Host)
	if err != nil {
		return c.Host
	}
	if addr.IsLoopback() {
		return ""
	}
	bits := 24
	if addr.Is6() {
		bits = 48
	}
	network, _ := addr.Prefix(bits) // no address is shorter
	return network.String()
}

// enter acquires a slot in the candidate's network, or queues the candidate for next.
func (n *networks) enter(c source.Candidate) bool {
	network := networkOf(c)
	if network == "" {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.inside[network] >= n.limit {
		n.waiting[network] = append(n.waiting[network], c)
		return false
	}
	n.inside[network]++
	return true
}

// next transfers the slot of c to a waiting candidate of its network, or releases it.
func (n *networks) next(c source.Candidate) (source.Candidate, bool) {
	network := networkOf(c)
	if network == "" {
		return c, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if list := n.waiting[network]; len(list) > 0 {
		n.waiting[network] = list[1:]
		return list[0], true
	}
	delete(n.waiting, network)
	if n.inside[network]--; n.inside[network] == 0 {
		delete(n.inside, network)
	}
	return c, false
}
