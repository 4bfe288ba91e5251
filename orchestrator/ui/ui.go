// Package ui makes the web pages of an orchestrator, below /ui/: jobs, sites, agents, proxies, keys and the audit log,
// and the pages of tasks/ui below /ui/tasks/. Package api serves them.
package ui

import (
	"embed"
	"log/slog"
	"net/http"
	"slices"

	"muster/internal/webui"
	"muster/orchestrator/access"
	"muster/tasks"
	taskui "muster/tasks/ui"
)

// Config says what the pages show. What is nil has no pages.
type Config struct {
	// Client is the connection to what is shown. Needed.
	Client *tasks.Client
	// Jobs, Agents and Pipelines are what the pages of jobs show. Those of agents and pipelines need Jobs.
	Jobs      Jobs
	Agents    Agents
	Pipelines Pipelines
	// Documents stores documents of jobs that are started here, and Events says what happened to jobs. Optional.
	Documents Documents
	Events    Events
	// Reports says that /jobs/{id}/report is served.
	Reports bool
	// Scrapes are those that have a page of their own. Optional.
	Scrapes Scrapes
	// Write allows changes, to callers with the role for them. Defaults to read-only.
	Write bool
	// Logger gets errors of pages. Needed.
	Logger *slog.Logger
}

// Route is a page or a change, and the roles of which a caller must have one; without roles it is for admins only.
type Route struct {
	Pattern string // as in "GET /ui/jobs"
	Handler http.Handler
	Roles   []access.Role
	// Refuse answers callers who may not use it with a page that says why.
	Refuse func(w http.ResponseWriter, r *http.Request, why string)
}

const (
	prefix = "/ui"
	fleet  = prefix + "/tasks/" // where the pages of tasks/ui are
)

//go:embed pages
var files embed.FS

// pages are those of an orchestrator.
type pages struct {
	cfg    Config
	site   *webui.Site
	routes []Route
}

// Routes returns all that is below /ui/. The handlers may be used by many goroutines at once.
func Routes(cfg Config) []Route {
	p := &pages{cfg: cfg, site: webui.New(webui.Config{
		Prefix: prefix, Title: "Muster", Home: prefix + "/", Menu: menu(cfg), Search: prefix + "/search", SearchHint: "Id or name",
		Pages: files, Funcs: funcs, May: cfg.may, Did: func(*http.Request, string, error) {}, Explain: explain, Logger: cfg.Logger,
	})}
	p.add("GET "+prefix+"/assets/", p.site.Assets(), access.Viewer)
	p.add("GET "+prefix+"/", p.site.Nothing(), access.Viewer)
	p.jobs()
	p.tasks()
	return p.routes
}

// may reports whether the caller of a request may make changes of a class.
func (c Config) may(r *http.Request, class webui.Class) bool {
	needs := access.Operator
	if class == webui.Administer {
		needs = access.Admin
	}
	return c.Write && access.CallerOf(r.Context()).Role.May(needs)
}

// menu is the navigation.
func menu(cfg Config) []webui.Area {
	return slices.Concat(
		[]webui.Area{{Link: webui.Link{Text: "Overview", URL: prefix + "/"}}},
		jobsArea(cfg),
		[]webui.Area{{Link: webui.Link{Text: "Tasks", URL: fleet}}},
	)
}

// explain says what the page of an error says.
func explain(err error) (status int, title string, ok bool) { return explainJob(err) }

func (p *pages) add(pattern string, h http.Handler, roles ...access.Role) {
	refuse := func(w http.ResponseWriter, r *http.Request, why string) { p.site.Fail(w, r, webui.Forbidden(why)) }
	p.routes = append(p.routes, Route{pattern, h, roles, refuse})
}

// page adds a page for viewers.
func (p *pages) page(path, name string, ask webui.Ask) {
	p.add("GET "+prefix+path, p.site.Page(name, ask), access.Viewer)
}

// action adds a change, and the question before it.
func (p *pages) action(path string, a webui.Action) {
	ask, do := p.site.Action(a)
	role := access.Operator
	if a.Class == webui.Administer {
		role = access.Admin
	}
	p.add("GET "+prefix+path, ask, role)
	p.add("POST "+prefix+path, do, role)
}

// tasks adds the pages of tasks/ui.
func (p *pages) tasks() {
	var nav []taskui.Link
	for _, a := range menu(p.cfg) {
		nav = append(nav, taskui.Link(a.Link))
	}
	h := taskui.Handler(p.cfg.Client, taskui.Config{
		Prefix: fleet, Title: "Muster", Home: prefix + "/", Nav: nav, Search: prefix + "/search", SearchHint: "Id or name", Logger: p.cfg.Logger,
		May: func(r *http.Request) bool { return p.cfg.may(r, webui.Operate) },
	})
	p.add("GET "+fleet, h, access.Viewer)
	p.add("POST "+fleet, h, access.Operator)
}
