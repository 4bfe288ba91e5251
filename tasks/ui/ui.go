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
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"muster/tasks"
)

// Config says how the pages are served.
type Config struct {
	// Prefix is the path that the pages are mounted at, as in "/tasks". Defaults to the root.
	Prefix string
	// Title is the name in the head of the pages. Defaults to "Tasks".
	Title string
	// Nav are links to other pages of the program. Defaults to none.
	Nav []Link
	// May reports whether the sender of a request may change things: revoke workflows, pause queues, set
	// how many tasks a worker runs at once.
	// Defaults to none: the pages are read-only.
	May func(*http.Request) bool
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
	if c.May == nil {
		c.May = func(*http.Request) bool { return false }
	}
	if c.Did == nil {
		c.Did = func(*http.Request, string, error) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// askTime bounds what a page may take to read.
const askTime = 10 * time.Second

// site serves the pages.
type site struct {
	cfg    Config
	client *tasks.Client
	live   *hub
	now    func() time.Time
}

// Handler returns the pages of the fleet that client belongs to, for all paths below [Config.Prefix]. It may be used by
// many goroutines at once. It runs no goroutine while no page is open.
func Handler(client *tasks.Client, cfg Config) http.Handler {
	s := &site{cfg: cfg.withDefaults(), client: client, now: time.Now}
	s.live = newHub(s.cfg.Logger)
	mux := http.NewServeMux()
	for path, p := range map[string]page{
		"/{$}":                            {overviewPage, s.overview},
		"/workflows":                      {workflowsPage, s.workflows},
		"/workflows/{id}":                 {workflowPage, s.workflow},
		"/workflows/{id}/nodes/{node...}": {nodePage, s.node},
		"/names":                          {tasksPage, s.taskNames},
		"/queues":                         {queuesPage, s.queues},
		"/workers":                        {workersPage, s.workers},
		"/schedule":                       {schedulePage, s.schedule},
	} {
		mux.Handle("GET "+s.cfg.Prefix+path, s.serve(p))
	}
	mux.HandleFunc("GET "+s.cfg.Prefix+"/search", s.search)
	mux.HandleFunc("GET "+s.cfg.Prefix+"/workflows/{id}/results/{node...}", s.download)
	mux.Handle("GET "+s.cfg.Prefix+"/assets/", http.StripPrefix(s.cfg.Prefix, assets()))
	s.addActions(mux)
	mux.HandleFunc(s.cfg.Prefix+"/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, &notFound{"There is no page at this address."})
	})
	if s.cfg.Prefix != "" {
		mux.Handle("GET "+s.cfg.Prefix, http.RedirectHandler(s.cfg.Prefix+"/", http.StatusFound))
	}
	return mux
}

// view is what a page shows: its own values, in the frame of all pages.
type view struct {
	Config
	Name string // of the page, for its title
	At   string // the path of the page's entry in the navigation
	Now  time.Time
	May  bool
	Data any
}

func (s *site) view(r *http.Request, name, at string, data any) view {
	return view{Config: s.cfg, Name: name, At: at, Now: s.now(), May: s.cfg.May(r), Data: data}
}

// ask is how a page gets its values.
type ask func(ctx context.Context, r *http.Request) (view, error)
