package ui

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/webui"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/jobs/document"
)

const (
	jobsAt      = prefix + "/jobs"
	agentsAt    = prefix + "/agents"
	pipelinesAt = prefix + "/pipelines"
)

// jobPages show jobs, items and pipelines.
type jobPages struct{ Config }

// jobs adds the pages of jobs, agents and pipelines.
func (p *pages) jobs() {
	if p.cfg.Jobs == nil {
		return
	}
	show := jobPages{p.cfg}
	p.page("/jobs", "jobs", show.listJobs)
	p.page("/jobs/{job}", "job", show.oneJob)
	p.page("/jobs/{job}/items", "items", show.items)
	p.page("/jobs/{job}/item", "item", show.item)
	for path, a := range (jobChanges{p.cfg}).all() {
		p.action(path, a)
	}
	if p.cfg.Agents != nil {
		p.agents()
	}
	if p.cfg.Pipelines != nil {
		p.page("/pipelines", "pipelines", func(context.Context, *http.Request) (webui.View, error) {
			return webui.View{Name: "Pipelines", At: pipelinesAt, Data: p.cfg.Pipelines.List()}, nil
		})
	}
}

// explainJob is explain for the errors of jobs, items and agents.
func explainJob(err error) (status int, title string, ok bool) {
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
	field := (*jobs.FieldError)(nil)
	switch {
	case errors.As(err, &field) && (field.Field == "job_id" || field.Field == "id"), is(jobs.ErrNotFound, jobs.ErrNoItem, agent.ErrNoAgent):
		return http.StatusNotFound, "Not found", true
	case field != nil:
		return http.StatusBadRequest, "Invalid request", true
	case is(jobs.ErrTerminal, jobs.ErrNotEnded, jobs.ErrExists, jobs.ErrNotReview, jobs.ErrStale):
		return http.StatusConflict, "Conflict", true
	case errors.As(err, new(*document.TooLargeError)):
		return http.StatusRequestEntityTooLarge, "Too large", true
	}
	return 0, "", false
}

const (
	jobsShown = 25
	maxName   = 200 // maximum bytes of a name or label filter
	maxCursor = 500
)

// stateCount is the number of jobs in a state.
type stateCount struct {
	State jobs.Status
	N     int64
	URL   string
}

type jobsData struct {
	States       []stateCount
	All          int64
	State        string
	Name, Label  string
	Filtered     bool
	Rows         []jobRow
	First        bool
	AllURL, Next string // Next is "" on the last page
}

// jobRow is a job of a list.
type jobRow struct {
	jobs.Job
	Took time.Duration // negative: not ended
}

// Bar returns the items by state.
func (j jobRow) Bar() []part { return byState(j.Items) }

// listJobs lists jobs, newest first.
func (c jobPages) listJobs(ctx context.Context, r *http.Request) (webui.View, error) {
	q := r.URL.Query()
	d := jobsData{State: q.Get("status"), Name: strings.TrimSpace(q.Get("name")), Label: strings.TrimSpace(q.Get("label"))}
	after := q.Get("after")
	if err := cmp.Or(checkLength(maxName, d.Name, d.Label), checkLength(maxCursor, after)); err != nil {
		return webui.View{}, err
	}
	f := jobs.Filter{Name: d.Name, Label: d.Label, Cursor: after, Limit: jobsShown, NoUsage: true}
	switch {
	case d.State == "pending":
		f.Pending = true
	case d.State != "":
		f.Statuses = []jobs.Status{jobs.Status(d.State)}
	}
	page, err := c.Jobs.List(ctx, f)
	if err != nil {
		return webui.View{}, err
	}
	counts, err := c.Jobs.Totals(ctx)
	if err != nil {
		return webui.View{}, err
	}
	with := func(name, value string) string {
		u := url.Values{}
		for key, v := range map[string]string{"status": d.State, "name": d.Name, "label": d.Label, name: value} {
			if v != "" {
				u.Set(key, v)
			}
		}
		return "?" + u.Encode()
	}
	for _, st := range jobs.Statuses {
		d.All += counts[st]
		d.States = append(d.States, stateCount{st, counts[st], with("status", string(st))})
	}
	every := 3 * time.Second
	for _, j := range page.Jobs {
		row := jobRow{j, -1}
		if !j.CompletedAt.IsZero() {
			row.Took = j.CompletedAt.Sub(j.CreatedAt)
		} else {
			every += 300 * time.Millisecond // its items are counted in Redis
		}
		d.Rows = append(d.Rows, row)
	}
	d.Filtered, d.First, d.AllURL = d.State+d.Name+d.Label != "", after == "", with("status", "")
	if page.Next != "" {
		d.Next = with("after", page.Next)
	}
	return webui.View{Name: "Jobs", At: jobsAt, Data: d, Every: every}, nil
}
