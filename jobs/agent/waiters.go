package agent

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	maxPolls  = 16                     // of one agent at a time
	lookAgain = 250 * time.Millisecond // a new poll makes no new look for a role that had no work so lately
	blockFor  = 2 * time.Second        // how long an agent that cannot get work is left out
)

// slots is room that waiters may share.
type slots struct{ free int }

// waiter waits for work: a poll, an agent to push to, or a Go task. The mutex of waiters guards all fields but agent, mode
// and wake.
type waiter struct {
	agent    string
	mode     string
	wake     chan struct{} // has a value when it should look for work
	waiting  bool          // it looks for work once it is woken; else it looks now, or will
	once     bool          // it does not wait, so it looks at each of its roles
	roles    []string
	slots    *slots
	capacity int
	held     int       // as far as this process knows; hold corrects it
	changes  int       // of held, by assignments of this process
	idle     time.Time // since when
	since    time.Time // since when it waits
	blocked  time.Time // until when it gets no work
}

// ready reports whether a waiter waits, and can take work of a role.
func (w *waiter) ready(role string) bool {
	return w.waiting && w.room() > 0 && slices.Contains(w.roles, role)
}

// room returns how many assignments a waiter can take now.
func (w *waiter) room() int {
	if time.Now().Before(w.blocked) {
		return 0
	}
	return max(0, min(w.slots.free, w.capacity-w.held))
}

// before reports whether w gets work before u: it has fewer assignments for its capacity or, if that is equal, has been
// idle or waiting for longer.
func (w *waiter) before(u *waiter) bool {
	if a, b := w.held*u.capacity, u.held*w.capacity; a != b {
		return a < b
	}
	if c := w.idle.Compare(u.idle); c != 0 {
		return c < 0
	}
	return w.since.Before(u.since)
}

// waiters holds the waiters of this process. For each role with waiters, one goroutine waits at the wake-up list of
// the role, and wakes the waiter that gets work next.
type waiters struct {
	s     *Service
	base  context.Context // of Run, which sets it before anything waits
	watch sync.WaitGroup

	mu    sync.Mutex // guards the rest
	all   map[*waiter]struct{}
	roles map[string]*roleState
}

// roleState is the state of a role in this process.
type roleState struct {
	watched bool      // a goroutine waits at the wake-up list
	none    time.Time // until then, new polls find no work without a check
	timer   *time.Timer
}

func newWaiters(s *Service) *waiters {
	return &waiters{s: s, all: map[*waiter]struct{}{}, roles: map[string]*roleState{}}
}

// run lets waiters wait until ctx ends.
func (ws *waiters) run(ctx context.Context) {
	ws.mu.Lock()
	for w := range ws.all {
		ws.ensure(w)
	}
	ws.mu.Unlock()
	<-ctx.Done()
	ws.mu.Lock() // from here on, ensure starts nothing
	defer ws.mu.Unlock()
	for _, st := range ws.roles {
		if st.timer != nil {
			st.timer.Stop()
		}
	}
}

// stop waits until nothing waits at a list. Run has ended.
func (ws *waiters) stop() { ws.watch.Wait() }

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

// wait makes a waiter wait for a wake-up.
func (ws *waiters) wait(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.waiting = true
	ws.ensure(w)
}

// leave removes a waiter. One that was woken and has not looked passes that on.
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
			ctx, cancel := lasting(ctx)
			ws.s.warn(ctx, "pass on work", ws.s.cfg.Jobs.PassOn(ctx, role), "role", role)
			cancel()
		}
	}
}

// ensure makes goroutines wait at the wake-up lists of the roles of a waiter. The caller holds mu.
func (ws *waiters) ensure(w *waiter) {
	if ws.base == nil || ws.base.Err() != nil {
		return
	}
	for _, role := range w.roles {
		if st := ws.role(role); !st.watched {
			st.watched = true
			ws.watch.Go(func() { ws.watchRole(ws.base, role) })
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

// watchRole waits at the wake-up list of a role while it has waiters with room, and wakes one of them for a token, and at
// each tick.
func (ws *waiters) watchRole(ctx context.Context, role string) {
	for {
		ws.mu.Lock()
		if ctx.Err() != nil || ws.first(role) == nil {
			ws.role(role).watched = false
			ws.mu.Unlock()
			return
		}
		ws.mu.Unlock()
		token, err := ws.s.cfg.Jobs.WaitForWork(ctx, role, ws.s.cfg.Tick)
		if err != nil && ctx.Err() == nil {
			ws.s.warn(ctx, "wait for work", err, "role", role)
			pause := time.NewTimer(ws.s.cfg.Tick)
			select {
			case <-pause.C:
			case <-ctx.Done():
			}
			pause.Stop()
		}
		if token {
			ws.some(role)
		}
		if ws.wakeOne(role) || !token {
			continue
		}
		last, cancel := lasting(ctx)
		ws.s.warn(last, "pass on work", ws.s.cfg.Jobs.PassOn(last, role), "role", role)
		cancel()
	}
}

// first returns the waiter that gets work of a role next, or nil. The caller holds mu.
func (ws *waiters) first(role string) *waiter {
	var first *waiter
	for w := range ws.all {
		if w.ready(role) && (first == nil || w.before(first)) {
			first = w
		}
	}
	return first
}

// wakeOne wakes the waiter that gets work of a role next. It reports whether there is one.
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

// portion returns how many assignments of a role a waiter takes at once: its share of the waiters with room.
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

// mayHave reports whether a new poll should look for work: no other waiter has found none and waits for it, and there was
// some when this process last looked, or that is long ago.
func (ws *waiters) mayHave(w *waiter) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	now := time.Now()
	return slices.ContainsFunc(w.roles, func(role string) bool { return ws.first(role) == nil && !now.Before(ws.role(role).none) })
}

// maybe reports whether a role may have work: this process has not found lately that it has none.
func (ws *waiters) maybe(role string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return !time.Now().Before(ws.role(role).none)
}

// some notes that a role may have work.
func (ws *waiters) some(role string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.role(role).none = time.Time{}
}

// none notes that a role has no work, and wakes a waiter when there may be some; next < 0 means that only a token ends the wait.
func (ws *waiters) none(role string, next time.Duration) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	st := ws.role(role)
	st.none = time.Now().Add(lookAgain)
	if next < 0 || ws.base == nil || ws.base.Err() != nil {
		return
	}
	if st.timer != nil {
		st.timer.Stop()
	}
	st.timer = time.AfterFunc(max(next, 5*time.Millisecond), func() {
		ws.some(role)
		ws.wakeOne(role)
	})
}

// holds stores that a waiter has got assignments, and the load of its agent.
func (ws *waiters) holds(w *waiter, n int, now room) {
	ws.mu.Lock()
	for u := range ws.all {
		if u.agent == w.agent {
			u.held, u.idle = now.held, time.Now()
			u.changes++
		}
	}
	if w.mode == modeTask {
		w.held = 0 // its slots count
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

// block leaves a waiter out for a while.
func (ws *waiters) block(w *waiter, wait time.Duration) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.blocked = time.Now().Add(wait)
	time.AfterFunc(wait, func() { ws.freed(w) })
}

// freed notes that a waiter may have room again.
func (ws *waiters) freed(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if _, ok := ws.all[w]; ok && w.waiting && w.room() > 0 {
		w.waiting = false
		w.wake <- struct{}{}
	}
}

// ended notes that an assignment of an agent has ended.
func (ws *waiters) ended(agent string) {
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
		ws.freed(w)
	}
}
