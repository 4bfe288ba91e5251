// Package ui serves web pages for a fleet: workflows as graphs and timelines, tasks, queues, workers and the
// schedule.
//
//	mux.Handle("/tasks/", ui.Handler(client, ui.Config{Prefix: "/tasks"}))
//
// The pages read the data of the engine in Redis, so they show the whole fleet, whichever process serves them. They
// are read-only unless [Config.May] is set. They load no external resources and work without JavaScript. With
// JavaScript they show changes within about a second.
//
// The pages show inputs and results of tasks. Restrict access where you mount them.
package ui

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/internal/engine"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// Config configures the pages.
type Config struct {
	// Prefix is the path of the pages, such as "/tasks". Defaults to the root.
	Prefix string
	// Title is the title in the page header. Defaults to "Tasks".
	Title string
	// Nav lists links to other pages of the program, shown in the navigation after the links to these pages. If it has one
	// of [Links], it is the whole navigation. Defaults to none.
	Nav []Link
	// Home is the link target of the title. Defaults to the overview.
	Home string
	// Search is the path of a search page of the program, called with the parameter q. SearchHint describes its
	// results. Defaults to a search for workflows.
	Search, SearchHint string
	// Asynq is the path of asynqmon, such as "/asynqmon". The page of a queue links to it while the queue has tasks of plain asynq
	// clients. Defaults to no link.
	Asynq string
	// May reports whether the client of a request may make changes: revoke workflows, complete external tasks, pause
	// queues and set the concurrency of workers. Defaults to none: the pages are read-only.
	May func(*http.Request) bool
	// Data reports whether the client of a request may see inputs, results and headers of tasks, which may contain
	// secrets. Defaults to all.
	Data func(*http.Request) bool
	// Decisions are decisions of the program that the page "To do" lists with the open tasks. Defaults to none.
	Decisions Decisions
	// Overview adds to the overview, which the handler also serves at Home then. Defaults to nothing.
	Overview func(context.Context) (Extra, error)
	// Archive has workflows that Redis has no longer. Defaults to none.
	Archive Archive
	// OnAction is called after each change, for an audit log. It must return quickly. Defaults to none.
	OnAction func(r *http.Request, action string, err error)
	// Logger receives errors of pages. Defaults to none.
	Logger *slog.Logger
}

// Archive finds workflows that have ended.
type Archive interface {
	// List returns a page of the workflows that a filter selects, the latest first, and the cursor of the next page.
	List(ctx context.Context, f tasktype.WorkflowFilter) (page []tasktype.Workflow, next string, err error)
	// Get returns a workflow with its nodes; nil for none.
	Get(ctx context.Context, id string) (json.RawMessage, error)
}

// Link is a link of the navigation. Consecutive links of a group are shown under its name.
type Link = webui.Link

