package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/internal/limit"
	"muster/jobs/agent"
	"muster/orchestrator/api/client"
	"muster/sites/polite"
)

// Breakers are the circuit breakers of a fleet. The key of a breaker is site@host for a site, host:NAME for a host of the work
// queue and agent:ID for a push agent.
type Breakers struct {
	Hosts  *limit.Breaker // also of sites
	Agents *limit.Breaker
}

var errNoBreaker = errors.New("no open breaker with this name")

// addBreakers adds the operations on circuit breakers.
func addBreakers(s *server) {
	breakers := s.cfg.Breakers
	list := func(ctx context.Context) ([]limit.BreakerState, error) {
		list, err := breakers.Hosts.States(ctx)
		if err != nil {
			return nil, err
		}
		agents, err := breakers.Agents.States(ctx)
		return append(list, agents...), err
	}
	implement(s, client.ListBreakers, func(ctx context.Context, _ *client.None) (client.Page[limit.BreakerState], error) {
		return pageOf(list(ctx))
	})
	implement(s, client.ResetBreakers, func(ctx context.Context, in *client.With[client.BreakerReset]) (out client.Page[string], err error) {
		if in.Body.All == (len(in.Body.Names) > 0) {
			return out, badField("body.names", "give names, or all: true")
		}
		open, err := list(ctx)
		if err != nil {
			return out, err
		}
		var keys []string
		if in.Body.All {
			for _, b := range open {
				keys = append(keys, b.Key)
			}
		}
		for _, name := range in.Body.Names {
			found := keysOf(open, name)
			if len(found) == 0 {
				return out, fmt.Errorf("breaker %.200s: %w", name, errNoBreaker)
			}
			keys = append(keys, found...)
		}
		slices.Sort(keys)
		keys = slices.Compact(keys)
		var errs []error
		for _, key := range keys {
			breaker := breakers.Hosts
			if agent.IsBreaker(key) {
				breaker = breakers.Agents
			} else if err := polite.Forget(ctx, s.cfg.Client.Redis(), key); err != nil {
				errs = append(errs, fmt.Errorf("reset the breaker of %s: %w", key, err))
				continue
			}
			errs = append(errs, breaker.Reset(ctx, key))
		}
		return pageOf(keys, errors.Join(errs...))
	})
}

// keysOf returns the keys of the breakers that a name matches: a key, or the site, host or ID in it.
func keysOf(list []limit.BreakerState, name string) []string {
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
