package ui

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"muster/internal/webui"
	"muster/jobs"
	"muster/orchestrator/access"
	"muster/sites"
	"muster/tasks"
	"muster/tasks/tasktype"
)

const (
	maxQuery       = 200  // bytes
	searchedFlows  = 3000 // newest workflows that are searched
	searchedJobs   = 1000 // newest jobs that are searched
	shownOfOneKind = 20
)

type searchData struct {
	Query     string
	Sites     []found
	Jobs      []found
	Scrapes   []found
	Workflows []found
	Proxies   []found
	Searched  bool // not all workflows or jobs were searched
}

// found is a search result.
type found struct {
	Text, Note, URL string
	At              time.Time
}

// None reports whether the search has no results.
func (d *searchData) None() bool {
	return len(d.Sites)+len(d.Jobs)+len(d.Scrapes)+len(d.Workflows)+len(d.Proxies) == 0
}

// searchPage is the search.
type searchPage struct{ *pages }

// serve adds the search. It redirects to the object with the ID or full name, or lists partial matches.
func (p searchPage) serve() {
	list := p.site.Page("search", p.search)
	p.add("GET "+prefix+"/search", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), webui.AskTime)
		defer cancel()
		q, err := query(r)
		to := ""
		if err == nil && q != "" {
			to, err = p.whole(ctx, q)
		}
		switch {
		case err != nil:
			p.site.Fail(w, r, err)
		case to != "":
			http.Redirect(w, r, to, http.StatusSeeOther)
		default:
			list.ServeHTTP(w, r)
		}
	}), access.Viewer)
}

func query(r *http.Request) (string, error) {
	q := strings.TrimSpace(r.URL.Query().Get("q"))
	if len(q) > maxQuery {
		return "", webui.Invalid("Search for at most %d characters.", maxQuery)
	}
	return q, nil
}

// whole returns the URL of the object with an ID or full name, or "".
func (p searchPage) whole(ctx context.Context, q string) (to string, err error) {
	for _, find := range []func(context.Context, string) (string, error){p.wholeSite, p.wholeJob, p.wholeWorkflow, p.wholeProxy} {
		if to, err = find(ctx, q); err != nil || to != "" {
			return to, err
		}
	}
	return "", nil
}

func (p searchPage) wholeSite(ctx context.Context, q string) (string, error) {
	if p.cfg.Sites == nil {
		return "", nil
	}
	if _, err := p.cfg.Sites.Folder(ctx, q); err == nil {
		return scrapeURL(q), nil
	} else if !errors.Is(err, sites.ErrNoJob) && p.cfg.Client.Writable(ctx) != nil { // otherwise no job can have this name
		return "", err
	}
	names, err := p.cfg.Sites.Names(ctx)
	for _, name := range names {
		if name == q {
			return siteURL(name), nil
		}
	}
	return "", err
}

func (p searchPage) wholeJob(ctx context.Context, q string) (string, error) {
	if p.cfg.Jobs == nil {
		return "", nil
	}
	_, err := p.cfg.Jobs.Summary(ctx, q)
	switch {
	case err == nil:
		return prefix + "/jobs/" + url.PathEscape(q), nil
	case errors.Is(err, jobs.ErrNotFound), errors.As(err, new(*jobs.FieldError)):
		return "", nil
	}
	return "", err
}

// wholeWorkflow finds a workflow by its ID, and a node as WORKFLOW/NODE.
func (p searchPage) wholeWorkflow(ctx context.Context, q string) (string, error) {
	id, node, _ := strings.Cut(q, "/")
	_, err := tasks.Attach[any](p.cfg.Client, id).Progress(ctx)
	if errors.Is(err, tasks.ErrUnknown) || id == "" {
		return "", nil
	}
	to := fleet + "workflows/" + url.PathEscape(id)
	if node != "" {
		to += "/nodes/" + url.PathEscape(node)
	}
	return to, err
}

func (p searchPage) wholeProxy(ctx context.Context, q string) (string, error) {
	if p.cfg.Proxies == nil {
		return "", nil
	}
	members, err := p.cfg.Proxies.Find(ctx, q)
	if len(members) == 1 {
		return proxyURL(members[0].ID), nil
	}
	return "", err
}

// search lists objects with a text in their name or ID.
func (p searchPage) search(ctx context.Context, r *http.Request) (webui.View, error) {
	q, err := query(r)
	d := &searchData{Query: q}
	if q != "" && err == nil {
		for _, find := range []func(context.Context, *searchData) error{p.findSites, p.findJobs, p.findWorkflows, p.findProxies} {
			if err := find(ctx, d); err != nil {
				return webui.View{}, err
			}
		}
	}
	return webui.View{Name: "Search", Data: d, Fixed: true}, err
}

// has reports whether any of the strings contains the query.
func (d *searchData) has(texts ...string) bool {
	for _, text := range texts {
		if strings.Contains(strings.ToLower(text), strings.ToLower(d.Query)) {
			return true
		}
	}
	return false
}

// add adds a result to a list unless the list is full.
func add(list *[]found, f found) {
	if len(*list) < shownOfOneKind {
		*list = append(*list, f)
	}
}

func (p searchPage) findSites(ctx context.Context, d *searchData) error {
	if p.cfg.Sites == nil {
		return nil
	}
	names, err := p.cfg.Sites.Names(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if d.has(name) {
			add(&d.Sites, found{Text: name, URL: siteURL(name)})
		}
	}
	began, err := p.cfg.Sites.JobsSince(ctx, time.Time{})
	for _, j := range began {
		if d.has(j.ID) {
			add(&d.Scrapes, found{Text: j.ID, Note: j.Site, URL: scrapeURL(j.ID), At: j.Began})
		}
	}
	return err
}

func (p searchPage) findJobs(ctx context.Context, d *searchData) error {
	if p.cfg.Jobs == nil {
		return nil
	}
	page, err := p.cfg.Jobs.List(ctx, jobs.Filter{Limit: searchedJobs})
	for i := range page.Jobs {
		if j := &page.Jobs[i]; d.has(j.ID, j.Name) {
			add(&d.Jobs, found{Text: "job of " + j.Name, Note: j.ID, URL: prefix + "/jobs/" + url.PathEscape(j.ID), At: j.CreatedAt})
		}
	}
	d.Searched = d.Searched || page.Next != ""
	return err
}

func (p searchPage) findWorkflows(ctx context.Context, d *searchData) error {
	cursor := ""
	for range searchedFlows / 1000 {
		var list []tasktype.Workflow
		var err error
		if list, cursor, err = p.cfg.Client.Workflows(ctx, tasktype.WorkflowFilter{Cursor: cursor, Limit: 1000}); err != nil {
			return err
		}
		for _, w := range list {
			if d.has(w.ID, w.Name) {
				add(&d.Workflows, found{Text: w.Name, Note: w.ID, URL: fleet + "workflows/" + url.PathEscape(w.ID), At: w.Created})
			}
		}
		if cursor == "" {
			return nil
		}
	}
	d.Searched = true
	return nil
}

func (p searchPage) findProxies(ctx context.Context, d *searchData) error {
	if p.cfg.Proxies == nil {
		return nil
	}
	members, err := p.cfg.Proxies.List(ctx, everything)
	for i := range members {
		if m := &members[i]; d.has(m.Proxy.String()) {
			add(&d.Proxies, found{Text: m.Proxy.String(), Note: m.Country, URL: proxyURL(m.ID), At: m.CheckedAt})
		}
	}
	return err
}
