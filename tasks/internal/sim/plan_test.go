package sim

import (
	"fmt"
	"time"

	"muster/tasks"
)

// plan describes the faults of a history and their weights, which are the weights of trouble.
type plan struct {
	nodes       int // that its workflows have, at least
	singles     int // workflows out of a thousand that are single tasks
	asks        int // steps out of a thousand that the party handles
	spread      int // tasks out of thousand that are in another queue, and likewise that go before others
	workers     int
	netFaults   int // calls out of thousand
	replyFaults int // entries out of a hundred that a worker does not hear of
	crashes     int
	mostDead    int
	dead        int
	freezes     int
	jumps       int
	skewed      int // processes out of thousand
	operator    int
	revocations int
	retries     int
	pauses      int
	signals     int
	deadlines   int // workflows out of thousand that have one
	concurrency int // per key; 0 for no limit
	rate        int // per key and 30 ms; 0 for no limit
	unique      int // workflows out of thousand that have the same unique key
	losses      int // plans out of thousand that Redis loses
	limitLosses int // losses of all limits per key
	programs    int // sets of handlers that workers have
}

// draw makes up a plan. A quarter of all histories have no faults, so that every continuation must run exactly
// once; most others have a few kinds.
func (h *history) draw() {
	h.plan = plan{nodes: 20, workers: h.among(1, 3)}
	p := &h.plan
	p.spread = h.among(0, 3) * 100
	p.singles = h.among(0, 3) * 200
	p.asks = max(0, h.among(-2, 2)) * 200
	p.retries = max(0, h.among(-2, 3))
	p.pauses = max(0, h.among(-2, 3))
	p.signals = max(0, h.among(-1, 3))
	p.deadlines = max(0, h.among(-1, 1)) * 300
	p.concurrency, p.rate = max(0, h.among(-1, 2)), max(0, h.among(-3, 2))
	p.unique = max(0, h.among(-1, 1)) * 600
	p.programs = max(1, h.among(0, 3))
	p.workers = max(p.workers, p.programs)
	if h.chance(250) {
		return
	}
	some := func(of, lo, hi int) int {
		if !h.chance(of) {
			return 0
		}
		return h.among(lo, hi)
	}
	p.netFaults = some(600, 5, 80)
	p.replyFaults = some(500, 1, 6)
	p.crashes = some(500, 1, 3)
	p.mostDead = 4
	p.freezes = some(300, 1, 2)
	p.jumps = some(300, 1, 2)
	p.skewed = some(300, 500, 1000)
	p.operator = some(300, 1, 3)
	p.revocations = 2
	p.losses = some(300, 200, 600)
	p.limitLosses = some(300, 100, 300)
}

// faultless reports whether a history has no faults except for actions of an operator.
func (p *plan) faultless() bool {
	return p.netFaults+p.replyFaults+p.crashes+p.freezes+p.jumps+p.skewed+p.losses+p.limitLosses == 0
}

// limits returns the limits per key of two tasks. Some inputs have no limit.
func (p *plan) limits() (out []tasks.TaskOption) {
	key := func(n int) string {
		if n%4 == 3 {
			return ""
		}
		return fmt.Sprint("key ", n%2)
	}
	if p.concurrency > 0 {
		out = append(out, tasks.Limited(tasks.Concurrency("concurrency", p.concurrency), key))
	}
	if p.rate > 0 {
		out = append(out, tasks.Limited(tasks.Rate("rate", p.rate, 30*time.Millisecond), key))
	}
	return out
}
