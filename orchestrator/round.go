package orchestrator

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
)

// Round is what one round has brought.
type Round struct {
	Proxies ProxyCounts `json:"proxies"`
	Sites   []Scraped   `json:"sites"`
	Seconds float64     `json:"seconds"`
	Redis   string      `json:"redis"` // the mode: external, child or embedded
}

// ProxyCounts are the numbers of a pool.
type ProxyCounts struct {
	Candidates int `json:"candidates"` // of the last refresh
	Alive      int `json:"alive"`      // of these
	Usable     int `json:"usable"`     // in the pool now: alive, and not transparent
}

// Once does one round over the sites of the settings; see Round.
func (o *Orchestrator) Once(ctx context.Context) (*Round, error) {
	names, err := o.SiteNames()
	if err != nil {
		return nil, err
	}
	return o.Round(ctx, names, ScrapeOptions{})
}

// Round scrapes sites, side by side unless sites.parallel is off. Before each
// it sees that there are enough proxies. A site that fails does not stop the
// others; the error joins theirs, and the round tells what became of each, in
// the order of names.
func (o *Orchestrator) Round(ctx context.Context, names []string, opts ScrapeOptions) (*Round, error) {
	began := time.Now()
	round := &Round{Sites: make([]Scraped, len(names)), Redis: string(o.redis.Mode())}
	errs := make([]error, len(names))
	var scrapes errgroup.Group
	if !o.cfg.Sites.Parallel {
		scrapes.SetLimit(1)
	}
	for i, name := range names {
		scrapes.Go(func() error {
			round.Sites[i], errs[i] = o.Scrape(ctx, name, opts)
			return nil
		})
	}
	_ = scrapes.Wait() // the errors are in errs
	round.Seconds = time.Since(began).Seconds()
	return round, errors.Join(append(errs, o.countProxies(context.WithoutCancel(ctx), &round.Proxies))...)
}

func (o *Orchestrator) countProxies(ctx context.Context, counts *ProxyCounts) error {
	status, err := o.Pool.Status(ctx)
	if err != nil {
		return err
	}
	counts.Candidates, counts.Alive = status.Candidates, status.Alive
	counts.Usable, err = o.Pool.Usable(ctx)
	return err
}
