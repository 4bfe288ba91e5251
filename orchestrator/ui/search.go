package ui

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"muster/internal/webui"
	"muster/jobs"
	"muster/orchestrator/access"
	"muster/sites"
	"muster/tasks"
)

// maxQuery is the maximum length of a query, in bytes.
const maxQuery = 200

// searchPage is the search.
type searchPage struct{ *pages }

// serve adds the search. It redirects to the object with the ID or full name, or links to the filters of lists.
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
	_, err := p.cfg.Client.Workflow(id).Progress(ctx)
	if errors.Is(err, tasks.ErrNotFound) || id == "" {
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
		return proxyURL(members[0]), nil
	}
	return "", err
}

// search links to the lists that can be filtered by a part of a name.
func (p searchPage) search(_ context.Context, r *http.Request) (webui.View, error) {
	q, err := query(r)
	return webui.View{Name: "Search", Data: q, Fixed: true}, err
}