func (c Config) withDefaults() Config {
	c.Prefix = strings.TrimRight(c.Prefix, "/")
	c.Title, c.Home = cmp.Or(c.Title, "Tasks"), cmp.Or(c.Home, c.Prefix+"/")
	if c.Search == "" {
		c.Search, c.SearchHint = c.Prefix+"/search", "Workflow id or name"
	}
	if c.May == nil {
		c.May = func(*http.Request) bool { return false }
	}
	if c.Data == nil {
		c.Data = func(*http.Request) bool { return true }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// site serves the pages.
type site struct {
	*webui.Site
	*tasks.Inspector
	cfg    Config
	client *tasks.Client

	causes  webui.Cache[tasktype.Failure]
	history webui.Cache[hours]
}

//go:embed pages
var pages embed.FS

// Handler returns a handler for the pages of the fleet of client, for all paths below [Config.Prefix]. It is safe for
// concurrent use.
func Handler(client *tasks.Client, cfg Config) http.Handler {
	cfg = cfg.withDefaults()
	frame := cfg.frame()
	frame.Counts = func(ctx context.Context) (map[string]webui.Count, error) {
		return Counts(ctx, client, cfg.Prefix, cfg.Decisions)
	}
	frame.Ping = func(ctx context.Context) error { return client.Redis().Ping(ctx).Err() }
	s := &site{Inspector: client.Inspect(), cfg: cfg, client: client}
	frame.Model = s
	s.Site, s.causes.Max = webui.New(frame), 2000
	// reads returns a page whose template reads everything itself.
	reads := func(name string, every time.Duration) webui.Ask {
		return func(context.Context, *http.Request) (webui.View, error) {
			return webui.View{Name: name, Every: every}, nil
		}
	}
	mux := http.NewServeMux()
	for path, p := range map[string]struct {
		name string
		ask  webui.Ask
	}{
		"/workflows":                      {"workflows", s.workflows},
		"/workflows/{id}":                 {"workflow", s.workflow},
		"/workflows/{id}/nodes/{node...}": {"workflow", s.workflow},
		"/archive/{id}":                   {"archived", s.archived},
		"/todo":                           {"todo", s.toDo},
		"/names":                          {"tasks", reads("Tasks", 5*time.Second)},
		"/names/{task...}":                {"name", s.taskName},
		"/queues":                         {"queues", reads("Queues", 4*time.Second)},
		"/queues/{queue}":                 {"queue", s.queue},
		"/workers":                        {"workers", reads("Workers", 0)},
		"/schedule":                       {"schedule", s.schedule},
	} {
		mux.Handle("GET "+cfg.Prefix+path, s.Page(p.name, p.ask))
	}
	mux.Handle("GET "+cfg.Prefix+"/{$}", s.Page("overview", s.overview))
	if cfg.Overview != nil {
		mux.Handle("GET "+cfg.Home+"{$}", s.Page("overview", s.overview))
	}
	mux.HandleFunc("GET "+cfg.Prefix+"/search", s.search)
	mux.HandleFunc("GET "+cfg.Prefix+"/workflows/{id}/results/{node...}", s.download("result.json", s.result))
	mux.HandleFunc("GET "+cfg.Prefix+"/workflows/{id}/inputs/{node...}", s.download("input.json", s.input))
	mux.Handle("GET "+cfg.Prefix+"/assets/", s.Assets())
	actions := s.actions()
	maps.Copy(actions, s.bulks())
	for path, a := range actions {
		for _, method := range []string{"GET ", "POST "} {
			mux.Handle(method+cfg.Prefix+path, s.Action(a))
		}
	}
	mux.Handle(cfg.Prefix+"/", s.Nothing())
	if cfg.Prefix != "" {
		mux.Handle("GET "+cfg.Prefix, http.RedirectHandler(cfg.Prefix+"/", http.StatusFound))
	}
	return mux
}

// Links returns links to the pages other than the overview, for the navigation of a program that mounts them at prefix.
func Links(prefix string) []Link {
	prefix = strings.TrimRight(prefix, "/")
	var links []Link
	for _, page := range [][2]string{{"Workflows", "/workflows"}, {"To do", "/todo"}, {"Tasks", "/names"}, {"Queues", "/queues"}, {"Workers", "/workers"}, {"Schedules", "/schedule"}} {
		links = append(links, Link{Text: page[0], URL: prefix + page[1], Group: "Tasks"})
	}
	return links
}

// frame returns the common configuration of the pages.
func (c Config) frame() webui.Config {
	own := append([]Link{{Text: "Overview", URL: c.Prefix + "/"}}, Links(c.Prefix)...)
	all := c.Nav
	if !slices.ContainsFunc(c.Nav, func(l Link) bool { return slices.Contains(own[1:], l) }) {
		all = append(own, slices.DeleteFunc(slices.Clone(c.Nav), func(l Link) bool { return l.URL == own[0].URL })...)
	}
	return webui.Config{
		Prefix: c.Prefix, Title: c.Title, Home: c.Home, Menu: all, Search: c.Search, SearchHint: c.SearchHint,
		Pages: pages, Funcs: funcs, OnAction: c.OnAction, Explain: explain, Logger: c.Logger,
		Reads: func(r *http.Request) string { return strconv.FormatBool(c.Data(r)) }, May: c.May,
	}
}

// explain returns the status and title of an error page.
func explain(err error) (status int, title string, ok bool) {
	for _, known := range []struct {
		status int
		title  string
		errs   []error
	}{
		{http.StatusConflict, "Already decided", []error{ErrDecided}},
		{http.StatusNotFound, "Workflow not found", []error{engine.ErrUnknown}},
		{http.StatusNotFound, "Node not found", []error{engine.ErrNoNode}},
		{http.StatusNotFound, "Schedule not found", []error{store.ErrNoSchedule}},
		{http.StatusBadRequest, "Invalid request", append(inapplicable, tasks.ErrCursor, tasks.ErrFull)},
	} {
		if slices.ContainsFunc(known.errs, func(e error) bool { return errors.Is(err, e) }) {
			return known.status, known.title, true
		}
	}
	return http.StatusServiceUnavailable, "Redis is unavailable", tasks.Unavailable(err)
}
