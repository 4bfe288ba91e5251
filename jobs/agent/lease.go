package agent

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"muster/internal/limit"
)

// Limits of Lease.
const (
	MaxLease = 100              // maximum number of assignments per call
	MaxWait  = 30 * time.Second // maximum wait
)

// Lease assigns work of the given roles to the agent, or of all of its roles if there are none. It returns as soon as
// there is work, with up to limit assignments, at most MaxLease and at most the free capacity of the agent. Without work
// it returns an empty list after wait, at most MaxWait, or when Run returns. A wait requires Run in the same process. If
// ctx is canceled, the assigned work is released.
//
// The error is ErrNoAgent, ErrTooMany if the agent has more than 16 concurrent polls, or a *jobs.FieldError.
func (s *Service) Lease(ctx context.Context, id string, roles []string, limit int, wait time.Duration) ([]Assignment, error) {
	t, err := s.touch(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(roles) == 0 {
		roles = t.Roles
	}
	for i, role := range roles {
		if !slices.Contains(t.Roles, role) {
			return nil, bad(fmt.Sprintf("roles[%d]", i), "the agent is not registered for the role %.50q", role)
		}
	}
	if limit < 1 {
		return nil, bad("max", "give 1 or more")
	}
	poll := &waiter{agent: id, roles: roles, mode: modePull, slots: &slots{min(limit, MaxLease)}, capacity: t.Capacity, held: t.Held, idle: t.idle, once: wait <= 0}
	if !s.waiters.join(poll) {
		return nil, fmt.Errorf("agent %s: %d polls at a time: %w", id, maxPolls, ErrTooMany)
	}
	defer s.waiters.leave(ctx, poll)
	over := time.NewTimer(min(max(wait, 0), MaxWait))
	defer over.Stop()
	first := true
	for look := wait <= 0 || s.waiters.shouldCheck(poll); ; look = true {
		if look {
			if !first {
				if t, err = s.touch(ctx, id); err != nil {
					return nil, err
				}
			}
			first = false
			var got []Assignment
			if t.State == StateDraining {
				s.waiters.block(poll, blockFor)
			} else {
				got, err = s.take(ctx, poll, MaxLease)
			}
			if ctx.Err() != nil {
				s.releaseAll(ctx, got)
				return nil, context.Cause(ctx)
			}
			if len(got) > 0 || err != nil {
				return got, err
			}
		}
		s.waiters.wait(ctx, poll)
		select {
		case <-poll.wake:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-s.stopped:
			return nil, nil
		case <-over.C:
			return nil, nil
		}
	}
}

// take leases up to most assignments for a waiter, limited by its free capacity. All of them have the same role.
func (s *Service) take(ctx context.Context, w *waiter, most int) ([]Assignment, error) {
	s.waiters.mu.Lock()
	roles, capacity := w.roles, w.capacity
	s.waiters.mu.Unlock()
	for _, role := range roles {
		if !w.once && !s.waiters.mayHaveWork(role) {
			continue
		}
		n := min(s.waiters.portion(w, role), most)
		if n == 0 {
			return nil, nil
		}
		began := time.Now()
		n, next, err := s.reserveStarts(ctx, role, n)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			s.waiters.noteNoWork(role, began, next)
			continue
		}
		// An agent that goes meanwhile does not keep what is leased: hold gives it to the agent, or releases it.
		work, next, err := s.cfg.Jobs.Take(context.WithoutCancel(ctx), role, w.agent, n)
		s.refund(ctx, role, n-len(work))
		if err != nil && len(work) == 0 {
			return nil, fmt.Errorf("take work of %s: %w", role, err)
		}
		if len(work) == 0 {
			s.waiters.noteNoWork(role, began, next)
			continue
		}
		s.waiters.noteWork(role)
		got, now, err := s.hold(ctx, w.agent, role, w.mode, capacity, work)
		s.refund(ctx, role, len(work)-len(got))
		s.waiters.noteHeld(w, len(got), now)
		if len(got) > 0 || err != nil {
			return got, err
		}
	}
	return nil, nil
}

