// Package webui contains the common parts of the web pages of tasks/ui and of the orchestrator: frame, navigation, search, styles, live
// updates, confirmation pages and errors.
//
// A page is a template with a function that returns its data. While it is visible, the browser polls it about once a second with its
// ETag and shows the differences. Renderings of open pages are shared between readers with equal permissions.
package webui

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

//go:embed pages assets
var embedded embed.FS

var files = templates{embedded}

// AskTime is the timeout of an action.
const AskTime = 10 * time.Second

// Config is the common configuration of the pages of a site.
type Config struct {
	// Prefix is the mount path of the site, such as "/tasks", or "" for the root. It includes the assets.
	Prefix string
	// Title is the title in the header of the pages, with a link to Home.
	Title, Home string
	// Menu is the navigation.
	Menu []Link
	// Counts returns counts that the navigation shows, by the URL of their links. They are cached for some seconds. Optional.
	Counts func(context.Context) (map[string]Count, error)
	// Search is the path of the search form, and SearchHint its placeholder. If Search is empty, there is no form.
	Search, SearchHint string
	// Pages contains the templates: each file "pages/NAME.html" defines "main", and "pages/parts.html" contains common parts.
	Pages fs.FS
	// Funcs are additional template functions.
	Funcs template.FuncMap
	// Model has methods that read values for templates. If one returns an error, the page of that error is shown instead.
	Model any
	// May reports whether the sender of a request may perform actions.
	May func(*http.Request) bool
	// Reads returns a name for the read permissions of the sender of a request: senders with the same name see the same content,
	// except for actions. Default: the same content for all.
	Reads func(*http.Request) string
	// Ping reports whether the data is available, at most once a second for polls of pages that are not rendered again yet.
	// Optional.
	Ping func(context.Context) error
	// OnAction is called after each action. It must return quickly. Optional.
	OnAction func(r *http.Request, action string, err error)
	// Explain returns the status and the title of the page of an error, or false for unknown errors.
	Explain func(error) (status int, title string, ok bool)
	Logger  *slog.Logger
}

// Link is a link of the navigation. Consecutive links of a group are shown under its name.
type Link struct{ Text, URL, Group string }

// Count is a count beside a link of the navigation.
type Count struct {
	N    int64
	Unit string // such as "open", read to users who do not see the page
	Bad  bool
}

// Site serves pages. It is safe for concurrent use, and starts no goroutines.
type Site struct {
	cfg          Config
	open         Cache[response] // by rights and URL
	pings        Cache[struct{}]
	counts       Cache[map[string]Count]
	confirm      func() *template.Template
	done         func() *template.Template
	errors       func() *template.Template
	assetHandler http.Handler
}

// New returns a site without pages.
func New(cfg Config) *Site {
	cfg.Pages = templates{cfg.Pages}
	s := &Site{cfg: cfg}
	s.confirm, s.done, s.errors = s.template("confirm"), s.template("done"), s.template("error")
	s.assetHandler = http.StripPrefix(cfg.Prefix, assets())
	return s
}

// Assets serves styles and scripts below the path "/assets/" of the site.
func (s *Site) Assets() http.Handler { return s.assetHandler }

// View is the data of a template.
type View struct {
	Name string // page title
	At   string // the URL of its navigation entry; by default the entry whose URL the path of the page begins with
	Data any
	// Every is the minimum interval between renderings of the open page. Default: 1 s.
	Every time.Duration
	// Fixed means that the page does not change automatically.
	Fixed bool

	Config                   // configuration of the site
	Ctx     context.Context  // of the request
	Now     time.Time        // time of the request
	Numbers map[string]Count // of the navigation, by URL; nil if unknown
	May     bool             // the reader may perform actions
}

// Ask returns the data of a page: Name and Data of a view.
type Ask func(ctx context.Context, r *http.Request) (View, error)

// Groups returns the navigation by groups.
func (c Config) Groups() (groups [][]Link) {
	for _, l := range c.Menu {
		if n := len(groups); n == 0 || groups[n-1][0].Group != l.Group {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], l)
	}
	return groups
}

// at returns the URL of the navigation entry of a page.
func (c Config) at(page string) (entry string) {
	path, _, _ := strings.Cut(page, "?")
	for _, l := range c.Menu {
		if (path == l.URL || strings.HasPrefix(path, l.URL+"/")) && len(l.URL) > len(entry) {
			entry = l.URL
		}
	}
	return entry
}

// assets serves the assets. They may be cached for an hour, because a release may change them.
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

// pageError is the content of an error page.
type pageError struct {
	Status     int // an error of the server may be temporary
	Title, Why string
}

func (e *pageError) Error() string { return e.Why }

// NotFound returns an error with status 404.
func NotFound(why string) error { return &pageError{http.StatusNotFound, "Not found", why} }

// Invalid returns an error with status 400.
func Invalid(format string, args ...any) error {
	return &pageError{http.StatusBadRequest, "Invalid request", fmt.Sprintf(format, args...)}
}

// Forbidden returns an error with status 403.
func Forbidden(why string) error { return &pageError{http.StatusForbidden, "Not allowed", why} }

// Refused reports whether an error is of [NotFound], [Invalid] or [Forbidden].
func Refused(err error) bool { return errors.As(err, new(*pageError)) }

// explain returns the content of the page of an error.
func (s *Site) explain(err error) *pageError {
	if own, ok := errors.AsType[*pageError](err); ok {
		return own
	}
	if s.cfg.Explain != nil {
		if status, title, ok := s.cfg.Explain(err); ok {
			return &pageError{status, title, err.Error()}
		}
	}
	return &pageError{http.StatusInternalServerError, "Cannot show this page", err.Error()}
}

// Fail serves the page of an error. It does nothing if the client has disconnected.
func (s *Site) Fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		s.write(w, s.failed(r, err))
	}
}

// failed returns the page of an error.
func (s *Site) failed(r *http.Request, err error) response {
	e := s.explain(err)
	if e.Status == http.StatusInternalServerError && r.Context().Err() == nil {
		s.cfg.Logger.ErrorContext(r.Context(), "page failed", "page", r.URL.Path, "error", err)
	}
	v := s.framed(r, View{Name: e.Title, Data: e})
	v.Fixed = e.Status < http.StatusInternalServerError && e.Status != http.StatusNotFound // it may exist later
	res, _ := s.execute(e.Status, s.errors, v)
	return res
}

// Nothing serves the page for unknown URLs.
func (s *Site) Nothing() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Fail(w, r, NotFound("The page does not exist."))
	})
}
