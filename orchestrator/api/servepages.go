package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"muster/orchestrator/access"
	"muster/orchestrator/agent"
	"muster/orchestrator/job"
	"muster/orchestrator/ui"
	"muster/sites"
)

const (
	newestJobs  = 20 // on the overview
	shownAgents = 20 // of one state, by name
)

// shower shows jobs, agents and sites as pages.
type shower struct{ cfg Config }

// servePages adds the pages, below /ui/.
func servePages(served *routes, cfg Config) {
	shown := ui.Config{
		Client: cfg.Client, Jobs: cfg.Jobs, Agents: cfg.Agents, Pipelines: cfg.Pipelines, Documents: cfg.Documents, Events: cfg.Events,
		Reports: cfg.Reports != nil, Scrapes: cfg.Sites, Write: cfg.Write, Logger: cfg.Logger,
	}
	for _, r := range ui.Routes(shown) {
		served.handlePage(r)
	}
	s := shower{cfg}
	served.handle("GET /ui/style.css", http.HandlerFunc(style), access.Viewer)
	served.handle("GET /ui/{$}", pages(overviewPage, func(ctx context.Context, _ *http.Request) (any, error) { return s.overview(ctx) }), access.Viewer)
	served.handle("GET /ui/sites/{site}", pages(sitePage, func(ctx context.Context, r *http.Request) (any, error) {
		site, err := siteOf(ctx, cfg.Sites, r.PathValue("site"), 20)
		return siteView{Site: site, Now: time.Now()}, err
	}), access.Viewer)
}

func (s shower) overview(ctx context.Context) (overview, error) {
	states, err := s.cfg.Sites.States(ctx)
	if err != nil {
		return overview{}, err
	}
	view := overview{Now: time.Now()}
	if s.cfg.Check != nil {
		report := s.cfg.Check(ctx)
		view.Checks = &report
	}
	for _, st := range states {
		if st.Job == nil && st.Last == nil && !st.Paused {
			view.Idle = append(view.Idle, st)
			continue
		}
		view.Sites = append(view.Sites, st)
	}
	slices.SortStableFunc(view.Sites, func(a, b sites.State) int { return b.Health.Severity() - a.Health.Severity() })
	if s.cfg.Jobs != nil {
		page, err := s.cfg.Jobs.List(ctx, job.Filter{Limit: newestJobs})
		if err != nil {
			return overview{}, err
		}
		for _, j := range page.Jobs {
			view.Jobs = append(view.Jobs, viewOf(j))
		}
	}
	if s.cfg.Agents != nil {
		list, err := s.cfg.Agents.List(ctx)
		if err != nil {
			return overview{}, err
		}
		view.Agents = agentsByState(list)
	}
	return view, nil
}

// agentsByState counts agents by state, and leaves out the states without agents.
func agentsByState(list []agent.Agent) []agentState {
	var all []agentState
	for _, state := range agent.States {
		of := agentState{State: state}
		for _, a := range list {
			if a.State != state {
				continue
			}
			of.Count++
			of.Held += a.Held
			of.Capacity += a.Capacity
			if of.Count <= shownAgents {
				of.Names = append(of.Names, a.Name+" ("+strings.Join(a.Roles, ", ")+")")
			}
		}
		if of.More = of.Count - len(of.Names); of.Count > 0 {
			all = append(all, of)
		}
	}
	return all
}

// What the pages show of jobs and agents.
type (
	agentState struct {
		State                 string
		Count, Held, Capacity int
		Names                 []string // the first, each with its roles
		More                  int      // others
	}
)
