// Package webui is what the web pages of tasks/ui and of an orchestrator have in common: the frame with its navigation
// and search, the look, live updates, questions before changes, errors.
//
// A page is a template and a function that gets what it shows. It is served as HTML, and to readers that accept
// server-sent events as a stream of its new content each time that it changes.
package webui

import (
	"context"
	"embed"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
)

//go:embed pages assets
var files embed.FS

// AskTime bounds what a page or a change may take.
const AskTime = 10 * time.Second

// Class is a kind of change.
type Class string

// The classes of changes.
const (
	Operate    Class = "operate"    // of the work: revoke, pause, retry, decide
	Administer Class = "administer" // of who may do what
)

// Config is what all pages of a site have in common.
type Config struct {
	// Prefix is the path that the site is mounted at, as in "/tasks", or "" for the root. The assets are below it.
	Prefix string
	// Title is the name in the head of the pages; it leads to Home.
	Title, Home string
	// Menu is the navigation.
	Menu []Area
	// Shows reports whether the sender of a request sees the area of the navigation with a URL. Defaults to all.
	Shows func(r *http.Request, url string) bool
	// Search is the path that the search form asks, and SearchHint what it can find. Without Search there is no form.
	Search, SearchHint string
	// Pages holds the templates, each in a file "pages/NAME.html" that defines "main". What pages share is in
	// "pages/parts.html".
	Pages fs.FS
	// Funcs are further functions of the templates.
	Funcs template.FuncMap
	// May reports whether the sender of a request may make changes of a class.
	May func(*http.Request, Class) bool
	// Reads names what the sender of a request may read: those with the same name see the same on a page, but for what they
	// may change. Defaults to the same for all.
	Reads func(*http.Request) string
	// Caller names the sender of a request: each may have at most 100 pages open that update themselves. Defaults to the
	// address. Behind a reverse proxy, all readers have its address and share the 100 pages unless Caller names them.
	Caller func(*http.Request) string
	// Done ends the streams of open pages once it is closed, as when the server shuts down. Optional.
	Done <-chan struct{}
	// Did is called after each change. It must not block for long.
	Did func(r *http.Request, action string, err error)
	// Explain says which status and title the page of an error has, and reports false for errors that it does not know.
	Explain func(error) (status int, title string, ok bool)
	Logger  *slog.Logger
}

// Link is a link of the navigation.
type Link struct{ Text, URL string }

// Area is a link of the first row of the navigation. While one of its pages is shown, they are the second row.
type Area struct {
	Link
	Pages []Link
}

// Site serves pages. It may be used by many goroutines at once, and runs no goroutine while no page is open.
type Site struct {
	cfg          Config
	live         *hub
	confirm      *template.Template
	done         *template.Template
	errors       *template.Template
	assetHandler http.Handler
}

// New returns a site without pages. It panics if a template of its own cannot be parsed.
func New(cfg Config) *Site {
	s := &Site{cfg: cfg, live: newHub(cfg.Logger)}
	s.confirm, s.done, s.errors = s.parse("confirm"), s.parse("done"), s.parse("error")
	s.assetHandler = http.StripPrefix(cfg.Prefix, assets())
	return s
}

// Assets serves the style and the scripts, below the path "/assets/" of the site.
func (s *Site) Assets() http.Handler { return s.assetHandler }

// View is what a template shows.
type View struct {
	Name string // of the page, for its title
	At   string // the URL of the entry of the navigation that it belongs to
	Data any
	// Cost is about how many commands of Redis it took. An open page is read less often the more it costs. Defaults to 4.
	Cost int
	// Fixed says that the page does not change by itself.
	Fixed bool

	Config             // of the site
	Now      time.Time // when it was asked for
	request  *http.Request
	question bool // it does not change by itself
}

// Ask gets what a page shows: Name, At and Data of a view.
type Ask func(ctx context.Context, r *http.Request) (View, error)

// May reports whether the reader may make changes of a class.
func (v View) May(c Class) bool { return v.Config.May(v.request, c) }

// Still reports whether the page does not change by itself.
func (v View) Still() bool { return v.question || v.Fixed }

// Areas are the links of the first row of the navigation, or none if there is only one.
func (v View) Areas() []Area {
	if len(v.Menu) < 2 {
		return nil
	}
	if v.Shows == nil {
		return v.Menu
	}
	return slices.DeleteFunc(slices.Clone(v.Menu), func(a Area) bool { return !v.Shows(v.request, a.URL) })
}

// Area is the one that the page belongs to.
func (v View) Area() Area {
	for _, a := range v.Menu {
		if a.URL == v.At {
			return a
		}
		for _, p := range a.Pages {
			if p.URL == v.At {
				return a
			}
		}
	}
	return Area{}
}

// Second are the links of the second row of the navigation.
func (v View) Second() []Link {
	if len(v.Menu) == 1 {
		return v.Menu[0].Pages
	}
	return v.Area().Pages
}

// assets serves the files of the pages. They may be cached for an hour: a release may change them.
func assets() http.Handler {
	list := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=3600")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		list.ServeHTTP(w, r)
	})
}
