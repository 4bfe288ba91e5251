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
	for _, find := range []func(context.Context, string) (string, error){p.wholeSite, p.wholeJob, p.wholeWorkflow, p.wholeProxy} {
		if q != "" && err == nil && to == "" {
			to, err = find(ctx, q)
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
	if p.Sites == nil {
		return "", nil
	}
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
	if p.Jobs == nil {
		return "", nil
	}
	_, err := p.Jobs.Summary(ctx, q)
	switch {
	case err == nil:
		return prefix + "/jobs/" + url.PathEscape(q), nil
	case errors.Is(err, jobs.ErrNotFound), errors.As(err, new(*jobs.FieldError)):
		return "", nil
	}
	return "", err
}

// wholeWorkflow finds a workflow by its ID, and a node as WORKFLOW/NODE.
func (p *pages) wholeWorkflow(ctx context.Context, q string) (string, error) {
	id, node, _ := strings.Cut(q, "/")
	_, err := p.Client.Workflow(id).Progress(ctx)
	if errors.Is(err, tasks.ErrNotFound) || id == "" {
		return "", nil
	}
	to := fleet + "workflows/" + url.PathEscape(id)
	if node != "" {
		to += "/nodes/" + url.PathEscape(node)
	}
	return to, err
}

func (p *pages) wholeProxy(ctx context.Context, q string) (string, error) {
	if p.Proxies == nil {
		return "", nil
	}
	members, err := p.Proxies.Find(ctx, q)
	if len(members) == 1 {
		return proxyURL(members[0]), nil
	}
	return "", err
}
