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
func (p *Prober) Each(ctx context.Context, candidates iter.Seq[source.Candidate], report func(Result)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The checks of a live candidate use up to five connections, but few candidates are alive.
	slots := make(chan struct{}, min(p.cfg.Concurrency, max(8, int(fileLimit()*3/4))))
	networks := &networks{limit: p.cfg.PerNetwork, inside: map[string]int{}, waiting: map[string][]source.Candidate{}}

	var group sync.WaitGroup
	var reporting sync.Mutex
	one := func(c source.Candidate) bool {
		result, err := p.probeWithRetries(ctx, c)
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
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		group.Go(func() {
			defer func() { <-slots }()
			for more := true; more && one(c); {
				c, more = networks.next(c)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// probeWithRetries probes c and retries with backoff while failures are local to this machine, such as a lack of file
// descriptors or ports. A candidate that times out or closes the connection is probed Config.Tries times, at least
// twice if it is known to have worked before, because a packet may have been lost.
func (p *Prober) probeWithRetries(ctx context.Context, c source.Candidate) (Result, error) {
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
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-ctx.Done():
			return result, ctx.Err()
		}
	}
}

// networks limits the concurrent probes of each network and each host name, so that they do not resemble an attack.
// Waiting candidates occupy no slot of another network.
type networks struct {
	limit int

	mu      sync.Mutex // guards the fields below
	inside  map[string]int
	waiting map[string][]source.Candidate
}

// networkOf returns the /24 of an IPv4 address, and the /48 of an IPv6 address.
func networkOf(addr netip.Addr) netip.Prefix {
	bits := 24
	if addr.Is6() {
		bits = 48
	}
	network, _ := addr.Prefix(bits) // no address is shorter
	return network
}

// limitedBy returns the network or the host name of a candidate, or "" for loopback, which has no limit.
func limitedBy(c source.Candidate) string {
	addr, err := netip.ParseAddr(c.Host)
	switch {
	case err != nil:
		return c.Host
	case addr.IsLoopback():
		return ""
	}
	return networkOf(addr).String()
}

// enter acquires a slot in the candidate's network, or queues the candidate for next.
func (n *networks) enter(c source.Candidate) bool {
	network := limitedBy(c)
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
	network := limitedBy(c)
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
