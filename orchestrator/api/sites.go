package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/sites"
	"muster/sites/report"
)

// maxJobs is how many jobs one request can ask for.
const maxJobs = 500

// askTime bounds what a page or an answer may take.
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

// serveSites adds the pages of sites and their jobs to mux, and the same as JSON below /api/.
func serveSites(mux *http.ServeMux, cfg Config) {
	s := cfg.Sites
	mux.Handle("GET /{$}", pages(overviewPage, func(ctx context.Context, _ *http.Request) (any, error) {
		states, err := s.States(ctx)
		if err != nil {
			return nil, err
		}
		view := overview{Now: time.Now()}
		if cfg.Check != nil {
			report := cfg.Check(ctx)
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
		return view, nil
	}))
	mux.Handle("GET /sites/{site}", pages(sitePage, func(ctx context.Context, r *http.Request) (any, error) {
		site, err := siteOf(ctx, s, r.PathValue("site"), 20)
		return siteView{Site: site, Now: time.Now()}, err
	}))
	mux.Handle("GET /jobs/{job}", pages(jobPage, func(ctx context.Context, r *http.Request) (any, error) {
		j, err := s.Job(ctx, r.PathValue("job"))
		return jobView{Job: &j, Now: time.Now()}, err
	}))

	mux.Handle("GET /api/sites", answers(func(ctx context.Context, _ *http.Request) (any, error) {
		states, err := s.States(ctx)
		for i := range states {
			states[i].Job = brief(states[i].Job)
		}
		return map[string]any{"sites": states}, err
	}))
	mux.Handle("GET /api/sites/{site}", answers(func(ctx context.Context, r *http.Request) (any, error) {
		n, err := number(r, 20)
		if err != nil {
			return nil, err
		}
		site, err := siteOf(ctx, s, r.PathValue("site"), n)
		site.Job = brief(site.Job)
		return site, err
	}))
	mux.Handle("GET /api/jobs", answers(func(ctx context.Context, r *http.Request) (any, error) {
		n, err := number(r, 50)
		if err != nil {
			return nil, err
		}
		site := r.URL.Query().Get("site")
		if site != "" {
			if err := s.Site(ctx, site); err != nil {
				return nil, err
			}
		}
		jobs, err := s.Jobs(ctx, site, n)
		return map[string]any{"jobs": jobs}, err
	}))
	mux.Handle("GET /api/jobs/{job}", answers(func(ctx context.Context, r *http.Request) (any, error) {
		return s.Job(ctx, r.PathValue("job"))
	}))
	mux.Handle("/api/", answers(func(_ context.Context, r *http.Request) (any, error) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			return nil, badRequest{http.StatusMethodNotAllowed, "only GET; change things with muster jobs"}
		}
		return nil, badRequest{http.StatusNotFound, "no such thing; there are /api/sites, /api/sites/SITE, /api/jobs?site=SITE&limit=N and /api/jobs/JOB"}
	}))
}

// siteOf gathers what there is to know of a site, with its newest n jobs.
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

// brief leaves the report of a job to /api/jobs.
func brief(j *sites.Job) *sites.Job {
	if j == nil {
		return nil
	}
	short := *j
	short.Summary = nil
	return &short
}

// number is the limit that a request gives.
func number(r *http.Request, missing int) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return missing, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxJobs {
		return 0, badRequest{http.StatusBadRequest, fmt.Sprintf("limit=%.20q: must be a number from 1 to %d", text, maxJobs)}
	}
	return n, nil
}

// badRequest is an error of the client.
type badRequest struct {
	code int
	text string
}

func (b badRequest) Error() string { return b.text }

// codeOf is the status that an error is answered with.
func codeOf(err error) int {
	var bad badRequest
	switch {
	case errors.As(err, &bad):
		return bad.code
	case errors.As(err, new(*sites.UnknownError)), errors.Is(err, sites.ErrNoJob):
		return http.StatusNotFound
	}
	return http.StatusServiceUnavailable // Redis does not answer, or not as it should
}

// answers serves what ask returns as JSON; an error as {"error": "…"}.
func answers(ask func(context.Context, *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), askTime)
		defer cancel()
		code := http.StatusOK
		v, err := ask(ctx, r)
		if err != nil {
			code, v = codeOf(err), map[string]string{"error": err.Error()}
		}
		data, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			code, data = http.StatusInternalServerError, []byte(`{"error": "the answer cannot be written as JSON"}`)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		w.WriteHeader(code)
		_, _ = w.Write(append(data, '\n'))
	})
}
