package engine

import "sync"

// pool runs functions on goroutines that it keeps for the next one: theirs have stacks that are large
// enough already.
type pool struct {
	mu     sync.Mutex // guards the fields below
	idle   []chan func()
	closed bool
}

// poolIdle bounds the goroutines that are kept.
const poolIdle = 256

// run runs f, without waiting for it.
func (p *pool) run(f func()) {
	p.mu.Lock()
	n := len(p.idle)
	if n == 0 {
		p.mu.Unlock()
		go p.loop(f)
		return
	}
	to := p.idle[n-1]
	p.idle = p.idle[:n-1]
	p.mu.Unlock()
	to <- f
}

func (p *pool) loop(f func()) {
	jobs := make(chan func(), 1)
	for ok := true; ok; f, ok = <-jobs {
		f()
		p.mu.Lock()
		if p.closed || len(p.idle) == poolIdle {
			p.mu.Unlock()
			return
		}
		p.idle = append(p.idle, jobs)
		p.mu.Unlock()
	}
}

// close ends the goroutines that are idle, and others when they are.
func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, jobs := range idle {
		close(jobs)
	}
}