// releaseAll releases assignments that were not delivered to their agent.
func (s *Service) releaseAll(ctx context.Context, all []Assignment) {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	for _, a := range all {
		s.warn(ctx, "release an assignment that its agent did not get", s.release(ctx, &assigned{Assignment: a, now: a.Begun}), "assignment", a.ID)
	}
}

const (
	maxPolls  = 16                     // maximum number of concurrent polls of an agent
	lookAgain = 250 * time.Millisecond // time for which new polls do not check a role that had no work
	blockFor  = 2 * time.Second        // time for which an agent is skipped if no work can be assigned to it
)

// slots is the number of free slots, which waiters may share.
type slots struct{ free int }

// waiter is a poll, an agent with a URL or a Go task that waits for work. The mutex of waiters guards all fields except
// agent, mode, wake and stop.
type waiter struct {
	agent    string
	mode     string
	wake     chan struct{} // has a value if the waiter should check for work
	stop     func()        // ends the waiter, if it is not a poll
	waiting  bool          // the waiter checks for work after a wake-up; otherwise it is checking, or about to
	once     bool          // the waiter checks all of its roles once and does not wait
	roles    []string
	slots    *slots
	capacity int
	held     int       // number of assignments known to this process; hold and recount correct it
	changes  int       // number of changes of held by this process
	idle     time.Time // start of the idle time
	since    time.Time // start of the wait
	blocked  time.Time // no work is assigned until then
}

// ready reports whether a waiter is waiting and can take work of a role.
func (w *waiter) ready(role string) bool {
	return w.waiting && w.room() > 0 && slices.Contains(w.roles, role)
}

// room returns the number of assignments that a waiter can take now.
func (w *waiter) room() int {
	if time.Now().Before(w.blocked) {
		return 0
	}
	return max(0, min(w.slots.free, w.capacity-w.held))
}

// before reports whether w has precedence over u: it has a lower load relative to its capacity or, if the loads are equal,
// has been idle or waiting for longer.
func (w *waiter) before(u *waiter) bool {
	if a, b := w.held*u.capacity, u.held*w.capacity; a != b {
		return a < b
	}
	if c := w.idle.Compare(u.idle); c != 0 {
		return c < 0
	}
	return w.since.Before(u.since)
}

// waiters manages the waiters of this process. One goroutine blocks on the wake-up lists of all their roles, with one connection
// to Redis, and wakes the waiter with the highest precedence.
type waiters struct {
	s       *Service
	list    string        // a wake-up list of this process, to interrupt the goroutine
	arrived chan struct{} // has a value when a waiter has begun to wait

	mu      sync.Mutex // guards the rest
	all     map[*waiter]struct{}
	roles   map[string]*roleState
	watched map[string]bool // roles whose wake-up lists the goroutine blocks on; nil if it does not block
	stopped bool            // Run has ended
}

// roleState is the state of a role in this process.
type roleState struct {
	none  time.Time   // until then, new polls assume that there is no work
	news  time.Time   // when it last may have got work
	timer *time.Timer // wakes a waiter when work becomes due
}

func newWaiters(s *Service) *waiters {
	return &waiters{s: s, list: "process:" + rand.Text(), arrived: make(chan struct{}, 1), all: map[*waiter]struct{}{}, roles: map[string]*roleState{}}
}

