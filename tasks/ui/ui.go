// Package ui serves web pages of a fleet: its workflows as graphs and timelines, its tasks, queues, workers and schedule.
//
//	mux.Handle("/tasks/", ui.Handler(client, ui.Config{Prefix: "/tasks"}))
//
// The pages read what the engine keeps in Redis, so they show the whole fleet, whichever process serves them. They are
// read-only unless [Config.May] says otherwise. They load nothing from elsewhere, work without JavaScript, and with it
// show changes about a second after they happened.
//
// The pages show inputs and results of tasks. Whoever mounts them decides who may see them.
package ui

import (
	"embed"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"muster/internal/webui"
	"muster/tasks"
)

// Config says how the pages are served.
type Config struct {
	// Prefix is the path that the pages are mounted at, as in "/tasks". Defaults to the root.
	Prefix string
	// Title is the name in the head of the pages. Defaults to "Tasks".
	Title string
	// Nav are links to the parts of the program, shown in the head of the pages. The one that leads to the prefix is
	// marked as the current one. Defaults to none.
	Nav []Link
	// Shows reports whether the sender of a request sees the link of Nav with a URL. Defaults to all.
	Shows func(r *http.Request, url string) bool
	// Home is where the title leads. Defaults to the overview.
	Home string
	// Search is the path of a page of the program that the search form asks with the parameter q, and SearchHint what it
	// finds. Defaults to a page that finds workflows.
	Search, SearchHint string
	// May reports whether the sender of a request may change things: revoke workflows, answer for tasks that wait for it,
	// pause queues, set how many tasks a worker runs at once.
	// Defaults to none: the pages are read-only.
	May func(*http.Request) bool
	// Data reports whether the sender of a request may see inputs, results and headers of tasks, which may have secrets.
	// Defaults to all.
	Data func(*http.Request) bool
	// Caller names the sender of a request: each may have at most 100 pages open that update themselves. Defaults to the
	// address, also where it returns "". Behind a reverse proxy, all readers have its address and share the 100 pages unless
	// Caller names them, as by the user that the proxy has authenticated.
	Caller func(*http.Request) string
	// Done ends the streams of open pages once it is closed, as when the server shuts down: http.Server.Shutdown waits for
	// them otherwise. Optional.
	Done <-chan struct{}
	// Did is called after each change, for an audit log. It must not block for long. Defaults to nothing.
	Did func(r *http.Request, action string, err error)
	// Logger gets errors of pages. Defaults to none.
	Logger *slog.Logger
}

// Link is a link in the head of the pages.
type Link struct{ Text, URL string }

