package agent

import (
	"context"
	"slices"
	"time"

	"muster/jobs"
	"muster/tasks/limit"
)

const (
	maxLease  = 100                    // assignments in one answer
	maxRound  = 256                    // takes before polls get their answer
	longRound = time.Second            // after which polls get their answer, too: their leases have begun
	lookAgain = 250 * time.Millisecond // a new poll makes no new look for a role that had no work so lately
	pause     = 5 * time.Millisecond   // between two rounds that signals start
	soonest   = 20 * time.Millisecond  // between two looks for the work of a role without a signal
	blockFor  = 2 * time.Second        // how long an agent that cannot get work is left out
)

// dispatcher gives work to the takers of this process. One goroutine asks for
// the work of each role that has takers, however many: once for a signal, once
// for a tick.
type dispatcher struct {
	s *Service
	*takers
	roles map[string]*roleState // guarded by mu

	// Of the goroutine of run alone:
	version   string    // of the agents, when they were read
	read      time.Time // when they were read
	pushTo    map[string]*taker
	taskTaker map[string]*taker
}

// roleState is what the last look for the work of a role has found.
type roleState struct {
	looked time.Time // when it last found none; zero if there may be more
	until  time.Time // when to look again without a signal
}

func newDispatcher(s *Service) *dispatcher {
	return &dispatcher{s: s, takers: newTakers(s.cfg), roles: map[string]*roleState{}, pushTo: map[string]*taker{}, taskTaker: map[string]*taker{}}
}

// run gives out work until ctx ends.
func (d *dispatcher) run(ctx context.Context) {
	signals, stop := d.s.cfg.Jobs.Ready(ctx)
	defer stop()
	tick := time.NewTicker(d.s.cfg.Tick)
	defer tick.Stop()
	d.refresh(ctx)
	soon := time.NewTimer(0)
	defer soon.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-signals:
			if !ok {
				signals = nil // the ticks remain
				continue
			}
			d.forgetLooks()
			if !d.round(ctx) { // signals for others' work make few rounds
				select {
				case <-ctx.Done():
					return
				case <-time.After(pause):
				}
			}
		case <-d.wake:
			d.round(ctx)
		case <-soon.C:
			d.round(ctx)
		case <-tick.C:
			d.refresh(ctx)
			d.forgetLooks()
			d.round(ctx)
		}
		soon.Reset(d.next())
	}
}

// refresh reads which agents to push to and which Go tasks there are, and how busy the agents are.
func (d *dispatcher) refresh(ctx context.Context) {
	d.s.warn(ctx, "find the agents to push to", d.refreshPush(ctx))
	d.s.warn(ctx, "find the Go tasks", d.refreshTasks(ctx))
	d.s.warn(ctx, "count assignments", d.recount(ctx))
}

// recount reads how busy the agents with takers are: other processes change that, too.
func (d *dispatcher) recount(ctx context.Context) error {
	d.mu.Lock()
	var all []listed
	for id, l := range d.loads {
		if !l.local {
			all = append(all, listed{Agent: Agent{ID: id}})
		}
	}
	d.mu.Unlock()
	held, err := d.s.held(ctx, all)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, l := range all {
		if known := d.loads[l.ID]; known != nil {
			known.held = held[i]
		}
	}
	return nil
}

// forgetLooks makes the next round look for the work of all roles.
func (d *dispatcher) forgetLooks() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.roles)
}

// next is when the next round is due without a signal.
func (d *dispatcher) next() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	wait := d.s.cfg.Tick
	for role, state := range d.roles {
		if first, _ := best(d.all, role, time.Now()); first != nil {
			wait = min(wait, max(pause, time.Until(state.until)))
		}
	}
	for t := range d.all {
		if left := time.Until(t.load.blocked); left > 0 {
			wait = min(wait, max(pause, left))
		}
	}
	return wait
}

// round gives out work until there is no more, or no taker has room. It reports whether it gave out any.
func (d *dispatcher) round(ctx context.Context) bool {
	some, gave := false, false
	began := time.Now()
	for range maxRound {
		if time.Since(began) > longRound {
			break
		}
		roles := d.open()
		gave = false
		for _, role := range roles {
			if ctx.Err() != nil {
				break
			}
			gave = d.serve(ctx, role) || gave
		}
		if some = some || gave; !gave {
			break
		}
	}
	d.answer()
	if gave {
		d.poke() // there may be more
	}
	return some
}

// open lists the roles that have a taker with room and may have work.
func (d *dispatcher) open() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	var roles []string
	seen := map[string]bool{}
	for t := range d.all {
		if t.room(now) == 0 {
			continue
		}
		for _, role := range t.roles {
			if !seen[role] && d.mayHave(role, now) {
				roles = append(roles, role)
			}
			seen[role] = true
		}
	}
	return roles
}

