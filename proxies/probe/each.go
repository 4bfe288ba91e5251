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

// Each probes all candidates, Config.Concurrency at once, and hands each result to report as soon as it is there, one
// call at a time, in the order in which they end. It waits for the probes that it started. The error is nil when
// all have been probed; after ErrJudge or the end of ctx, earlier results are valid.
//
// When this machine runs out of descriptors or ports, no candidate is at fault: Each lowers its concurrency and
// probes them again.
func (p *Prober) Each(ctx context.Context, candidates iter.Seq[source.Candidate], report func(Result)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The checks of a live candidate take up to five connections each, but few are alive.
	gate := newGate(min(p.cfg.Concurrency, max(8, int(fileLimit()*3/4))))
	networks := &networks{limit: p.cfg.PerNetwork, inside: map[string]int{}, waiting: map[string][]source.Candidate{}}

	var group sync.WaitGroup
	var reporting sync.Mutex
	one := func(c source.Candidate) bool {
		result, err := p.patiently(ctx, c, gate)
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
			continue // next passes it on when one of its network has ended
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

// patiently probes again, later and with fewer neighbours, while it is this machine that fails. The caller is inside
// the gate; while it waits, another may enter. What gives no answer is probed Config.Tries times, and what has worked
// before at least twice: of all failures a lost packet is the one that passes.
func (p *Prober) patiently(ctx context.Context, c source.Candidate, gate *gate) (Result, error) {
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
			p.cfg.Logger.Warn("this machine is out of descriptors or ports; probing fewer at once", "concurrency", limit, "err", result.Detail)
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
	at     time.Time     // of the last lowering
	freed  chan struct{} // closed and replaced by leave
}

// fewest is how low the limit goes.
const fewest = 4

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

// reenter is enter for one that will leave in any case: when ctx is done it is inside above the limit.
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

// lower takes a quarter off the limit, at most once in a while: many fail together for the same cause.
func (g *gate) lower() (limit int, lowered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.at) < 100*time.Millisecond || g.limit <= fewest {
		return g.limit, false
	}
	g.limit, g.at = max(fewest, min(g.limit, g.inside)*3/4), time.Now()
	return g.limit, true
}

// networks keeps the number of probes into one network, and to one name, small, so that it does not look like an attack.
// A candidate that waits takes no place of other networks.
type networks struct {
	limit int

	mu      sync.Mutex // guards the fields below
	inside  map[string]int
	waiting map[string][]source.Candidate
}

// networkOf names the network of a candidate; "" for loopback, which has no limit.
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

// enter takes a place in the candidate's network, or keeps the candidate until next frees one.
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

// next passes the place of a candidate on to one that waits for it, or frees the place.
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