func (c Config) withDefaults() Config {
	c.Prefix = strings.TrimRight(c.Prefix, "/")
	if c.Title == "" {
		c.Title = "Tasks"
	}
	if c.Home == "" {
		c.Home = c.Prefix + "/"
	}
	if c.Search == "" {
		c.Search, c.SearchHint = c.Prefix+"/search", "Workflow id or name"
	}
	if c.May == nil {
		c.May = func(*http.Request) bool { return false }
	}
	if c.Data == nil {
		c.Data = func(*http.Request) bool { return true }
	}
	if c.Did == nil {
		c.Did = func(*http.Request, string, error) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// About how many commands of Redis it takes to read something, with those that scripts call; see [webui.View.Cost].
const (
	queueCost    = 8  // a queue
	workflowCost = 12 // a workflow that has not changed since it was read last
	nodeCost     = 10 // a node of a workflow
	ratesCost    = 30 // what was counted of an hour or a day
	listCost     = 20 // a list of workflows, and one more for each
)

// site serves the pages.
type site struct {
	*webui.Site
	cfg    Config
	client *tasks.Client
}

//go:embed pages
var pages embed.FS

// Handler returns the pages of the fleet that client belongs to, for all paths below [Config.Prefix]. It may be used by
// many goroutines at once. It runs no goroutine while no page is open.
func Handler(client *tasks.Client, cfg Config) http.Handler {
	cfg = cfg.withDefaults()
	s := &site{Site: webui.New(cfg.frame()), cfg: cfg, client: client}
	mux := http.NewServeMux()
	for path, p := range map[string]struct {
		name string
		ask  webui.Ask
	}{
		"/{$}":                            {"overview", s.overview},
		"/workflows":                      {"workflows", s.workflows},
		"/workflows/{id}":                 {"workflow", s.workflow},
		"/workflows/{id}/nodes/{node...}": {"node", s.node},
		"/tokens":                         {"tokens", s.tokens},
		"/names":                          {"tasks", s.taskNames},
		"/names/{task...}":                {"name", s.taskName},
		"/queues":                         {"queues", s.queues},
		"/queues/{queue}":                 {"queue", s.queue},
		"/workers":                        {"workers", s.workers},
		"/schedule":                       {"schedule", s.schedule},
	} {
		mux.Handle("GET "+cfg.Prefix+path, s.Page(p.name, p.ask))
	}
	mux.HandleFunc("GET "+cfg.Prefix+"/search", s.search)
	mux.HandleFunc("GET "+cfg.Prefix+"/workflows/{id}/results/{node...}", s.downloadResult)
	mux.HandleFunc("GET "+cfg.Prefix+"/workflows/{id}/inputs/{node...}", s.downloadInput)
	mux.Handle("GET "+cfg.Prefix+"/assets/", s.Assets())
	for path, a := range s.actions() {
		ask, do := s.Action(a)
		mux.Handle("GET "+cfg.Prefix+path, ask)
		mux.Handle("POST "+cfg.Prefix+path, do)
	}
	mux.Handle(cfg.Prefix+"/", s.Nothing())
	if cfg.Prefix != "" {
		mux.Handle("GET "+cfg.Prefix, http.RedirectHandler(cfg.Prefix+"/", http.StatusFound))
	}
	return mux
}

// frame is what all pages have in common.
func (c Config) frame() webui.Config {
	own := webui.Area{Link: webui.Link{Text: c.Title, URL: c.Prefix + "/"}, Pages: []webui.Link{
		{Text: "Overview", URL: c.Prefix + "/"}, {Text: "Workflows", URL: c.Prefix + "/workflows"}, {Text: "Tasks", URL: c.Prefix + "/names"},
		{Text: "Open tasks", URL: c.Prefix + "/tokens"},
		{Text: "Queues", URL: c.Prefix + "/queues"}, {Text: "Workers", URL: c.Prefix + "/workers"}, {Text: "Schedule", URL: c.Prefix + "/schedule"},
	}}
	var menu []webui.Area
	for _, l := range c.Nav {
		a := webui.Area{Link: webui.Link(l)}
		if l.URL == own.URL {
			a.Pages = own.Pages
		}
		menu = append(menu, a)
	}
	if !slices.ContainsFunc(c.Nav, func(l Link) bool { return l.URL == own.URL }) {
		menu = append([]webui.Area{own}, menu...)
	}
	return webui.Config{
		Prefix: c.Prefix, Title: c.Title, Home: c.Home, Menu: menu, Search: c.Search, SearchHint: c.SearchHint,
		Shows: c.Shows, Pages: pages, Funcs: funcs, Caller: c.Caller, Done: c.Done, Did: c.Did, Explain: explain, Logger: c.Logger,
		Reads: func(r *http.Request) string { return strconv.FormatBool(c.Data(r)) },
		May:   func(r *http.Request, class webui.Class) bool { return class == webui.Operate && c.May(r) },
	}
}

// explain says what the page of an error says.
func explain(err error) (status int, title string, ok bool) {
	switch {
	case errors.Is(err, tasks.ErrUnknown):
		return http.StatusNotFound, "No such workflow", true
	case errors.Is(err, tasks.ErrNoNode):
		return http.StatusNotFound, "No such node", true
	case errors.Is(err, tasks.ErrCursor):
		return http.StatusBadRequest, "That does not work", true
	case tasks.Unavailable(err):
		return http.StatusServiceUnavailable, "Redis does not answer", true
	}
	return 0, "", false
}