// mayHave reports whether to look for the work of a role. The caller holds mu.
func (d *dispatcher) mayHave(role string, now time.Time) bool {
	state := d.roles[role]
	return state == nil || !now.Before(state.until)
}

// serve gives work of a role to the taker that is the first for it. It reports whether there may be more to give.
func (d *dispatcher) serve(ctx context.Context, role string) bool {
	d.mu.Lock()
	now := time.Now()
	t, second := best(d.all, role, now)
	if t == nil {
		d.mu.Unlock()
		return false
	}
	n, l, capacity := t.portion(second, now), t.load, t.load.capacity
	if l.local {
		capacity = 1 << 30
	} else if t.permit != nil {
		n = 1 // a permit is for one request
	}
	d.mu.Unlock()

	room, err := d.s.reserve(ctx, l.agent, capacity, n, !l.local)
	if err != nil {
		d.s.warn(ctx, "reserve room of an agent", err, "agent", l.agent)
		d.block(l, -1)
		return true
	}
	d.mu.Lock()
	more := !l.local && room.held > l.held
	if !l.local {
		l.held = room.held
	}
	first, _ := best(d.all, role, now)
	d.mu.Unlock()
	switch {
	case len(room.ids) == 0 && room.wait != 0:
		d.block(l, room.wait)
		return true
	case len(room.ids) == 0:
		return true // it is full, as we now know
	case more && first != t:
		d.s.unreserve(ctx, l.agent, room.ids)
		return true
	}
	return d.take(ctx, role, t, room.ids)
}

// take takes work of a role for a taker that has room for it under ids. It reports whether there may be more to give.
func (d *dispatcher) take(ctx context.Context, role string, t *taker, ids []string) bool {
	agent := t.load.agent
	var permit limit.Permit
	if t.permit != nil {
		p, ok, wait, err := t.permit(ctx)
		if err != nil || !ok {
			d.s.warn(ctx, "ask the breaker of an agent", err, "agent", agent)
			d.s.unreserve(ctx, agent, ids)
			d.block(t.load, max(wait, pause))
			return true
		}
		permit = p
	}
	work, next, err := d.s.cfg.Jobs.Take(ctx, role, agent, len(ids))
	if err != nil {
		d.s.warn(ctx, "take work", err, "role", role)
		next = time.Second
	}
	var given []Assignment
	if len(work) > 0 {
		ctx, cancel := lasting(ctx) // the work is ours: it is stored, or released
		defer cancel()
		if given, err = d.s.assign(ctx, agent, role, t.mode, ids, work); err != nil {
			d.s.warn(ctx, "store assignments", err, "agent", agent)
			d.returnWork(ctx, work)
		}
	}
	d.s.unreserve(ctx, agent, ids[len(given):])
	if len(given) == 0 {
		_ = permit.Cancel(ctx) // or the trial ends by itself
		d.none(role, next)
		return false
	}
	if !d.give(t, given, permit) {
		d.s.releaseAll(ctx, given) // the poll has ended meanwhile
	}
	return true
}

// returnWork releases work that could not be stored.
func (d *dispatcher) returnWork(ctx context.Context, work []jobs.Work) {
	for _, w := range work {
		d.s.warn(ctx, "release work", d.s.cfg.Jobs.Release(ctx, w), "job", w.JobID)
	}
}

// none notes that a role has no work, and when to look again; next < 0 means that it is not known.
func (d *dispatcher) none(role string, next time.Duration) {
	if next < 0 || next > d.s.cfg.Tick {
		next = d.s.cfg.Tick
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.roles[role] = &roleState{looked: now, until: now.Add(max(next, soonest))}
}

// give hands assignments to a taker. It returns false if the taker is a poll that has ended.
func (d *dispatcher) give(t *taker, all []Assignment, permit limit.Permit) bool {
	d.mu.Lock()
	_, waits := d.all[t]
	if !t.starts && !waits {
		d.mu.Unlock()
		return false
	}
	t.load.held += len(all)
	t.load.idle = time.Now()
	t.slots.free -= len(all)
	if !t.starts {
		t.got = append(t.got, all...)
	}
	d.mu.Unlock()
	if t.starts {
		for _, a := range all {
			d.s.keep.begin(given(a, t.mode), permit)
		}
	}
	return true
}

// answer ends the polls that have got work, and notes for all that there was a round.
func (d *dispatcher) answer() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for t := range d.all {
		if t.starts {
			continue
		}
		if !t.seen {
			t.seen = true
			close(t.looked)
		}
		if len(t.got) > 0 {
			d.drop(t)
			close(t.done)
		}
	}
}

// fresh makes the next round look for the work of roles, unless a look has just found none.
func (d *dispatcher) fresh(roles []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for role, state := range d.roles {
		if slices.Contains(roles, role) && time.Since(state.looked) > lookAgain {
			delete(d.roles, role)
		}
	}
}
