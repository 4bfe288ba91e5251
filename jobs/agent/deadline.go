package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/jobs"
	"muster/tasks/limit"
)

const (
	claimed  = 10 * time.Second // until another process may look after an assignment
	maxClaim = 100
)

// caretaker looks after assignments whose time has come.
type caretaker struct{ *Service }

// lookAfter takes the assignments whose lease or deadline has passed off their
// agents, and continues with those that another process has left.
func (s *caretaker) lookAfter(ctx context.Context) {
	every(ctx, max(min(time.Second, s.cfg.Tick/2), 10*time.Millisecond), func(ctx context.Context) {
		for ctx.Err() == nil {
			ids, err := s.claim(ctx, s.keys.due(), maxClaim, claimed)
			s.warn(ctx, "look after assignments", err)
			for _, id := range ids {
				s.warn(ctx, "look after an assignment", s.look(ctx, id), "assignment", id)
			}
			if len(ids) < maxClaim {
				break
			}
		}
		s.warn(ctx, "add usage to jobs", s.copyStale(ctx))
	})
}

// look decides what to do with an assignment that is due.
func (s *caretaker) look(ctx context.Context, id string) error {
	h, err := s.load(ctx, id, caller{})
	if errors.Is(err, ErrNoneSuch) || err == nil && !h.open {
		return s.rdb.ZRem(ctx, s.keys.due(), id).Err()
	}
	if errors.Is(err, errDamaged) {
		return errors.Join(err, s.drop(ctx, h))
	}
	if err != nil {
		return err
	}
	switch {
	case !h.now.Before(h.deadline):
		err = s.fail(ctx, h, errDeadline, 0, true, endExpired)
		s.keep.stop(id)
	case h.mode == modePull && !h.now.Before(h.until.Add(grace)):
		err = s.fail(ctx, h, fmt.Errorf("the agent gave no heartbeat for %v", h.lease.Round(10*time.Millisecond)), 0, true, endLost)
	case h.mode == modePull: // a heartbeat came meanwhile
		due := h.until.Add(grace)
		if h.deadline.Before(due) {
			due = h.deadline
		}
		return s.rdb.ZAddXX(ctx, s.keys.due(), redis.Z{Score: float64(due.UnixMilli()), Member: id}).Err()
	case !s.keep.has(id):
		err = s.adopt(ctx, h)
	}
	if errors.Is(err, jobs.ErrLeaseLost) {
		return nil
	}
	return err
}

// drop forgets an assignment that cannot be read, so that it takes no room of its agent.
func (s *caretaker) drop(ctx context.Context, h *held) error {
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, s.keys.assignment(h.id))
		p.ZRem(ctx, s.keys.held(h.agent), h.id)
		p.ZRem(ctx, s.keys.due(), h.id)
		return nil
	})
	return err
}

// adopt continues with an assignment that the process which began it has left: it pushes it again under the same id, or
// waits for its Go task.
func (s *caretaker) adopt(ctx context.Context, h *held) error {
	if !h.now.Before(h.until) {
		return s.fail(ctx, h, errors.New("the process that waited for the answer has ended"), 0, false, endMoved)
	}
	if !s.dispatch.began(h) {
		return nil // another process may have room
	}
	if err := s.beat(ctx, h, nil, ""); err != nil {
		s.dispatch.ended(h.mode, h.agent)
		return err
	}
	var permit limit.Permit
	if h.mode == modePush {
		p, ok, _, err := s.breaker.Allow(ctx, breakerKey(h.agent))
		if err != nil || !ok {
			s.dispatch.ended(h.mode, h.agent)
			return errors.Join(err, s.fail(ctx, h, errors.New("the agent fails again and again"), 0, false, endMoved))
		}
		permit = p
	}
	s.keep.begin(h, permit)
	return nil
}
