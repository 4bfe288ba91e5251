package ui

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"muster/internal/webui"
	"muster/jobs"
	"muster/orchestrator/event"
)

const (
	itemsShown  = 50
	itemsLooked = 2000 // items searched for a state
	historyRead = 500  // events of a job searched for an item
)

type itemsData struct {
	Job    jobs.Job
	State  jobs.ItemStatus
	Filter *webui.Filter
	Rows   []jobs.Item
	First  bool
	Next   string // "" on the last page
}

// items lists the items of a job, by state.
func (p *pages) items(ctx context.Context, r *http.Request) (webui.View, error) {
	id, q := r.PathValue("job"), r.URL.Query()
	after := q.Get("after")
	d := itemsData{State: jobs.ItemStatus(q.Get("state")), First: after == ""}
	var err error
	if d.Filter, err = webui.NewFilter(q); err != nil {
		return webui.View{}, err
	}
	if d.Job, err = p.Jobs.Summary(ctx, id); err != nil {
		return webui.View{}, noJob(id, err)
	}
	next := ""
	if d.State == jobs.ItemFailed || d.State == jobs.ItemReview {
		d.Rows, next, err = p.failures(ctx, id, d.State, after)
	} else {
		var page jobs.ItemPage
		page, err = p.Jobs.Items(ctx, id, jobs.ItemFilter{Status: d.State, Cursor: after, Limit: itemsShown, Looks: itemsLooked})
		d.Rows, next = page.Items, page.Next
	}
	if err != nil {
		return webui.View{}, noJob(id, err)
	}
	n := d.Job.Items
	d.Filter.AddTab(q, "state", "", "All", n.Total)
	for _, s := range []part{
		{State: "pending", N: n.Pending}, {State: "validating", N: n.Validating}, {State: "integrated", N: n.Integrated},
		{State: "rejected", N: n.Rejected}, {State: "failed", N: n.Failed}, {State: "review", N: n.Review},
	} {
		d.Filter.AddTab(q, "state", s.State, "", s.N)
	}
	d.Next = webui.After(q, next)
	return webui.View{Name: "Items of " + webui.Plain(d.Job.Name), Data: d}, nil
}

// failures returns a page of items that failed or are in review.
func (p *pages) failures(ctx context.Context, id string, state jobs.ItemStatus, after string) ([]jobs.Item, string, error) {
	offset := 0
	if after != "" {
		var err error
		if offset, err = strconv.Atoi(after); err != nil || offset < 0 {
			return nil, "", webui.Invalid("Invalid page address; start with the first page.")
		}
	}
	items, next, err := p.Jobs.Failures(ctx, id, state, offset, itemsShown)
	if next == 0 {
		return items, "", err
	}
	return items, strconv.Itoa(next), err
}

// item shows an item of a job with its history.
func (p *pages) item(ctx context.Context, r *http.Request) (webui.View, error) {
	id := r.PathValue("job")
	it, err := p.itemOf(ctx, id, r.URL.Query().Get("key"))
	return webui.View{Name: "Item", Data: it}, err
}

// itemOf returns an item of a job.
func (p *pages) itemOf(ctx context.Context, id, key string) (jobs.Item, error) {
	it, err := p.Jobs.Item(ctx, id, key)
	if errors.Is(err, jobs.ErrNoItem) {
		err = webui.NotFound("Item not found.")
	}
	return it, noJob(id, err)
}

// History returns the last events of an item.
func (p *pages) History(ctx context.Context, it jobs.Item) ([]event.Event, error) {
	if p.Events == nil {
		return nil, nil
	}
	list, err := p.Events.Last(ctx, it.JobID, historyRead)
	return slices.DeleteFunc(list, func(e event.Event) bool { return aboutEvent(e).Key != it.Key }), err
}
