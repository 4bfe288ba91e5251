package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	for _, r := range ui.Routes(ui.Config{Client: cfg.Client, Write: cfg.Write, Logger: cfg.Logger}) {
		served.handle(r.Pattern, r.Handler, r.Roles...)
	}
	s := shower{cfg}
	served.handle("GET /ui/style.css", http.HandlerFunc(style), access.Viewer)
	served.handle("GET /ui/{$}", pages(overviewPage, func(ctx context.Context, _ *http.Request) (any, error) { return s.overview(ctx) }), access.Viewer)
	served.handle("GET /ui/sites/{site}", pages(sitePage, func(ctx context.Context, r *http.Request) (any, error) {
		site, err := siteOf(ctx, cfg.Sites, r.PathValue("site"), 20)
		return siteView{Site: site, Now: time.Now()}, err
	}), access.Viewer)
	served.handle("GET /ui/jobs/{job}", pages(jobPage, func(ctx context.Context, r *http.Request) (any, error) { return s.job(ctx, r.PathValue("job")) }), access.Viewer)
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

// job returns a job of any kind. One that is not listed can still be a scrape.
func (s shower) job(ctx context.Context, id string) (jobView, error) {
	view := jobView{Now: time.Now()}
	if s.cfg.Jobs != nil {
		j, err := s.cfg.Jobs.Get(ctx, id)
		switch field := (*job.FieldError)(nil); {
		case err == nil:
			listed := viewOf(j)
			view.Job = &listed
			if view.Progress, err = s.cfg.Jobs.Progress(ctx, id); err != nil {
				return view, err
			}
		case !errors.Is(err, job.ErrNotFound) && !errors.As(err, &field): // an id that none can have
			return view, err
		}
	}
	if view.Job != nil && view.Job.Kind != job.KindScrape {
		return view, nil
	}
	scrape, err := s.cfg.Sites.Job(ctx, id)
	if err != nil && (view.Job == nil || !errors.Is(err, sites.ErrNoJob)) { // it is kept for a week
		return view, err
	}
	if err == nil {
		view.Scrape = &scrape
	}
	return view, nil
}

// What the pages show of jobs and agents.
type (
	// jobView is a job: Job, Scrape, or both.
	jobView struct {
		Job      *Job
		Progress job.Progress
		Scrape   *sites.Job
		Now      time.Time
	}
	agentState struct {
		State                 string
		Count, Held, Capacity int
		Names                 []string // the first, each with its roles
		More                  int      // others
	}
)

// ID is the id of the job.
func (v jobView) ID() string {
	if v.Job != nil {
		return v.Job.ID
	}
	return v.Scrape.ID
}

// Status is the status of the job. A scrape has more of them than other jobs.
func (v jobView) Status() string {
	if v.Scrape != nil {
		return v.Scrape.Status
	}
	return string(v.Job.Status)
}

// Over reports whether the job has ended.
func (v jobView) Over() bool {
	if v.Scrape != nil {
		return v.Scrape.Over()
	}
	return v.Job.Status.Terminal()
}

// Remaining is how long the rest will take, or "".
func (v jobView) Remaining() string {
	if v.Progress.ETASeconds == nil {
		return ""
	}
	return (time.Duration(*v.Progress.ETASeconds) * time.Second).String()
}

// Usage is what agents reported, in the order of the names.
func (v jobView) Usage() string {
	var parts []string
	for name, n := range v.Job.Usage {
		parts = append(parts, fmt.Sprintf("%s %d", name, n))
	}
	slices.SortFunc(parts, cmp.Compare)
	return strings.Join(parts, ", ")
}
