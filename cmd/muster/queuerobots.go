package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"muster/orchestrator/artifact"
	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/tasks/limit"
	"muster/tasks/workqueue"
)

// hostRobots answers for the robots.txt of any host.
type hostRobots struct {
	agent     string
	pacer     *limit.Pacer
	transport http.RoundTripper
	cache     fetch.RobotsCache
}

// ask says whether u may be fetched. A host that is not to be asked right now
// is asked later, without an attempt of the item's.
func (h *hostRobots) ask(ctx context.Context, u *url.URL) (artifact.Permission, error) {
	host, err := limit.ParseHostKey(u.String())
	if err != nil {
		return artifact.Permission{}, fmt.Errorf("ask for robots.txt: %w", err)
	}
	key := artifact.HostKey + host
	client := fetch.NewClient(fetch.Config{
		Definition: &definition.Definition{
			UserAgent:  h.agent,
			Politeness: definition.Politeness{RetryAfterMax: 15 * time.Minute},
		},
		Transport: h.transport,
		Robots:    &h.cache,
		Pacer:     hostTurn{h.pacer, key},
	})
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	rules, err := client.Robots(ctx, u)
	if err != nil {
		if fe, ok := errors.AsType[*fetch.Error](err); ok && fe.After > 0 {
			if fe.Class == fetch.Throttled {
				return artifact.Permission{}, workqueue.NotNow(key, fe.After, err)
			}
			err = workqueue.HoldBack(key, fe.After, workqueue.RetryAfter(fe.After, err))
		}
		return artifact.Permission{}, err
	}
	path := u.EscapedPath()
	if u.RawQuery != "" {
		path += "?" + u.RawQuery
	}
	return artifact.Permission{Allowed: rules.Allowed(path), CrawlDelay: rules.CrawlDelay()}, nil
}

// hostTurn gives out the turns of one host.
type hostTurn struct {
	pacer *limit.Pacer
	key   string
}

// Take implements fetch.Pacer.
func (t hostTurn) Take(ctx context.Context, interval time.Duration) (time.Duration, error) {
	wait, ok, err := t.pacer.ReserveApart(ctx, t.key, interval, 0)
	if ok {
		wait = 0
	}
	return wait, err
}

// Hold implements fetch.Pacer.
func (t hostTurn) Hold(ctx context.Context, d time.Duration) error {
	return t.pacer.NotBefore(ctx, t.key, time.Now().Add(d))
}
