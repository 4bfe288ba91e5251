package agent

import (
	"sync"
	"time"
)

// takers are what waits for work in this process.
type takers struct {
	wake chan struct{} // something that concerns takers has changed

	mu    sync.Mutex // guards the rest
	all   map[*taker]struct{}
	loads map[string]*load // by agent
	push  *slots
	tasks *slots
}

func newTakers(cfg Config) *takers {
	return &takers{
		wake: make(chan struct{}, 1), all: map[*taker]struct{}{}, loads: map[string]*load{},
		push: &slots{cfg.PushSlots}, tasks: &slots{cfg.TaskSlots},
	}
}

// poke starts a round.
func (d *takers) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// join adds a taker of an agent, unless it has too many. held and idle are as Redis says.
func (d *takers) join(agent string, capacity, held int, idle time.Time, t *taker) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.loads[agent]
	if l == nil {
		l = &load{agent: agent}
		d.loads[agent] = l
	}
	if l.takers >= maxPolls && !t.starts {
		return false
	}
	l.capacity, l.held, l.idle = capacity, held, idle
	l.takers++
	t.load, t.since = l, time.Now()
	d.all[t] = struct{}{}
	d.poke()
	return true
}

// leave removes a taker and returns what it has got.
func (d *takers) leave(t *taker) []Assignment {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.all[t]; ok {
		d.drop(t)
	}
	got := t.got
	t.got = nil
	return got
}

// drop removes a taker. The caller holds mu.
func (d *takers) drop(t *taker) {
	delete(d.all, t)
	if t.load.takers--; t.load.takers == 0 {
		delete(d.loads, t.load.agent)
	}
}

// freed notes that an assignment of an agent has ended.
func (d *takers) freed(agent string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.loads[agent]; l != nil && !l.local {
		l.held, l.idle = max(0, l.held-1), time.Now()
		d.poke()
	}
}

// shared are the slots of what this process begins itself.
func (d *takers) shared(mode string) *slots {
	if mode == modeTask {
		return d.tasks
	}
	return d.push
}

// began takes a slot for an assignment that another process has left, unless there is none.
func (d *takers) began(h *held) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.shared(h.mode)
	if of.free <= 0 {
		return false
	}
	of.free--
	if l := d.loads[h.agent]; l != nil && l.local {
		l.held++
	}
	return true
}

// ended returns the slot of an assignment that this process has begun.
func (d *takers) ended(mode, agent string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shared(mode).free++
	if l := d.loads[agent]; l != nil && l.local {
		l.held, l.idle = max(0, l.held-1), time.Now()
	}
	d.poke()
}

// block leaves an agent out for a while; <0 means that it is not known how long.
func (d *takers) block(l *load, wait time.Duration) {
	if wait < 0 {
		wait = blockFor
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l.blocked = time.Now().Add(wait)
}
