package agent

import (
	"context"
	"fmt"
	"time"

	"muster/tasks/limit"
)

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
	l.rates = limit.NewTokenBucket(s.rdb, limit.BucketConfig{Namespace: s.cfg.Namespace + ":roles", PerKey: rates, Logger: s.log})
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
