package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/clip"
)

const (
	connectionRefused = "connection refused"
	maxChecks         = 32 // health checks of this process at a time
	maxHealthAnswer   = 64 << 10
)

// checkHealth checks the agents with a URL whose time has come. Processes share
// the checks.
func (s *Service) checkHealth(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	free := make(chan struct{}, maxChecks)
	hold := 2*s.cfg.HealthTimeout + time.Second
	every(ctx, min(time.Second, max(s.cfg.HealthEvery/4, 10*time.Millisecond)), func(ctx context.Context) {
		n := maxChecks - len(free)
		if n == 0 {
			return
		}
		ids, err := s.claim(ctx, s.keys.checks(), n, hold)
		s.warn(ctx, "claim health checks", err)
		for _, id := range ids {
			free <- struct{}{}
			wg.Go(func() {
				defer func() { <-free }()
				s.warn(ctx, "check the health of an agent", s.check(ctx, id), "agent", id)
			})
		}
	})
}

// claim claims members of a sorted set whose time has come.
func (s *Service) claim(ctx context.Context, key string, n int, hold time.Duration) ([]string, error) {
	return scripts["claim"].Run(ctx, s.rdb, []string{key}, n, hold.Milliseconds()).StringSlice()
}

// checkSoon lets the next process that looks check an agent.
func (s *Service) checkSoon(ctx context.Context, id string) {
	now := redis.Z{Score: 0, Member: id}
	s.warn(ctx, "plan a health check", s.rdb.ZAddArgs(ctx, s.keys.checks(), redis.ZAddArgs{XX: true, LT: true, Members: []redis.Z{now}}).Err())
}

// check asks an agent how it is, and stores the result. The work of an agent that is gone goes to others.
func (s *Service) check(ctx context.Context, id string) error {
	rec, err := s.readRecord(ctx, id)
	if errors.Is(err, ErrNoAgent) {
		return errors.Join(err, s.rdb.ZRem(ctx, s.keys.checks(), id).Err())
	}
	if err != nil || rec.URL == "" {
		return err
	}
	var vital vital
	var message string
	switch err := s.checkPush(ctx, id, rec); {
	case errors.Is(err, errNoPush):
		message = err.Error()
	case err != nil:
		return err
	default:
		vital, message = s.ask(ctx, rec.URL)
	}
	if ctx.Err() != nil {
		return nil // the agent is not the cause
	}
	k, every := s.keys, s.policy.Load().healthEvery
	v, err := scripts["health"].Run(ctx, s.rdb,
		[]string{k.agents(), k.seen(), k.checks(), k.health(), k.numbers(id), k.version()},
		id, message, every.Milliseconds(), max(s.cfg.HealthMost, every).Milliseconds(), vital.Activity, vital.Job).Int64Slice()
	if err != nil {
		return fmt.Errorf("store the health of agent %s: %w", id, err)
	}
	if v[0] == 0 {
		return nil // it was removed meanwhile
	}
	failedBefore, silent := v[1] > 0, time.Duration(v[3])*time.Millisecond
	if message == "" {
		if failedBefore {
			s.log.InfoContext(ctx, "an agent is back", "agent", id)
			return s.breaker.Reset(ctx, breakerKey(id))
		}
		return nil
	}
	if !failedBefore {
		s.log.WarnContext(ctx, "the health check of an agent failed", "agent", id, "err", message)
	}
	if permit, ok, _, err := s.breaker.Allow(ctx, breakerKey(id)); err == nil && ok {
		s.warn(ctx, "report to the breaker of an agent", permit.Failure(ctx, message))
	}
	if message == connectionRefused || silent > missed*s.cfg.Heartbeat {
		return s.abandon(ctx, id, fmt.Errorf("agent %s: %s", rec.Name, message), true)
	}
	return nil
}

// vital is the body of a response to a health check.
type vital struct{ Activity, Job string }

// ask sends a health check. It returns "" or the error.
func (s *Service) ask(ctx context.Context, address string) (vital, string) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.HealthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/health", nil)
	if err != nil {
		return vital{}, explain(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return vital{}, explain(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxHealthAnswer))
	if err != nil {
		return vital{}, explain(err)
	}
	if resp.StatusCode != http.StatusOK {
		return vital{}, fmt.Sprintf("HTTP %d", resp.StatusCode)
	}
	var body map[string]any
	if json.Unmarshal(raw, &body) != nil {
		return vital{}, "" // only the status is required
	}
	text := func(name string) string {
		if body[name] == nil {
			return ""
		}
		return clip.Clean(fmt.Sprint(body[name]), 200)
	}
	return vital{text("last_activity"), text("current_job_id")}, ""
}
