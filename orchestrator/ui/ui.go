// Package ui serves the web pages of an orchestrator, below /ui/: jobs, sites, agents and proxies, and the
// pages of tasks/ui below /ui/tasks/. Package api mounts them.
package ui

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"

	"muster/internal/webui"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/jobs/document"
	"muster/jobs/pipeline"
	"muster/orchestrator/access"
	"muster/orchestrator/archive"
	"muster/orchestrator/event"
	"muster/orchestrator/health"
	"muster/proxies"
	"muster/sites"
	"muster/tasks"
	"muster/tasks/tasktype"
	taskui "muster/tasks/ui"
)

// Config configures the pages. Nil parts have no pages.
type Config struct {
	// Client is the connection to the data. Required.
	Client *tasks.Client
	// Jobs, Agents and Pipelines are shown on the pages of jobs. Agents and pipelines require Jobs.
	Jobs      *jobs.Service
	Agents    *agent.Service
	Pipelines *pipeline.Registry
	// Documents stores documents of jobs that are started on these pages, and Events has the events of jobs. Optional.
	Documents *document.Store
	Events    *event.Stream
	// Sites are the sites and their scrapes.
	Sites *sites.Service
	// Proxies is the pool.
	Proxies *proxies.Service
	// Archive has workflows that have expired. Optional.
	Archive *archive.Archive
	// Check runs the health checks for the overview.
	Check func(context.Context) health.Report
	// Write allows changes by callers with the required role. Defaults to read-only.
	Write bool
	// Logger receives errors of pages. Required.
	Logger *slog.Logger
}

// Route is a page or an action, with the roles of which a caller must have one. Without roles it is only for admins.
type Route struct {
	Pattern string // such as "GET /ui/jobs"
	Handler http.Handler
	Roles   []access.Role
	// Refuse responds to callers without permission with a page that has the reason.
	Refuse func(w http.ResponseWriter, r *http.Request, why string)
}

const (
	prefix = "/ui"
	fleet  = prefix + "/tasks/" // pages of tasks/ui
	// asynqmon is the path at which package api serves the pages of asynq.
	asynqmon = "/asynqmon"
)

//go:embed pages
var files embed.FS

// pages are the pages of an orchestrator.
type pages struct {
	Config
	site   *webui.Site
	routes []Route
	known  known
}

// Routes returns all routes below /ui/. The handlers are safe for concurrent use.
func Routes(cfg Config) []Route {
	p := &pages{Config: cfg}
	p.site = webui.New(webui.Config{
		Prefix: prefix, Title: "Muster", Home: prefix + "/", Menu: menu(cfg), Search: prefix + "/search", SearchHint: "Id or name",
		Ping:  func(ctx context.Context) error { return cfg.Client.Redis().Ping(ctx).Err() },
		Pages: files, Funcs: funcs, Model: p, May: cfg.may, Explain: explain, Logger: cfg.Logger,
		Reads: func(r *http.Request) string { return string(access.CallerOf(r.Context()).Role) },
		Counts: func(ctx context.Context) (map[string]webui.Count, error) {
			return taskui.Counts(ctx, cfg.Client, fleet, p.decisions())
		},
	})
	p.add("GET "+prefix+"/assets/", p.site.Assets(), access.Viewer)
	p.add("GET "+prefix+"/", p.site.Nothing(), access.Viewer)
	p.add("GET "+prefix+"/search", http.HandlerFunc(p.search), access.Viewer)
	if cfg.Jobs != nil {
		p.page("/jobs", "jobs", p.listJobs)
		p.page("/jobs/{job}", "job", p.oneJob)
		p.page("/jobs/{job}/items", "items", p.items)
		p.page("/jobs/{job}/item", "item", p.item)
		p.actions(p.jobActions())
	}
	if cfg.Jobs != nil && cfg.Agents != nil {
		p.page("/agents", "agents", p.listAgents)
		p.page("/agents/{agent}", "agent", p.oneAgent)
		p.actions(p.agentActions())
	}
	if cfg.Jobs != nil && cfg.Pipelines != nil {
		p.page("/pipelines", "pipelines", func(context.Context, *http.Request) (webui.View, error) { return webui.View{Name: "Pipelines"}, nil })
	}
	if cfg.Sites != nil {
		p.page("/sites", "sites", p.listSites)
		p.page("/sites/{site}", "site", p.oneSite)
		p.page("/scrapes", "scrapes", p.scrapes)
		p.page("/scrapes/{job}", "scrape", p.scrape)
		p.actions(p.siteActions())
	}
	if cfg.Proxies != nil {
		p.page("/proxies", "proxies", p.pool)
		p.page("/proxies/sources", "sources", p.sources)
		p.actions(p.proxyActions())
	}
	p.tasks()
	return p.routes
}

// may reports whether the caller of a request may perform actions.
func (c Config) may(r *http.Request) bool {
	return c.Write && access.CallerOf(r.Context()).Role.May(access.Operator)
}

