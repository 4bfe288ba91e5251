package ui

import (
	"context"
	"net/http"
	"time"

	"muster/internal/webui"
	"muster/jobs"
)

const (
	jobsAt      = prefix + "/jobs"
	agentsAt    = prefix + "/agents"
	pipelinesAt = prefix + "/pipelines"
	jobsShown   = 25
)

type jobsData struct {
	Filter *webui.Filter
	Rows   []jobs.Job
	First  bool
	Next   string // "" on the last page
}

// listJobs lists jobs, newest first.
func (p *pages) listJobs(ctx context.Context, r *http.Request) (webui.View, error) {
	q := r.URL.Query()
	filter, err := webui.NewFilter(q, webui.Field{Name: "name", Label: "Name", Hint: "Pipeline"}, webui.Field{Name: "label", Label: "Label"})
	if err != nil {
		return webui.View{}, err
	}
	f := jobs.Filter{Name: filter.Get("name"), Label: filter.Get("label"), Cursor: q.Get("after"), Limit: jobsShown, NoUsage: true}
	switch status := q.Get("status"); status {
	case "":
	case "pending":
		f.Statuses = jobs.Open
	default:
		f.Statuses = []jobs.Status{jobs.Status(status)}
	}
	page, err := p.Jobs.List(ctx, f)
	if err != nil {
		return webui.View{}, err
	}
	counts, err := p.Jobs.Totals(ctx)
	if err != nil {
		return webui.View{}, err
	}
	filter.AddTab(q, "status", "", "All", -1)
	for _, st := range jobs.Statuses {
		filter.AddTab(q, "status", string(st), "", counts[st])
	}
	every := 3 * time.Second
	for i := range page.Jobs {
		if page.Jobs[i].CompletedAt.IsZero() {
			every += 300 * time.Millisecond // its items are counted in Redis
		}
	}
	return webui.View{Name: "Jobs", Data: jobsData{filter, page.Jobs, f.Cursor == "", webui.After(q, page.Next)}, Every: every}, nil
}
