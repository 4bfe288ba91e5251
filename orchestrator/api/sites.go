package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"muster/orchestrator/api/client"
	"muster/sites"
	"muster/sites/report"
	"muster/tasks"
)

// askTime is the time limit of a page or a response.
const askTime = 10 * time.Second

// Field is how often a field of a site's records was found.
type Field struct {
	Field   string   `json:"field"` // type.field
	Found   float64  `json:"found"` // share of the records
	Before  *float64 `json:"before,omitempty"`
	Drifted bool     `json:"drifted"` // mostly by a fall-back: the first selector is out of date
}

// Site is a site, its jobs of the last seven days that were judged, and its fields in the last of them.
type Site struct {
	sites.State
	Fields []Field         `json:"fields"`
	Runs   []report.Health `json:"runs"`
	Jobs   []sites.Job     `json:"jobs"`
}

type siteInput struct {
	Site  string `path:"site" maxLength:"100" doc:"name of the site" example:"quotes.toscrape.com"`
	Limit int    `query:"limit" default:"20" minimum:"1" maximum:"500" doc:"reports of jobs"`
}

type siteOutput struct {
	Body any `doc:"health, alerts, fields, the jobs of the last seven days (runs), and the newest reports (jobs)"`
}

// addSites adds the operations that read sites.
func addSites(s *server) {
	implement(s, client.ListSites, func(ctx context.Context, _ *client.None) (client.Page[sites.State], error) {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		states, err := s.cfg.Sites.States(ctx)
		for i := range states {
			states[i].Job = brief(states[i].Job)
		}
		return client.Page[sites.State]{Data: orEmpty(states)}, err
	})
	implement(s, client.GetHistory, func(ctx context.Context, in *client.HistoryFilter) (client.Page[sites.History], error) {
		list, err := s.cfg.Sites.History(ctx, in.Site, in.Key)
		return client.Page[sites.History]{Data: orEmpty(list)}, err
	})
	op := describe(s, http.MethodGet, "/v1/sites/{site}", "getSite", tagSites, "Get a site", http.StatusNotFound)
	route(s, op, 0, func(ctx context.Context, in *siteInput) (*siteOutput, error) {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		site, err := siteOf(ctx, s.cfg.Sites, in.Site, in.Limit)
		site.Job = brief(site.Job)
		return &siteOutput{site}, err
	})
}

// siteOf returns the state of a site with its latest n jobs.
func siteOf(ctx context.Context, s *sites.Service, name string, n int) (Site, error) {
	st, runs, err := s.State(ctx, name)
	if err != nil {
		return Site{}, err
	}
	site := Site{State: st, Runs: runs, Fields: []Field{}}
	if site.Jobs, err = s.Jobs(ctx, name, n); err != nil {
		return Site{}, err
	}
	if st.Last == nil {
		return site, nil
	}
	var drifted []string
	for _, j := range site.Jobs {
		if j.ID == st.Last.JobID && j.Summary != nil {
			drifted = j.Summary.Drifted()
		}
	}
	for field, found := range st.Last.Fields {
		f := Field{Field: field, Found: found, Drifted: slices.Contains(drifted, field)}
		if before, ok := st.Last.Before[field]; ok {
			f.Before = &before
		}
		site.Fields = append(site.Fields, f)
	}
	slices.SortFunc(site.Fields, func(a, b Field) int { return strings.Compare(a.Field, b.Field) })
	return site, nil
}

// brief leaves the report of a job to /jobs/{id}.
func brief(j *sites.Job) *sites.Job {
	if j == nil {
		return nil
	}
	short := *j
	short.Summary = nil
	return &short
}

type startedScrapeOutput struct {
	Location string `header:"Location" doc:"path of the scrape"`
	Body     client.StartedScrape
}

// addScrapes adds the operations on scrapes.
func addScrapes(s *server) {
	scrapes := s.cfg.Sites
	implementOutput(s, client.StartScrape, func(ctx context.Context, in *client.With[client.NewScrape]) (*startedScrapeOutput, error) {
		run, err := scrapes.Send(ctx, in.Body.Site, sites.ScrapeOptions{Limit: in.Body.Limit, Direct: in.Body.Direct, CSV: in.Body.CSV, Full: in.Body.Full})
		joined := errors.Is(err, tasks.ErrDuplicate)
		if err != nil && !joined {
			return nil, err
		}
		return &startedScrapeOutput{"/v1/scrapes/" + run.ID(), client.StartedScrape{JobID: run.ID(), Joined: joined}}, nil
	})
	implement(s, client.ListScrapes, func(ctx context.Context, in *client.ScrapeFilter) (client.Page[sites.Job], error) {
		return pageOf(scrapes.Jobs(ctx, in.Site, in.Limit))
	})
	implement(s, client.GetScrape, func(ctx context.Context, in *client.ScrapePath) (sites.Job, error) { return scrapes.Job(ctx, in.ID) })
	implement(s, client.CancelScrape, func(ctx context.Context, in *client.ScrapeChange) (out sites.Job, err error) {
		if err := scrapes.Cancel(ctx, in.ID); err != nil {
			return out, err
		}
		return scrapes.Job(ctx, in.ID)
	})
	implementOutput(s, client.ResumeScrape, func(ctx context.Context, in *client.ScrapeChange) (*startedScrapeOutput, error) {
		if err := scrapes.Resumable(ctx, in.ID); err != nil {
			return nil, err
		}
		run, err := scrapes.Resume(ctx, in.ID)
		if errors.Is(err, tasks.ErrDuplicate) {
			p := problem(http.StatusConflict, "scrape %s of the same site is running: wait for it, or cancel it", run.ID())
			p.Code = "scrape_running"
			return nil, p
		}
		if err != nil {
			return nil, err
		}
		return &startedScrapeOutput{"/v1/scrapes/" + run.ID(), client.StartedScrape{JobID: run.ID()}}, nil
	})
	change := func(do func(ctx context.Context, site string) error) func(context.Context, *client.SiteChange) error {
		return func(ctx context.Context, in *client.SiteChange) error {
			if err := scrapes.Site(ctx, in.Site); err != nil {
				return err
			}
			return do(ctx, in.Site)
		}
	}
	implementNone(s, client.PauseSite, change(scrapes.PauseSite))
	implementNone(s, client.ResumeSite, change(scrapes.ResumeSite))
}