// run blocks on the wake-up lists of the roles of waiters with free capacity, until ctx is done. It wakes a waiter for each
// token, and one of each other role after each Config.Tick.
func (ws *waiters) run(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { ws.passOn(ctx, ws.list) })()
	tick := time.Now().Add(ws.s.cfg.Tick)
	for ctx.Err() == nil {
		roles := ws.watch()
		if roles == nil {
			select {
			case <-ws.arrived:
			case <-ctx.Done():
			}
			continue
		}
		role, err := ws.s.cfg.Jobs.WaitForWork(ctx, append([]string{ws.list}, roles...), time.Until(tick))
		if err != nil && ctx.Err() == nil {
			ws.s.warn(ctx, "wait for work", err, "roles", roles)
			pause := time.NewTimer(ws.s.cfg.Tick)
			select {
			case <-pause.C:
			case <-ctx.Done():
			}
			pause.Stop()
		}
		if role != "" && role != ws.list {
			ws.noteWork(role)
			if !ws.wakeOne(role) {
				ws.passOn(ctx, role)
			}
		}
		if time.Now().Before(tick) {
			continue
		}
		tick = time.Now().Add(ws.s.cfg.Tick)
		for _, other := range roles {
			if other != role { // a second waiter would compete for the work of one token
				ws.wakeOne(other)
			}
		}
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.stopped, ws.watched = true, nil
	for _, st := range ws.roles {
		if st.timer != nil {
			st.timer.Stop()
		}
	}
}

// watch returns the roles of waiters with free capacity, in random order, and sets watched. It returns nil if there are none.
func (ws *waiters) watch() (roles []string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.watched = nil
	for w := range ws.all {
		if !w.waiting || w.room() == 0 {
			continue
		}
		if ws.watched == nil {
			ws.watched = map[string]bool{}
		}
		for _, role := range w.roles {
			ws.watched[role] = true
		}
	}
	for role := range ws.watched {
		roles = append(roles, role)
	}
	return roles
}

// passOn makes WaitForWork return in a process that waits for work of a role, or in the process with a list.
func (ws *waiters) passOn(ctx context.Context, role string) {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	ws.s.warn(ctx, "pass on work", ws.s.cfg.Jobs.PassOn(ctx, role), "role", role)
}

// join adds a waiter, unless its agent has too many polls.
func (ws *waiters) join(w *waiter) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	polls := 0
	for u := range ws.all {
		if u.agent == w.agent && u.mode == modePull {
			polls++
		}
	}
	if polls >= maxPolls && w.mode == modePull {
		return false
	}
	w.since, w.wake = time.Now(), make(chan struct{}, 1)
	ws.all[w] = struct{}{}
	return true
}

// wait marks a waiter as waiting for a wake-up.
func (ws *waiters) wait(ctx context.Context, w *waiter) {
	ws.mu.Lock()
	w.waiting = true
	interrupt := false
	for _, role := range w.roles {
		if ws.watched != nil && !ws.watched[role] {
			ws.watched[role], interrupt = true, true
		}
	}
	ws.mu.Unlock()
	if interrupt {
		ws.passOn(ctx, ws.list)
	}
	select {
	case ws.arrived <- struct{}{}:
	default:
	}
}

// leave removes a waiter. If it was woken and has not checked for work, leave wakes another one.
func (ws *waiters) leave(ctx context.Context, w *waiter) {
	ws.mu.Lock()
	delete(ws.all, w)
	ws.mu.Unlock()
	select {
	case <-w.wake:
	default:
		return
	}
	for _, role := range w.roles {
		if !ws.wakeOne(role) {
			ws.passOn(ctx, role)
		}
	}
}

// role returns the state of a role. The caller holds mu.
func (ws *waiters) role(role string) *roleState {
	st := ws.roles[role]
	if st == nil {
		st = &roleState{}
		ws.roles[role] = st
	}
	return st
}

// first returns the waiter with the highest precedence for a role, or nil. The caller holds mu.
func (ws *waiters) first(role string) *waiter {
	var first *waiter
	for w := range ws.all {
		if w.ready(role) && (first == nil || w.before(first)) {
			first = w
		}
	}
	return first
}

// wakeOne wakes the waiter with the highest precedence for a role. It reports whether there is one.
func (ws *waiters) wakeOne(role string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.first(role)
	if w == nil {
		return false
	}
	w.waiting = false
	w.wake <- struct{}{}
	return true
}

// portion returns the number of assignments of a role that a waiter takes at once: its capacity, shared with the other agents
// that have free capacity.
func (ws *waiters) portion(w *waiter, role string) int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	n := 0
	for u := range ws.all {
		if u.agent != w.agent && u.room() > 0 && slices.Contains(u.roles, role) {
			n++
		}
	}
	room := min(w.room(), MaxLease)
	return min(room, max(1, room/(n+1)))
}

