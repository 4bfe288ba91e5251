// Package breaker lists and resets the circuit breakers of a fleet.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/jobs/agent"
	"muster/sites/polite"
	"muster/tasks"
	"muster/tasks/limit"
)

// ErrNotFound means that no open breaker matches a name.
var ErrNotFound = errors.New("no open breaker with this name")

// Service lists and resets the breakers of a fleet. The key of a breaker is site@host for a site, host:NAME for a host of the
// work queue and agent:ID for a push agent. Service is safe for concurrent use.
type Service struct {
	client *tasks.Client
	hosts  *limit.Breaker // also of sites
	agents *limit.Breaker
}

// New returns a service for the breakers of hosts and sites, and of agents.
func New(client *tasks.Client, hosts, agents *limit.Breaker) *Service {
	return &Service{client: client, hosts: hosts, agents: agents}
}

// Hosts returns the breaker of hosts and sites.
func (s *Service) Hosts() *limit.Breaker { return s.hosts }

// List returns the breakers that are not closed: hosts and sites first, then agents.
func (s *Service) List(ctx context.Context) ([]limit.BreakerState, error) {
	list, err := s.hosts.States(ctx)
	if err != nil {
		return nil, err
	}
	agents, err := s.agents.States(ctx)
	return append(list, agents...), err
}

// Reset closes breakers and clears their failures. A name is a key, or the site, host or ID in keys. Reset returns the keys of
// the closed breakers, or ErrNotFound before it closes any. Waiting pages and items are retried within two minutes.
func (s *Service) Reset(ctx context.Context, names ...string) (keys []string, err error) {
	list, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		found := find(list, name)
		if len(found) == 0 {
			return nil, fmt.Errorf("breaker %.200s: %w", name, ErrNotFound)
		}
		keys = append(keys, found...)
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	return keys, s.reset(ctx, keys)
}

// ResetAll closes all breakers and returns their keys.
func (s *Service) ResetAll(ctx context.Context) (keys []string, err error) {
	list, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range list {
		keys = append(keys, b.Key)
	}
	slices.Sort(keys)
	return keys, s.reset(ctx, keys)
}

// find returns the keys of the breakers that a name matches.
func find(list []limit.BreakerState, name string) []string {
	var keys []string
	for _, b := range list {
		site, host, isSite := strings.Cut(b.Key, "@")
		_, plain, _ := strings.Cut(b.Key, ":")
		if b.Key == name || isSite && (site == name || host == name) || !isSite && plain == name {
			keys = append(keys, b.Key)
		}
	}
	return keys
}

func (s *Service) reset(ctx context.Context, keys []string) error {
	var errs []error
	for _, key := range keys {
		breaker := s.hosts
		if agent.IsBreaker(key) {
			breaker = s.agents
		} else if err := polite.Forget(ctx, s.client.Redis(), key); err != nil {
			errs = append(errs, fmt.Errorf("reset the breaker of %s: %w", key, err))
			continue
		}
		errs = append(errs, breaker.Reset(ctx, key))
	}
	return errors.Join(errs...)
}
