package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"muster/jobs/agent"
	"muster/sites/polite"
	"muster/tasks"
	"muster/tasks/limit"
)

// Breakers are the circuit breakers of the fleet. Their keys say what they are
// of: site@host of a site, host:NAME of a host of the work queue, agent:ID of an
// agent with a URL.
type Breakers struct {
	client *tasks.Client
	hosts  *limit.Breaker // of sites, too
	agents *agent.Service
}

// List returns the breakers that are not closed, those of agents at the end.
func (b *Breakers) List(ctx context.Context) ([]limit.BreakerState, error) {
	list, err := b.hosts.States(ctx)
	if err != nil {
		return nil, err
	}
	agents, err := b.agents.Breaker().States(ctx)
	return append(list, agents...), err
}

// Find returns the keys of the breakers in a list that name means: one of that
// key, or those of a site, a host or an agent of that name.
func (b *Breakers) Find(list []limit.BreakerState, name string) []string {
	var keys []string
	for _, s := range list {
		site, host, isSite := strings.Cut(s.Key, "@")
		_, plain, _ := strings.Cut(s.Key, ":")
		if s.Key == name || isSite && (site == name || host == name) || !isSite && plain == name {
			keys = append(keys, s.Key)
		}
	}
	return keys
}

// Reset closes breakers and forgets the failures that opened them. Pages and
// items that wait are tried when their wait ends, within two minutes.
func (b *Breakers) Reset(ctx context.Context, keys ...string) error {
	var errs []error
	for _, key := range keys {
		breaker := b.hosts
		if agent.IsBreaker(key) {
			breaker = b.agents.Breaker()
		} else if err := polite.Forget(ctx, b.client.Redis(), key); err != nil {
			errs = append(errs, fmt.Errorf("reset the breaker of %s: %w", key, err))
			continue
		}
		errs = append(errs, breaker.Reset(ctx, key))
	}
	return errors.Join(errs...)
}
