package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"muster/internal/catalog"
	"muster/internal/webui"
	"muster/sites"
	"muster/sites/report"
	"muster/tasks"
)

const (
	sitesURL    = prefix + "/sites"
	scrapesURL  = prefix + "/scrapes"
	siteJobs    = 20 // jobs on the page of a site
	sitesAtOnce = 40 // sites per page
	idleAtOnce  = 100
)

func siteURL(name string) string { return sitesURL + "/" + url.PathEscape(name) }

func scrapeURL(id string) string { return scrapesURL + "/" + url.PathEscape(id) }

// pace is the progress of a job.
type pace struct {
	Share  float64       // settled share of the known pages
	Settle int64         // fetched, skipped and failed pages
	Rate   float64       // mean settled pages per second since the start
	Left   time.Duration // estimated time left; -1 if unknown or terminated
}

// paceOf returns the progress of a job.
func paceOf(j *sites.Job) *pace {
	p := &pace{Settle: j.Pages.Done + j.Pages.Skipped + j.Pages.Error, Left: -1}
	if j.Pages.Total > 0 {
		p.Share = float64(p.Settle) / float64(j.Pages.Total)
	}
	took := time.Since(j.Began).Seconds()
	if j.Summary != nil {
		took = j.Summary.Seconds
	}
	if took > 0 && (j.Summary != nil || !j.Over()) {
		p.Rate = float64(p.Settle) / took
	}
	if p.Rate > 0 && j.Status == sites.JobRunning {
		p.Left = time.Duration(float64(j.Pages.Open()) / p.Rate * float64(time.Second))
	}
	return p
}

type sitesData struct {
	webui.Part
	Sites  []sites.State // sites with a job or a pause, worst first
	Idle   []sites.State
	Broken []*catalog.BrokenError
}

func (p *pages) listSites(ctx context.Context, r *http.Request) (webui.View, error) {
	all, err := p.Sites.States(ctx)
	if err != nil {
		return webui.View{}, err
	}
	d := sitesData{Broken: p.Sites.Registry().Broken()}
	for _, st := range all {
		if st.Job == nil && st.Last == nil && !st.Paused {
			d.Idle = append(d.Idle, st)
		} else {
			d.Sites = append(d.Sites, st)
		}
	}
	slices.SortStableFunc(d.Sites, func(a, b sites.State) int { return b.Health.Severity() - a.Health.Severity() })
	if d.Part, err = webui.NewPart(r.URL.Query(), sitesAtOnce, len(d.Sites)); err == nil {
		d.Sites = d.Sites[d.From:d.To]
	}
	return webui.View{Name: "Sites", Data: d}, err
}

type siteData struct {
	sites.State
	Fields []fieldRow
	Jobs   []sites.Job
}

// fieldRow has the coverage of a field in the last jobs.
type fieldRow struct {
	Field   string // type.field
	Line    webui.Line
	Found   float64  // in the last job
	Before  *float64 // mean of the earlier jobs; may be nil
	Drifted bool     // mostly from a fallback: the first selector is outdated
}

func (p *pages) oneSite(ctx context.Context, r *http.Request) (webui.View, error) {
	name := r.PathValue("site")
	st, runs, err := p.Sites.State(ctx, name)
	if err != nil {
		return webui.View{}, err
	}
	jobs, err := p.Sites.Jobs(ctx, name, siteJobs)
	return webui.View{Name: name, Data: siteData{st, fieldRows(runs[:min(len(runs), siteJobs)], jobs), jobs}}, err
}

// fieldRows returns the fields of the last jobs of a site, lowest coverage first. runs begins with the newest job.
func fieldRows(runs []report.Health, jobs []sites.Job) (rows []fieldRow) {
	if len(runs) == 0 {
		return nil
	}
	last := runs[0]
	var drifted []string
	for i := range jobs {
		if jobs[i].ID == last.JobID && jobs[i].Summary != nil {
			drifted = jobs[i].Summary.Drifted()
		}
	}
	for field, found := range last.Fields {
		row := fieldRow{Field: field, Line: webui.Line{Top: 1}, Found: found, Drifted: slices.Contains(drifted, field)}
		if before, ok := last.Before[field]; ok {
			row.Before = &before
		}
		for _, run := range slices.Backward(runs) {
			if share, ok := run.Fields[field]; ok {
				row.Line.Values = append(row.Line.Values, share)
			}
		}
		row.Line.Title = fmt.Sprintf("%s in %d jobs: %.0f %% of the records at first, %.0f %% now", line(60, field), len(row.Line.Values), 100*row.Line.Values[0], 100*found)
		rows = append(rows, row)
	}
	drift := map[bool]int{true: -1}
	slices.SortFunc(rows, func(a, b fieldRow) int {
		return cmp.Or(drift[a.Drifted]-drift[b.Drifted], cmp.Compare(a.Found, b.Found), cmp.Compare(a.Field, b.Field))
	})
	return rows
}

