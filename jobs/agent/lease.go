package agent

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	maxWait  = 30 * time.Second
	maxPolls = 16              // of one agent at a time
	oneRound = 5 * time.Second // for the first look, also if the caller does not wait
)

// Lease waits for work of roles of the agent; none means all of its roles. It
// returns at once when there is work, with up to max assignments, at most 100
// and never more than the agent has capacity for. Without work it returns an
// empty list after wait, at most 30 s, and at once when Run ends. It needs Run
// in the same process. If ctx ends, what it got is released.
//
// It returns ErrNoAgent, ErrTooMany for more than 16 polls of an agent at a
// time, or a *job.FieldError.
func (s *Service) Lease(ctx context.Context, id string, roles []string, most int, wait time.Duration) ([]Assignment, error) {
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
	if most < 1 {
		return nil, bad("max", "give 1 or more")
	}
	poll := &taker{roles: roles, slots: &slots{min(most, maxLease)}, mode: modePull, done: make(chan struct{}), looked: make(chan struct{})}
	s.dispatch.fresh(roles)
	if !s.dispatch.join(id, t.Capacity, t.Held, t.idle, poll) {
		return nil, fmt.Errorf("agent %s: %d polls at a time: %w", id, maxPolls, ErrTooMany)
	}
	s.await(ctx, poll, min(max(wait, 0), maxWait))
	got := s.dispatch.leave(poll)
	if ctx.Err() != nil {
		s.releaseAll(ctx, got)
		return nil, context.Cause(ctx)
	}
	return got, nil
}

// await waits until a poll has work or its time is over.
func (s *Service) await(ctx context.Context, poll *taker, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-poll.done:
		return
	case <-ctx.Done():
		return
	case <-s.stopped:
		return
	case <-timer.C:
	}
	// A caller that does not wait gets the work that there is, too.
	timer.Reset(oneRound)
	select {
	case <-poll.done:
	case <-poll.looked:
	case <-ctx.Done():
	case <-s.stopped:
	case <-timer.C:
	}
}

// releaseAll releases assignments that did not reach their agent.
func (s *assignments) releaseAll(ctx context.Context, all []Assignment) {
	ctx, cancel := lasting(ctx)
	defer cancel()
	for _, a := range all {
		s.warn(ctx, "release an assignment that its agent did not get", s.release(ctx, given(a, modePull)), "assignment", a.ID)
	}
}
