package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"muster/orchestrator/api/client"
	"muster/sites"
	"muster/sites/report"
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