// siteActions returns the actions on sites and scrapes by path.
func (p *pages) siteActions() map[string]webui.Action {
	site := func(q webui.Question, do func(ctx context.Context, site string, f webui.Form) (webui.Result, error)) webui.Action {
		return func(ctx context.Context, r *http.Request) (webui.Question, error) {
			name, q := r.PathValue("site"), q
			q.Title, q.Back = q.Title+" "+line(60, name), siteURL(name)
			q.Do = func(ctx context.Context, f webui.Form) (webui.Result, error) {
				done, err := do(ctx, name, f)
				return done, p.refused(ctx, err)
			}
			return q, p.Sites.Site(ctx, name)
		}
	}
	scrape := func(q webui.Question, do func(ctx context.Context, id string) (webui.Result, error)) webui.Action {
		return func(ctx context.Context, r *http.Request) (webui.Question, error) {
			id, q := r.PathValue("job"), q
			q.Title, q.Back = q.Title+" "+id, scrapeURL(id)
			q.Do = func(ctx context.Context, _ webui.Form) (webui.Result, error) {
				done, err := do(ctx, id)
				return done, p.refused(ctx, err)
			}
			_, err := p.Sites.Job(ctx, id)
			return q, err
		}
	}
	return map[string]webui.Action{
		"/sites/{site}/run": site(webui.Question{
			Title: "Scrape", Button: "Scrape it now", Text: "Starts a scrape of the site. If one is running, it is shown instead.",
			Fields: []webui.Field{
				{Name: "limit", Type: "number", Label: "At most so many records, 0 for all", Value: "0", Max: 1_000_000_000},
				{Name: "direct", Type: "checkbox", Label: "Use no proxies", Hint: "The site sees the address of the worker."},
			},
		}, func(ctx context.Context, site string, f webui.Form) (webui.Result, error) {
			run, err := p.Sites.Send(ctx, site, sites.ScrapeOptions{Limit: f.Int("limit"), Direct: f["direct"] != ""})
			if err != nil && !errors.Is(err, tasks.ErrDuplicate) {
				return webui.Result{}, err
			}
			return webui.Result{To: scrapeURL(run.ID())}, nil
		}),
		"/sites/{site}/pause": site(webui.Question{
			Title: "Pause", Button: "Pause the site", Text: "No more pages of the site are fetched until it is resumed, also by scrapes that begin meanwhile. Pages in flight are completed.",
		}, func(ctx context.Context, site string, _ webui.Form) (webui.Result, error) {
			return webui.Result{}, p.Sites.PauseSite(ctx, site)
		}),
		"/sites/{site}/resume": site(webui.Question{Title: "Resume", Button: "Resume the site", Text: "Pages of the site are fetched again."},
			func(ctx context.Context, site string, _ webui.Form) (webui.Result, error) {
				return webui.Result{}, p.Sites.ResumeSite(ctx, site)
			}),
		"/scrapes/{job}/cancel": scrape(webui.Question{
			Title: "Cancel", Button: "Cancel the scrape", Danger: true, Text: "Stops fetching pages and writes the records of the fetched pages. A retry continues from there.",
		}, func(ctx context.Context, id string) (webui.Result, error) {
			return webui.Result{}, p.Sites.Cancel(ctx, id)
		}),
		"/scrapes/{job}/retry": scrape(webui.Question{
			Title: "Retry the failed pages of", Button: "Retry them", Text: "A new job fetches the failed and the remaining pages. Records are added to the same files.",
		}, p.retryScrape),
	}
}

func (p *pages) retryScrape(ctx context.Context, id string) (webui.Result, error) {
	if err := p.Sites.Resumable(ctx, id); err != nil {
		return webui.Result{}, err
	}
	run, err := p.Sites.Resume(ctx, id)
	if errors.Is(err, tasks.ErrDuplicate) {
		err = webui.Invalid("Job %s of this site is running. Wait until it ends, or cancel it.", run.ID())
	}
	if err != nil {
		return webui.Result{}, err
	}
	return webui.Result{To: scrapeURL(run.ID())}, nil
}
