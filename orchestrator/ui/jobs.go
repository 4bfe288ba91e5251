package ui

import (
	"cmp"
	"context"
	"errors"
	"net/http"
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
	p.actions(show.jobActions())
	if p.cfg.Agents != nil {
		p.agents()
	}
	if p.cfg.Pipelines != nil {
		p.page("/pipelines", "pipelines", func(context.Context, *http.Request) (webui.View, error) {
			return webui.View{Name: "Pipelines", Data: p.cfg.Pipelines.List()}, nil
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

type jobsData struct {
	Filter *webui.Filter
	Rows   []jobRow
	First  bool
	Next   string // "" on the last page
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
	d := jobsData{Filter: webui.NewFilter(q, webui.Field{Name: "name", Label: "Name", Hint: "Pipeline"}, webui.Field{Name: "label", Label: "Label"})}
	name, label, status, after := strings.TrimSpace(q.Get("name")), strings.TrimSpace(q.Get("label")), q.Get("status"), q.Get("after")
	if err := cmp.Or(checkLength(maxName, name, label), checkLength(maxCursor, after)); err != nil {
		return webui.View{}, err
	}
	f := jobs.Filter{Name: name, Label: label, Cursor: after, Limit: jobsShown, NoUsage: true}
	switch {
	case status == "pending":
		f.Pending = true
	case status != "":
		f.Statuses = []jobs.Status{jobs.Status(status)}
	}
	page, err := c.Jobs.List(ctx, f)
	if err != nil {
		return webui.View{}, err
	}
	counts, err := c.Jobs.Totals(ctx)
	if err != nil {
		return webui.View{}, err
	}
	d.Filter.AddTab(q, "status", "", "All", -1)
	for _, st := range jobs.Statuses {
		d.Filter.AddTab(q, "status", string(st), "", counts[st])
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
	if d.First = after == ""; page.Next != "" {
		q.Set("after", page.Next)
		d.Next = "?" + q.Encode()
	}
	return webui.View{Name: "Jobs", Data: d, Every: every}, nil
}
