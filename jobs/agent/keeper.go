package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/jobs"
	"muster/tasks/limit"
)

// Why the context of an assignment that this process has begun ends, other than by the end of Run.
var (
	errDeadline = errors.New("the deadline of the assignment has passed")
	errGone     = errors.New("the assignment has ended, or is no longer ours")
)

// keeper extends the leases of the assignments that this process has begun: open
// requests to agents, and Go tasks.
type keeper struct {
	s    *Service
	wake chan struct{}
	wg   sync.WaitGroup
	base context.Context // of Run, which sets it before anything begins

	mu   sync.Mutex // guards runs
	runs map[string]*run
}

// run is an assignment that this process has begun.
type run struct {
	h      *held
	next   time.Time // when its lease must be extended
	cancel context.CancelCauseFunc
}

func newKeeper(s *Service) *keeper {
	k := &keeper{s: s, wake: make(chan struct{}, 1), runs: map[string]*run{}}
	s.pusher.keep, s.tasks.keep = k, k
	return k
}

// given returns an assignment that was just stored, as load would.
func given(a Assignment, mode string) *held {
	return &held{
		id: a.ID, agent: a.Agent, role: a.Role, mode: mode, open: true, fence: a.Fence, work: a.Work,
		deadline: a.Deadline, until: a.Expires, now: a.now, lease: leaseOf(a.Work, a.now),
	}
}

// begin pushes an assignment to its agent, or sends its Go task. It takes over the slot of the assignment.
func (k *keeper) begin(h *held, permit limit.Permit) {
	do := func(ctx context.Context) { k.s.pusher.push(ctx, h, permit) }
	if h.mode == modeTask {
		do = func(ctx context.Context) { k.s.tasks.runTask(ctx, h) }
	}
	k.start(h, func(ctx context.Context) {
		defer k.s.dispatch.ended(h.mode, h.agent)
		do(ctx)
	})
}

// start calls do in a goroutine, with a context that ends when the assignment does.
func (k *keeper) start(h *held, do func(ctx context.Context)) {
	ctx, cancel := context.WithCancelCause(within(k.base, h.work))
	ctx, stop := context.WithTimeoutCause(ctx, h.deadline.Sub(h.now), errDeadline)
	k.mu.Lock()
	r := &run{h: h, next: time.Now().Add(h.lease / 3), cancel: cancel}
	k.runs[h.id] = r
	k.mu.Unlock()
	k.wg.Go(func() {
		defer cancel(nil)
		defer stop()
		do(ctx)
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.runs[h.id] == r {
			delete(k.runs, h.id)
		}
	})
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// has reports whether this process has begun an assignment.
func (k *keeper) has(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.runs[id] != nil
}

// stop ends what this process does for an assignment.
func (k *keeper) stop(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.runs[id]; r != nil {
		r.cancel(errGone)
	}
}

// wait waits until all that was begun has ended.
func (k *keeper) wait() { k.wg.Wait() }

// run extends leases until ctx ends.
func (k *keeper) run(ctx context.Context) {
	for {
		now := time.Now()
		due, wait := k.due(now)
		for _, r := range due {
			k.beat(ctx, r)
		}
		if len(due) > 0 {
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-k.wake:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// due lists the runs whose lease must be extended now, and returns how long there is nothing else to do.
func (k *keeper) due(now time.Time) (due []*run, wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	wait = time.Minute
	for _, r := range k.runs {
		if left := r.next.Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		due = append(due, r)
		r.next = now.Add(r.h.lease / 3)
	}
	return due, wait
}

// beat extends the lease of a run, or ends it.
func (k *keeper) beat(ctx context.Context, r *run) {
	h := *r.h // the run reads it
	err := k.s.beat(ctx, &h, nil, "")
	if errors.Is(err, jobs.ErrLeaseLost) {
		r.cancel(errGone)
		return
	}
	k.s.warn(ctx, "extend the lease of an assignment", err, "assignment", h.id)
}

// leave lets another process continue with an assignment at once.
func (s *assignments) leave(ctx context.Context, h *held) {
	ctx, cancel := lasting(ctx)
	defer cancel()
	err := s.rdb.ZAddXX(ctx, s.keys.due(), redis.Z{Score: 0, Member: h.id}).Err()
	s.warn(ctx, "leave an assignment to another process", err, "assignment", h.id)
}

// interrupted settles an assignment whose context has ended, with a call that does so after the deadline. It reports whether
// the context has ended.
func (k *keeper) interrupted(ctx context.Context, h *held) bool {
	if ctx.Err() == nil {
		return false
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errDeadline):
		ctx, cancel := lasting(ctx)
		defer cancel()
		k.s.settle(ctx, h, nil, func(h *held) error { return k.s.fail(ctx, h, cause, 0, true, endExpired) })
	case errors.Is(cause, errGone): // others have settled it
	default:
		k.s.leave(ctx, h)
	}
	return true
}

// settle ends an assignment that this process has begun, with what its agent has reported meanwhile, and what it has
// used by its answer, nil for no change. What cannot be settled now is begun again under the same id when its lease is
// due.
func (s *assignments) settle(ctx context.Context, h *held, usage map[string]int64, how func(h *held) error) {
	by := caller{}
	if usage != nil && checkUsage(usage) == nil {
		by = caller{h.agent, h.fence, usage}
	}
	fresh, err := s.load(ctx, h.id, by)
	if err == nil && fresh.open {
		err = how(fresh)
	}
	if err != nil && !errors.Is(err, jobs.ErrLeaseLost) && !errors.Is(err, ErrNoneSuch) {
		s.warn(ctx, "settle an assignment", err, "assignment", h.id)
	}
}