// shouldCheck reports whether a new poll should check for work of one of its roles: no other waiter is waiting for that role, and
// this process has not recently found it without work.
func (ws *waiters) shouldCheck(w *waiter) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	now := time.Now()
	return slices.ContainsFunc(w.roles, func(role string) bool { return ws.first(role) == nil && !now.Before(ws.role(role).none) })
}

// mayHaveWork reports whether a role may have work: this process has not recently found it without work.
func (ws *waiters) mayHaveWork(role string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return !time.Now().Before(ws.role(role).none)
}

// noteWork records that a role may have work.
func (ws *waiters) noteWork(role string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	st := ws.role(role)
	st.none, st.news = time.Time{}, time.Now()
}

// noteNoWork records that a look that began at a time has found no work of a role, and wakes a waiter after next. If next < 0, only a token
// wakes one.
func (ws *waiters) noteNoWork(role string, began time.Time, next time.Duration) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	st := ws.role(role)
	if began.After(st.news) { // else work has come meanwhile
		st.none = time.Now().Add(lookAgain)
	}
	if next < 0 || ws.stopped {
		return
	}
	if st.timer != nil {
		st.timer.Stop()
	}
	st.timer = time.AfterFunc(max(next, 5*time.Millisecond), func() {
		ws.noteWork(role)
		ws.wakeOne(role)
	})
}

// noteHeld records that a waiter has taken n assignments, and the new load of its agent.
func (ws *waiters) noteHeld(w *waiter, n int, now room) {
	ws.mu.Lock()
	for u := range ws.all {
		if u.agent == w.agent {
			u.held, u.idle = now.held, time.Now()
			u.changes++
		}
	}
	if w.mode == modeTask {
		w.held = 0 // only its slots limit a Go task
	}
	w.slots.free -= n
	ws.mu.Unlock()
	if n > 0 || now.rest == 0 {
		return
	}
	wait := now.rest
	if wait < 0 {
		wait = blockFor
	}
	ws.block(w, wait)
}

// block excludes a waiter from work for the duration wait.
func (ws *waiters) block(w *waiter, wait time.Duration) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.blocked = time.Now().Add(wait)
	time.AfterFunc(wait, func() { ws.wakeFree(w) })
}

// wakeFree wakes a waiter that may have free capacity again.
func (ws *waiters) wakeFree(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if _, ok := ws.all[w]; ok && w.waiting && w.room() > 0 {
		w.waiting = false
		w.wake <- struct{}{}
	}
}

// noteEnd records that an assignment of an agent has ended.
func (ws *waiters) noteEnd(agent string) {
	ws.mu.Lock()
	var all []*waiter
	for w := range ws.all {
		if w.agent == agent && w.mode != modeTask {
			w.held, w.idle = max(0, w.held-1), time.Now()
			w.changes++
			all = append(all, w)
		}
	}
	ws.mu.Unlock()
	for _, w := range all {
		ws.wakeFree(w)
	}
}

// Limits limit the assignments of roles over all agents and processes.
type Limits struct {
	Concurrency map[string]int // maximum number of open assignments by role. Defaults to no limit.
	PerMinute   map[string]int // maximum number of new assignments per minute by role. Defaults to no limit.

	rates *limit.TokenBucket
}

func (s *Service) newLimits(l Limits) *Limits {
	rates := map[string]limit.Rate{}
	for role, n := range l.PerMinute {
		rates[role] = limit.PerMinute(float64(n))
	}
	l.rates = limit.NewTokenBucket(s.rdb, limit.BucketConfig{Namespace: "muster:roles", PerKey: rates, Logger: s.log})
	return &l
}

