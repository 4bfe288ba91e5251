package ui

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"muster/internal/webui"
	"muster/jobs"
	"muster/sites"
	"muster/tasks"
)

// maxQuery is the maximum length of a query, in bytes.
const maxQuery = 200

// search redirects to the object with an ID or a full name, or links to the filters of lists.
func (p *pages) search(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), webui.AskTime)
	defer cancel()
	q, to := strings.TrimSpace(r.URL.Query().Get("q")), ""
	var err error
	if len(q) > maxQuery {
		err = webui.Invalid("Search for at most %d characters.", maxQuery)
	}
	for _, of := range []struct {
		has  bool
		find func(context.Context, string) (string, error)
	}{{p.Sites != nil, p.wholeSite}, {p.Jobs != nil, p.wholeJob}, {true, p.wholeWorkflow}, {p.Proxies != nil, p.wholeProxy}} {
		if of.has && q != "" && err == nil && to == "" {
			to, err = of.find(ctx, q)
		}
	}
	switch {
	case err != nil:
		p.site.Fail(w, r, err)
	case to != "":
		http.Redirect(w, r, to, http.StatusSeeOther)
	default: // lists that can be filtered by a part of a name
		p.site.Page("search", func(context.Context, *http.Request) (webui.View, error) {
			return webui.View{Name: "Search", Data: q, Fixed: true}, nil
		}).ServeHTTP(w, r)
	}
}

func (p *pages) wholeSite(ctx context.Context, q string) (string, error) {
	if _, err := p.Sites.Folder(ctx, q); err == nil {
		return scrapeURL(q), nil
	} else if !errors.Is(err, sites.ErrNoJob) && p.Client.Writable(ctx) != nil { // otherwise no job can have this name
		return "", err
	}
	names, err := p.Sites.Names(ctx)
	if slices.Contains(names, q) {
		return siteURL(q), nil
	}
	return "", err
}

func (p *pages) wholeJob(ctx context.Context, q string) (string, error) {
	_, err := p.Jobs.Summary(ctx, q)
	if errors.Is(err, jobs.ErrNotFound) || errors.As(err, new(*jobs.FieldError)) {
		return "", nil
	}
	return jobURL(q), err
}

// wholeWorkflow finds a workflow by its ID, and a node as WORKFLOW/NODE.
func (p *pages) wholeWorkflow(ctx context.Context, q string) (string, error) {
	id, node, _ := strings.Cut(q, "/")
	_, err := p.Client.Workflow(id).Progress(ctx)
	if errors.Is(err, tasks.ErrNotFound) || id == "" {
		return "", nil
	}
	to := flowURL(id)
	if node != "" {
		to += "/nodes/" + url.PathEscape(node)
	}
	return to, err
}

func (p *pages) wholeProxy(ctx context.Context, q string) (string, error) {
	members, err := p.Proxies.Find(ctx, q)
	if len(members) == 1 {
		return proxyURL(members[0]), nil
	}
	return "", err
}
