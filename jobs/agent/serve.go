package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/limit"
	"muster/internal/tracing"
	"muster/jobs"
)

// Limits of this process.
const (
	pushSlots = 256 // open requests to agents
	taskSlots = 64  // Go tasks for which it waits
)

// Causes of the cancellation of an assignment in this process, in addition to the end of Run.
var (
	errDeadline = errors.New("the deadline of the assignment has passed")
	errGone     = errors.New("the assignment has ended or was lost")
)

// server leases work for Go tasks and for agents with a URL.
type server struct {
	s           *Service
	push, tasks *slots
	wg          sync.WaitGroup
	base        context.Context // of run

	// The fields below are used by the goroutine of run only.
	version string             // version of the agents that were read last
	read    time.Time          // time of that
	serving map[string]*waiter // by agent or Go task
}

func newServer(s *Service) *server {
	return &server{s: s, push: &slots{pushSlots}, tasks: &slots{taskSlots}, serving: map[string]*waiter{}}
}

// run serves all agents with a URL and all Go tasks until ctx is done.
func (v *server) run(ctx context.Context) {
	v.base = ctx
	every(ctx, v.s.cfg.Tick, func(ctx context.Context) {
		v.s.warn(ctx, "find the agents to push to", v.refreshPush(ctx))
		v.s.warn(ctx, "find the Go tasks", v.refreshTasks(ctx))
		v.s.warn(ctx, "count assignments", v.recount(ctx))
	})
	for _, w := range v.serving {
		w.stop()
	}
	v.wg.Wait()
}

// serve starts to serve an agent or Go task, or updates its roles and capacity if it is being served.
func (v *server) serve(ctx context.Context, w *waiter) {
	ws := v.s.waiters
	if known := v.serving[w.agent]; known != nil {
		ws.mu.Lock()
		known.roles, known.capacity = w.roles, w.capacity
		ws.mu.Unlock()
		return
	}
	ctx, stop := context.WithCancel(ctx)
	w.stop, v.serving[w.agent] = stop, w
	ws.join(w)
	v.wg.Go(func() {
		defer ws.leave(ctx, w)
		for {
			for ctx.Err() == nil && v.takeOne(ctx, w) {
			}
			ws.wait(ctx, w)
			select {
			case <-ctx.Done():
				return
			case <-w.wake:
			}
		}
	})
}

// unserve stops serving the agents or Go tasks of a mode that are not in now.
func (v *server) unserve(mode string, now map[string]bool) {
	for id, w := range v.serving {
		if w.mode == mode && !now[id] {
			w.stop()
			delete(v.serving, id)
		}
	}
}

// takeOne leases and begins one assignment for an agent or Go task. It reports whether there was work.
func (v *server) takeOne(ctx context.Context, w *waiter) bool {
	ws := v.s.waiters
	ws.mu.Lock()
	room := w.room()
	ws.mu.Unlock()
	if room == 0 {
		return false
	}
	var permit limit.Permit
	if w.mode == modePush {
		p, ok, wait, err := v.s.breaker.Allow(ctx, breakerKey(w.agent))
		if err != nil || !ok {
			v.s.warn(ctx, "read the breaker of an agent", err, "agent", w.agent)
			ws.block(w, max(wait, 10*time.Millisecond))
			return false
		}
		permit = p
	}
	got, err := v.s.take(ctx, w, 1)
	v.s.warn(ctx, "take work", err, "agent", w.agent)
	if len(got) == 0 {
		v.s.warn(ctx, "return a trial of the breaker of an agent", permit.Cancel(context.WithoutCancel(ctx)), "agent", w.agent)
		return false
	}
	v.begin(w, got[0], permit)
	return true
}

// begin pushes an assignment to its agent or sends its Go task, and extends the lease until that returns.
func (v *server) begin(w *waiter, a Assignment, permit limit.Permit) {
	h := &assigned{Assignment: a, now: a.Begun}
	ctx, cancel := context.WithCancelCause(tracing.Context(v.base, h.Headers))
	ctx, stop := context.WithTimeoutCause(ctx, h.Deadline.Sub(h.Begun), errDeadline)
	v.wg.Go(func() { v.extend(ctx, cancel, *h) })
	v.wg.Go(func() {
		if w.mode == modeTask {
			v.s.runTask(ctx, h)
		} else {
			v.s.push(ctx, h, permit)
		}
		cancel(nil)
		stop()
		v.s.waiters.mu.Lock()
		w.slots.free++
		v.s.waiters.mu.Unlock()
		v.s.waiters.wakeFree(w)
	})
}