// menu returns the navigation.
func menu(cfg Config) []taskui.Link {
	all := append([]taskui.Link{{Text: "Overview", URL: prefix + "/"}}, taskui.Links(fleet)...)
	for _, l := range []struct {
		group, text, url string
		has              bool
	}{
		{"Scraping", "Scrapes", scrapesURL, cfg.Sites != nil}, {"Scraping", "Sites", sitesURL, cfg.Sites != nil},
		{"Scraping", "Proxies", poolURL, cfg.Proxies != nil}, {"Scraping", "Sources", sourcesURL, cfg.Proxies != nil},
		{"Jobs", "Jobs", jobsAt, cfg.Jobs != nil}, {"Jobs", "Agents", agentsAt, cfg.Jobs != nil && cfg.Agents != nil},
		{"Jobs", "Pipelines", pipelinesAt, cfg.Jobs != nil && cfg.Pipelines != nil},
	} {
		if l.has {
			all = append(all, taskui.Link{Text: l.text, URL: l.url, Group: l.group})
		}
	}
	return all
}

// explain returns the status and the title of the page of an error.
func explain(err error) (status int, title string, ok bool) {
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
	field, isField := errors.AsType[*jobs.FieldError](err)
	switch {
	case isField && (field.Field == "job_id" || field.Field == "id"), is(jobs.ErrNotFound, jobs.ErrNoItem, agent.ErrNoAgent, sites.ErrNoJob, tasks.ErrNotFound), errors.As(err, new(*sites.UnknownError)):
		return http.StatusNotFound, "Not found", true
	case isField, is(tasks.ErrCursor):
		return http.StatusBadRequest, "Invalid request", true
	case is(jobs.ErrTerminal, jobs.ErrNotEnded, jobs.ErrExists, jobs.ErrNotReview, jobs.ErrStale):
		return http.StatusConflict, "Conflict", true
	case errors.As(err, new(*document.TooLargeError)):
		return http.StatusRequestEntityTooLarge, "Too large", true
	}
	return http.StatusServiceUnavailable, "Redis is unavailable", tasks.Unavailable(err)
}

// refused converts the error of an action for its page. Errors of Redis stay errors; all others are reasons for a rejection.
func (p *pages) refused(ctx context.Context, err error) error {
	if _, _, known := explain(err); err == nil || known || p.Client.Writable(ctx) != nil {
		return err
	}
	return webui.Invalid("%v", err)
}

func (p *pages) add(pattern string, h http.Handler, roles ...access.Role) {
	refuse := func(w http.ResponseWriter, r *http.Request, why string) { p.site.Fail(w, r, webui.Forbidden(why)) }
	p.routes = append(p.routes, Route{pattern, h, roles, refuse})
}

// page adds a page for viewers.
func (p *pages) page(path, name string, ask webui.Ask) {
	p.add("GET "+prefix+path, p.site.Page(name, ask), access.Viewer)
}

// actions adds actions with their confirmation pages.
func (p *pages) actions(all map[string]webui.Action) {
	for path, a := range all {
		for _, method := range []string{"GET ", "POST "} {
			p.add(method+prefix+path, p.site.Action(a), access.Operator)
		}
	}
}

// decisions returns the decisions about items in review; nil without jobs.
func (p *pages) decisions() taskui.Decisions {
	if p.Jobs == nil {
		return nil
	}
	return reviews{p}
}

// shelf returns the archive for the pages of tasks/ui; nil if none is set.
func (p *pages) shelf() taskui.Archive {
	if p.Archive == nil || !p.Archive.Listed() {
		return nil
	}
	return archived{p.Archive}
}

type archived struct{ *archive.Archive }

// List implements taskui.Archive.
func (a archived) List(ctx context.Context, f tasktype.WorkflowFilter) (page []tasktype.Workflow, next string, err error) {
	list, next, err := a.Archive.List(ctx, f)
	for _, w := range list {
		page = append(page, tasktype.Workflow{ID: w.ID, Name: w.Name, Labels: w.Labels, Origin: w.Origin, State: tasktype.WorkflowState(w.State), Created: w.CreatedAt, Ended: w.EndedAt})
	}
	return page, next, err
}

// Get implements taskui.Archive.
func (a archived) Get(ctx context.Context, id string) (json.RawMessage, error) {
	d, err := a.Archive.Get(ctx, id)
	if errors.Is(err, archive.ErrNoWorkflow) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(d)
}

// tasks adds the pages of tasks/ui.
func (p *pages) tasks() {
	h := taskui.Handler(p.Client, taskui.Config{
		Prefix: fleet, Title: "Muster", Home: prefix + "/", Nav: menu(p.Config), Search: prefix + "/search", SearchHint: "Id or name", Logger: p.Logger,
		Data:  func(r *http.Request) bool { return access.CallerOf(r.Context()).Role == access.Admin }, // candidates contain passwords
		Asynq: asynqmon, Decisions: p.decisions(), Overview: p.overview, Archive: p.shelf(),
		May: p.may,
	})
	p.add("GET "+prefix+"/{$}", h, access.Viewer)
	p.add("GET "+fleet, h, access.Viewer)
	p.add("POST "+fleet, h, access.Operator)
}