// reserveStarts returns the number of assignments of a role, at most n, that may begin now, and takes them from the rate of the
// role; see refund. If the number is 0, next is the time until an assignment may begin. An assignment that ends earlier
// wakes WaitForWork.
func (s *Service) reserveStarts(ctx context.Context, role string, n int) (reserveStarts int, next time.Duration, err error) {
	l := s.limits.Load()
	if most := l.Concurrency[role]; most > 0 {
		v, err := scripts["room"].Run(ctx, s.rdb, []string{s.keys.role(role)}).Int64Slice()
		if err != nil {
			return 0, 0, fmt.Errorf("count the assignments of role %s: %w", role, err)
		}
		if n = min(n, most-int(v[0])); n <= 0 {
			return 0, time.Duration(v[1]) * time.Millisecond, nil
		}
	}
	perMinute := l.PerMinute[role]
	if perMinute == 0 {
		return n, 0, nil
	}
	n = min(n, perMinute)
	for {
		t, err := l.rates.Take(ctx, role, float64(n))
		if err != nil || t.OK {
			return n, 0, err
		}
		if t.Left == 0 {
			return 0, t.Wait, nil
		}
		n = min(n-1, t.Left)
	}
}

// refund returns n assignments that did not begin to the rate of their role.
func (s *Service) refund(ctx context.Context, role string, n int) {
	if l := s.limits.Load(); n > 0 && l.PerMinute[role] > 0 {
		s.warn(ctx, "refund the rate of a role", l.rates.Refund(ctx, role, float64(n)), "role", role)
	}
}

// freeRoles releases the role slot of an ended assignment and wakes a waiter for the role. It tries all roles if the role is
// unknown, as for a lost assignment.
func (s *Service) freeRoles(ctx context.Context, h *assigned) {
	for role := range s.limits.Load().Concurrency {
		if h.Role != "" && h.Role != role {
			continue
		}
		n, err := s.rdb.ZRem(ctx, s.keys.role(role), h.ID).Result()
		if err == nil && n > 0 {
			err = s.cfg.Jobs.PassOn(ctx, role)
		}
		s.warn(ctx, "let other work of a role begin", err, "role", role)
	}
}

// touched is an agent that has called.
type touched struct {
	Agent
	idle time.Time // start of its idle time
}

// touch records a heartbeat of an agent.
func (s *Service) touch(ctx context.Context, id string) (touched, error) {
	k := s.keys
	v, err := scripts["touch"].Run(ctx, s.rdb, []string{k.agents(), k.seen(), k.free(), k.held(id), k.numbers(id)}, id, drained).Slice()
	if err != nil {
		return touched{}, fmt.Errorf("note a call of agent %s: %w", id, err)
	}
	if len(v) < 5 {
		return touched{}, fmt.Errorf("agent %.100q: %w", id, ErrNoAgent)
	}
	text, _ := v[0].(string)
	rec, err := parseRecord(id, text)
	if err != nil { // it registers again
		return touched{}, fmt.Errorf("agent %.100q: %w (%w)", id, ErrNoAgent, err)
	}
	number := func(i int) int64 { n, _ := v[i].(int64); return n }
	t := touched{rec.agent(id), time.UnixMilli(number(3))}
	t.Held, t.State, t.LastSeen = int(number(2)), StateHealthy, time.UnixMilli(number(4))
	if number(1) == 1 {
		t.State = StateDraining
	}
	return t, nil
}

// agent returns the agent of a record.
func (r record) agent(id string) Agent {
	return Agent{ID: id, Name: r.Name, Roles: r.Roles, Capacity: r.Capacity, URL: r.URL, Labels: r.Labels, Registered: r.Registered}
}

// parseRecord decodes the record of an agent. If it is damaged, the returned record has the ID as its name.
func parseRecord(id, text string) (record, error) {
	var rec record
	err := json.Unmarshal([]byte(text), &rec)
	if err == nil && rec.Name == "" {
		err = errors.New("it has no name")
	}
	if err != nil {
		return record{Registration: Registration{Name: id}}, fmt.Errorf("the record of the agent is damaged (%w): it must register again, or be removed", err)
	}
	return rec, nil
}
