package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/sites/internal/store"
	"muster/sites/polite"
	"muster/sites/report"
	"muster/tasks/limit"
)

// State is how well the scrapes of a site work now: the health of the last job
// that has one, the failure of a later job, and what delays the job under way.
type State struct {
	Site        string              `json:"site"`
	BaseURL     string              `json:"base_url,omitempty"`    // of the definition, if the registry has it
	Description string              `json:"description,omitempty"` // likewise
	Health      report.HealthStatus `json:"health"`                // "" while no job of the last week has one
	Alerts      []string            `json:"alerts"`
	Paused      bool                `json:"paused"`
	Job         *Job                `json:"job,omitempty"`  // the newest
	Last        *report.Health      `json:"last,omitempty"` // of the last job that has one
}

// States returns the states of the sites of the registry and of those that have
// jobs in Redis, in the order of their names.
func (r *Reader) States(ctx context.Context) ([]State, error) {
	all, err := r.allSites(ctx)
	if err != nil {
		return nil, err
	}
	states := []State{}
	for _, name := range all.names {
		st, err := r.state(ctx, name, all)
		if err != nil {
			return nil, err
		}
		states = append(states, st)
	}
	return states, nil
}

// State returns the state of a site, and its health in its jobs of the last seven
// days, the newest first. The error is an *UnknownError when there is no such
// site.
func (r *Reader) State(ctx context.Context, name string) (State, []report.Health, error) {
	all, err := r.allSites(ctx)
	if err != nil {
		return State{}, nil, err
	}
	if !slices.Contains(all.names, name) {
		return State{}, nil, r.registry.Unknown(name)
	}
	st, err := r.state(ctx, name, all)
	if err != nil {
		return State{}, nil, err
	}
	health, err := store.HealthOf(ctx, r.client.Redis(), name)
	if err != nil {
		return State{}, nil, err
	}
	health = slices.DeleteFunc(health, func(h report.Health) bool { return time.Since(h.At) > report.Baseline })
	return st, health, nil
}

// Health returns the health of each site in its last job, in the order of their
// names. Sites without a job in the last seven days are left out.
func (r *Reader) Health(ctx context.Context) ([]report.Health, error) {
	return store.LastHealth(ctx, r.client.Redis())
}

// allSites is what the states of all sites have in common.
type allSites struct {
	names  []string                  // sorted
	newest map[string]string         // jobs by site
	last   map[string]*report.Health // by site
	paused []string
}

func (r *Reader) allSites(ctx context.Context) (*allSites, error) {
	newest, err := r.newest(ctx)
	if err != nil {
		return nil, err
	}
	health, err := r.Health(ctx)
	if err != nil {
		return nil, err
	}
	paused, err := r.PausedSites(ctx)
	if err != nil {
		return nil, err
	}
	all := &allSites{r.registry.Names(), newest, map[string]*report.Health{}, paused}
	for name := range newest {
		all.names = append(all.names, name)
	}
	for i := range health {
		all.last[health[i].Site] = &health[i]
		all.names = append(all.names, health[i].Site)
	}
	slices.Sort(all.names)
	all.names = slices.Compact(all.names)
	return all, nil
}

// maxNewest bounds the jobs in which newest looks for those of each site.
const maxNewest = 1000

// newest returns the id of the newest job of each site.
func (r *Reader) newest(ctx context.Context) (map[string]string, error) {
	rdb := r.client.Redis()
	ids, err := rdb.ZRevRange(ctx, store.JobsKey, 0, maxNewest-1).Result()
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	sites, err := r.siteNames.of(ctx, rdb, ids)
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

func (r *Reader) state(ctx context.Context, name string, all *allSites) (State, error) {
	st := State{Site: name, Alerts: []string{}, Paused: slices.Contains(all.paused, name), Last: all.last[name]}
	if def, err := r.registry.Definition(name); err == nil {
		st.BaseURL, st.Description = def.BaseURL, def.Description
	}
	if st.Last != nil {
		st.Health, st.Alerts = st.Last.Status, append(st.Alerts, st.Last.Alerts...)
	}
	newest := all.newest[name]
	if newest == "" {
		return st, nil
	}
	j, _, err := r.Listed(ctx, newest)
	if errors.Is(err, store.ErrNoJob) {
		return st, nil
	}
	if err != nil {
		return State{}, err
	}
	st.Job = &j
	open, err := r.breakerOpen(ctx, j)
	if err != nil {
		return State{}, err
	}
	st.addJob(open)
	return st, nil
}

// addJob adds the state of the newest job while it has no health, or if it failed.
// breakerOpen is whether the breaker of its site is open.
func (st *State) addJob(breakerOpen bool) {
	degrade := func(why string) {
		if st.Health != report.Critical {
			st.Health = report.Degraded
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
		degrade("records cannot be written: " + j.Trouble)
	case breakerOpen:
		degrade("the site does not answer well: its breaker is open, pages wait until it does")
	}
}

// breakerOpen reports whether the breaker keeps a job that is under way from its site.
func (r *Reader) breakerOpen(ctx context.Context, j Job) (bool, error) {
	if j.Over() {
		return false, nil
	}
	rdb := r.client.Redis()
	req, err := store.ReadRequest(ctx, rdb, j.ID)
	if errors.Is(err, store.ErrNoJob) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	def, err := req.Definition()
	if err != nil { // it is of another release, and the job will fail
		return false, nil
	}
	b := polite.NewSiteBreaker(rdb, siteKey(def), def.Retries.StallMax, time.UnixMilli(req.Began), limit.BreakerConfig{Logger: r.log})
	state, err := b.State(ctx)
	return state.State == "open", err
}

// siteNames remembers which site each job scrapes: that does not change, so it is
// read once. The zero value is ready to use, by many goroutines.
type siteNames struct {
	mu    sync.Mutex // guards known
	known map[string]string
}

// of returns the sites of jobs, by job. Jobs that do not exist are left out. It
// forgets all jobs that are not in the list.
func (n *siteNames) of(ctx context.Context, rdb redis.UniversalClient, jobs []string) (map[string]string, error) {
	n.mu.Lock()
	known := n.known
	n.mu.Unlock()
	sites := map[string]string{}
	var unknown []string
	for _, id := range jobs {
		if site, ok := known[id]; ok {
			sites[id] = site
		} else {
			unknown = append(unknown, id)
		}
	}
	for part := range slices.Chunk(unknown, 100) {
		got := make([]*redis.StringCmd, len(part))
		_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, id := range part {
				got[i] = p.Get(ctx, store.RequestKey(id))
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("read the sites of jobs: %w", err)
		}
		for i, id := range part {
			var req struct{ Site string }
			if data, err := got[i].Bytes(); err == nil && json.Unmarshal(data, &req) == nil {
				sites[id] = req.Site
			}
		}
	}
	n.mu.Lock()
	n.known = sites // the map does not change after this
	n.mu.Unlock()
	return sites, nil
}