// extend extends the lease of an assignment until ctx is done. If the lease is lost, it calls cancel.
func (v *server) extend(ctx context.Context, cancel context.CancelCauseFunc, h assigned) {
	tick := time.NewTicker(max(h.Expires.Sub(h.Begun)/3, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := v.s.beat(ctx, &h, nil)
		if errors.Is(err, jobs.ErrLeaseLost) {
			cancel(errGone)
			return
		}
		v.s.warn(ctx, "extend the lease of an assignment", err, "assignment", h.ID)
	}
}

// settleInterrupted settles an assignment if its context is done, and reports whether it is. After the deadline the attempt fails;
// when Run ends, the work is released.
func (s *Service) settleInterrupted(ctx context.Context, h *assigned) bool {
	cause := context.Cause(ctx)
	if cause == nil {
		return false
	}
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	switch {
	case errors.Is(cause, errDeadline):
		s.settle(ctx, h, nil, func(h *assigned) error { return s.fail(ctx, h, cause, 0, true, endExpired) })
	case errors.Is(cause, errGone): // another call has settled it
	default:
		s.settle(ctx, h, nil, func(h *assigned) error { return s.release(ctx, h) })
	}
	return true
}

// settle reads the current state of an assignment of this process, adds usage, and calls how if the assignment is open. If
// that fails, the assignment is lost when its lease expires.
func (s *Service) settle(ctx context.Context, h *assigned, usage map[string]int64, how func(h *assigned) error) {
	if checkUsage(usage) != nil {
		usage = nil
	}
	fresh, err := s.load(ctx, h.ID, "", usage)
	if err == nil && fresh.open() {
		err = how(fresh)
	}
	if err != nil && !errors.Is(err, jobs.ErrLeaseLost) && !errors.Is(err, ErrNoneSuch) {
		s.warn(ctx, "settle an assignment", err, "assignment", h.ID)
	}
}

// recount reads the number of assignments of each agent with a waiter, because other processes change it as well.
func (v *server) recount(ctx context.Context) error {
	ws := v.s.waiters
	ws.mu.Lock()
	var ids []string
	changes := map[*waiter]int{}
	for w := range ws.all {
		if w.mode != modeTask {
			ids = append(ids, w.agent)
			changes[w] = w.changes
		}
	}
	ws.mu.Unlock()
	held, err := v.s.countHeld(ctx, ids)
	if err != nil {
		return err
	}
	counts := map[string]int{}
	for i, id := range ids {
		counts[id] = held[i]
	}
	ws.mu.Lock()
	var more []*waiter
	for w, before := range changes {
		if n := counts[w.agent]; n != w.held && w.changes == before { // otherwise the count is outdated
			if n < w.held {
				more = append(more, w)
			}
			w.held = n
		}
	}
	ws.mu.Unlock()
	for _, w := range more {
		ws.wakeFree(w)
	}
	return nil
}

// refreshPush updates the set of served agents with a URL.
func (v *server) refreshPush(ctx context.Context) error {
	version, err := v.s.rdb.Get(ctx, v.s.keys.version()).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	if version == v.version && time.Since(v.read) < 5*v.s.cfg.Tick {
		return nil
	}
	all, err := v.s.snapshot(ctx)
	if err != nil {
		return err
	}
	v.version, v.read = version, time.Now()
	now := map[string]bool{}
	for _, a := range all {
		if a.URL != "" && a.State == StateHealthy {
			now[a.ID] = true
			v.serve(ctx, &waiter{agent: a.ID, roles: a.Roles, capacity: a.Capacity, slots: v.push, mode: modePush})
		}
	}
	v.unserve(modePush, now)
	return nil
}

// refreshTasks updates the set of served Go tasks.
func (v *server) refreshTasks(ctx context.Context) error {
	live, err := v.s.liveTasks(ctx)
	if err != nil {
		return err
	}
	now := map[string]bool{}
	for _, task := range live {
		role := taskPrefix + task.name
		now[role] = true
		v.serve(ctx, &waiter{agent: role, roles: []string{role}, capacity: taskSlots, slots: v.tasks, mode: modeTask})
	}
	v.unserve(modeTask, now)
	return nil
}
