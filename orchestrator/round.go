package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/orchestrator/refreshwait"
	"muster/sites/report"
)

// Round is the result of one round.
type Round struct {
	Proxies ProxyCounts `json:"proxies"`
	Sites   []Scraped   `json:"sites"`
	Seconds float64     `json:"seconds"`
	Redis   string      `json:"redis"` // the mode: external, child or embedded
}

// Lost joins the errors of Scraped.Lost for all sites.
func (r *Round) Lost(limit report.HealthStatus) error {
	var errs []error
	for i := range r.Sites {
		errs = append(errs, r.Sites[i].Lost(limit))
	}
	return errors.Join(errs...)
}

// RoundAll runs one round over all configured sites; see Round.
func (s *Scraper) RoundAll(ctx context.Context) (*Round, error) {
	names, err := s.Names()
	if err != nil {
		return nil, err
	}
	return s.Round(ctx, names, ScrapeOptions{})
}

// Round scrapes sites, concurrently unless sites.parallel is off. It ensures that there are enough proxies before each scrape.
// The job of a site waits for the jobs of its dependencies in the round and fails unless they complete. A failed site does
// not stop the others: Round returns the results of all sites and the joined errors.
func (s *Scraper) Round(ctx context.Context, names []string, opts ScrapeOptions) (*Round, error) {
	start := time.Now()
	order, err := s.order(names)
	if err != nil {
		return nil, err
	}
	round := &Round{Sites: make([]Scraped, len(order)), Redis: s.redisMode}
	errs := make([]error, len(order))
	jobs := make([]string, len(order))        // job IDs by site; "" if the scrape was not sent
	sent := make([]chan struct{}, len(order)) // closed when the scrape was sent or has failed
	for i := range sent {
		sent[i] = make(chan struct{})
	}
	var scrapes errgroup.Group
	if !s.system.cfg().Sites.Parallel {
		scrapes.SetLimit(1)
	}
	for i, name := range order {
		scrapes.Go(func() error {
			known := sync.OnceFunc(func() { close(sent[i]) })
			defer known()
			after := map[string]string{}
			for before := range i { // dependencies precede their dependents
				if !s.dependsOn(name, order[before]) {
					continue
				}
				<-sent[before]
				if after[order[before]] = jobs[before]; jobs[before] == "" {
					why := fmt.Errorf("not started: it depends on %s, whose scrape was not started", order[before])
					round.Sites[i] = Scraped{Site: name, Status: string(refreshwait.Failed), Files: []string{}, Error: why.Error()}
					errs[i] = fmt.Errorf("scrape %s: %w", name, why)
					return nil
				}
			}
			round.Sites[i], errs[i] = s.scrapeAfter(ctx, name, opts, after, func(id string) { jobs[i] = id; known() })
			return nil
		})
	}
	_ = scrapes.Wait() // the errors are in errs
	round.Seconds = time.Since(start).Seconds()
	return round, errors.Join(append(errs, s.proxies.count(context.WithoutCancel(ctx), &round.Proxies))...)
}

func (s *Scraper) dependsOn(name, other string) bool {
	def, err := s.system.Sites.Registry().Definition(name)
	return err == nil && slices.Contains(def.DependsOn, other)
}
