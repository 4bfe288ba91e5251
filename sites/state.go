package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks/limit"
)

// State is how a site does now: by the last job that was judged, what became of a later one, and what holds up the one
// that is under way.
type State struct {
	Site        string              `json:"site"`
	BaseURL     string              `json:"base_url,omitempty"`    // of the definition, if it is here
	Description string              `json:"description,omitempty"` // likewise
	Health      report.HealthStatus `json:"health"`                // "" while no job of the last week tells
	Alerts      []string            `json:"alerts"`
	Paused      bool                `json:"paused"`
	Job         *Job                `json:"job,omitempty"`  // the newest
	Last        *report.Health      `json:"last,omitempty"` // of the last job that was judged
}

// maxLooked bounds the jobs among which the newest of each site are looked for.
const maxLooked = 1000

// survey is what is known of all sites at once.
type survey struct {
	names  []string                  // sorted
	newest map[string]string         // jobs by site
	last   map[string]*report.Health // by site
	paused []string
}

func (s *Service) survey(ctx context.Context) (*survey, error) {
	newest, err := s.newest(ctx)
	if err != nil {
		return nil, err
	}
	judged, err := s.Health(ctx)
	if err != nil {
		return nil, err
	}
	paused, err := s.PausedSites(ctx)
	if err != nil {
		return nil, err
	}
	k := &survey{s.cfg.Registry.Names(), newest, map[string]*report.Health{}, paused}
	for name := range newest {
		k.names = append(k.names, name)
	}
	for i := range judged {
		k.last[judged[i].Site] = &judged[i]
		k.names = append(k.names, judged[i].Site)
	}
	slices.Sort(k.names)
	k.names = slices.Compact(k.names)
	return k, nil
}

// States tells how each site does, by name: those of the registry, and those that Redis knows jobs of.
func (s *Service) States(ctx context.Context) ([]State, error) {
	k, err := s.survey(ctx)
	if err != nil {
		return nil, err
	}
	states := []State{}
	for _, name := range k.names {
		st, err := s.state(ctx, name, k)
		if err != nil {
			return nil, err
		}
		states = append(states, st)
	}
	return states, nil
}

// State tells how a site does, and how it did in its jobs of the last seven days, the newest first. Its error is an
// *UnknownError when there is no such site.
func (s *Service) State(ctx context.Context, name string) (State, []report.Health, error) {
	k, err := s.survey(ctx)
	if err != nil {
		return State{}, nil, err
	}
	if !slices.Contains(k.names, name) {
		return State{}, nil, s.cfg.Registry.Unknown(name)
	}
	st, err := s.state(ctx, name, k)
	if err != nil {
		return State{}, nil, err
	}
	runs, err := store.HealthOf(ctx, s.cfg.Client.Redis(), name)
	if err != nil {
		return State{}, nil, err
	}
	runs = slices.DeleteFunc(runs, func(h report.Health) bool { return time.Since(h.At) > report.Baseline })
	return st, runs, nil
}

// state judges a site by its newest job, if any, and the last that was judged, if any.
func (s *Service) state(ctx context.Context, name string, k *survey) (State, error) {
	newest, last := k.newest[name], k.last[name]
	st := State{Site: name, Alerts: []string{}, Paused: slices.Contains(k.paused, name), Last: last}
	if def, err := s.cfg.Registry.Definition(name); err == nil {
		st.BaseURL, st.Description = def.BaseURL, def.Description
	}
	if last != nil {
		st.Health, st.Alerts = last.Status, append(st.Alerts, last.Alerts...)
	}
	if newest == "" {
		return st, nil
	}
	j, err := s.Job(ctx, newest)
	if errors.Is(err, store.ErrNoJob) {
		return st, nil
	}
	if err != nil {
		return State{}, err
	}
	st.Job = &j
	down, err := s.down(ctx, j)
	if err != nil {
		return State{}, err
	}
	st.heed(down)
	return st, nil
}

// heed adds what the newest job tells before it is judged, or when it never is; down is whether its breaker is open.
func (st *State) heed(down bool) {
	worse := func(to report.HealthStatus, why string) {
		if st.Health != report.Critical {
			st.Health = to
		}
		st.Alerts = append([]string{why}, st.Alerts...)
	}
	j := st.Job
	switch {
	case j.Status == JobFailed:
		st.Health = report.Critical
		st.Alerts = []string{"the last job failed: " + j.Error}
	case j.Over():
	case j.Status == JobBlocked:
		worse(report.Degraded, "records cannot be written: "+j.Trouble)
	case down:
		worse(report.Degraded, "the site does not answer well: its breaker is open, pages wait until it does")
	}
}

// down tells whether the breaker keeps a job that is under way from its site.
func (s *Service) down(ctx context.Context, j Job) (bool, error) {
	if j.Over() {
		return false, nil
	}
	req, err := store.ReadRequest(ctx, s.cfg.Client.Redis(), j.ID)
	if errors.Is(err, store.ErrNoJob) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	def, err := req.Definition()
	if err != nil { // of another release: the job will tell
		return false, nil
	}
	state, err := newBreaker(s.cfg.Client.Redis(), turnName(def), def.Retries.StallMax, time.UnixMilli(req.Began), limit.BreakerConfig{Logger: s.cfg.Logger}).state(ctx)
	return state == "open", err
}

// newest is the id of the newest job of each site.
func (s *Service) newest(ctx context.Context) (map[string]string, error) {
	rdb := s.cfg.Client.Redis()
	ids, err := rdb.ZRevRange(ctx, store.JobsKey, 0, maxLooked-1).Result()
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	sites, err := s.sitesOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	newest := map[string]string{}
	for _, id := range ids {
		if site := sites[id]; site != "" && newest[site] == "" {
			newest[site] = id
		}
	}
	return newest, nil
}

// sitesOf is the site of each job. Those that are not known any more are left out. What a job scrapes does not change, so
// it is asked for once.
func (s *Service) sitesOf(ctx context.Context, ids []string) (map[string]string, error) {
	known := map[string]string{}
	var ask []string
	s.mu.Lock()
	for _, id := range ids {
		if site, ok := s.siteOf[id]; ok {
			known[id] = site
		} else {
			ask = append(ask, id)
		}
	}
	s.mu.Unlock()
	for part := range slices.Chunk(ask, 100) {
		got := make([]*redis.StringCmd, len(part))
		_, err := s.cfg.Client.Redis().Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, id := range part {
				got[i] = p.Get(ctx, store.RequestKey(id))
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("read what jobs scrape: %w", err)
		}
		for i, id := range part {
			var req struct{ Site string }
			if data, err := got[i].Bytes(); err == nil && json.Unmarshal(data, &req) == nil {
				known[id] = req.Site
			}
		}
	}
	s.mu.Lock()
	s.siteOf = known // and no more: those of jobs that are gone are forgotten
	s.mu.Unlock()
	return known, nil
}

// Health lists how well the last job of each site worked, by name. Sites
// without one in the last seven days are left out.
func (s *Service) Health(ctx context.Context) ([]report.Health, error) {
	return store.LastHealth(ctx, s.cfg.Client.Redis())
}
