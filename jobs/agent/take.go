package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"muster/jobs"
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
		n, next, err := s.reserveStarts(ctx, role, n)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			s.waiters.noteNoWork(role, next)
			continue
		}
		work, next, err := s.cfg.Jobs.Take(ctx, role, w.agent, n)
		s.refund(ctx, role, n-len(work))
		if err != nil && len(work) == 0 {
			return nil, fmt.Errorf("take work of %s: %w", role, err)
		}
		if len(work) == 0 {
			s.waiters.noteNoWork(role, next)
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

var _ Jobs = (*jobs.Service)(nil)
