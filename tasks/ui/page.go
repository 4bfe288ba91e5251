package ui

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"muster/tasks"
	"muster/tasks/tasktype"
)

//go:embed pages assets
var files embed.FS

var (
	overviewPage  = parse("overview.html")
	workflowsPage = parse("workflows.html")
	workflowPage  = parse("workflow.html")
	nodePage      = parse("node.html")
	tasksPage     = parse("tasks.html")
	queuesPage    = parse("queues.html")
	workersPage   = parse("workers.html")
	schedulePage  = parse("schedule.html")
	confirmPage   = parse("confirm.html")
	errorPage     = parse("error.html")
)

// page is a template and what it shows.
type page struct {
	show *template.Template
	ask  ask
}

func parse(name string) *template.Template {
	return template.Must(template.New("frame.html").Funcs(template.FuncMap{
		"state":    stateWord,
		"workflow": workflowWord,
		"when":     when,
		"took":     took,
		"short":    short,
		"clip":     clip,
		"list":     func(words ...string) []string { return words },
		"pairs":    pairs,
		"flows":    func(prefix string, list []tasktype.Workflow) any { return flows{prefix, list} },
	}).ParseFS(files, "pages/frame.html", "pages/parts.html", "pages/"+name))
}

// flows is a list of workflows below the prefix of the pages.
type flows struct {
	Prefix string
	List   []tasktype.Workflow
}

// pairs makes links of paths and texts in turns.
func pairs(words []string) []Link {
	var links []Link
	for i := 0; i+1 < len(words); i += 2 {
		links = append(links, Link{URL: words[i], Text: words[i+1]})
	}
	return links
}

// clip shortens the name of a task to the width of a box.
func clip(task string) string {
	const most = 24
	if runes := []rune(task); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return task
}

// workflowWord is what the pages call the state of a workflow.
func workflowWord(s tasktype.WorkflowState) string {
	switch s {
	case tasktype.WorkflowSucceeded:
		return "succeeded"
	case tasktype.WorkflowFailed:
		return "failed"
	}
	return string(s)
}

// when writes a time for readers; live.js makes "3 min ago" of it.
func when(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s">%s</time>`, t.Format(time.RFC3339Nano), t.Format("2006-01-02 15:04:05"))) //nolint:gosec // of a time only
}

// took writes a duration with two or three digits.
func took(d time.Duration) string {
	switch {
	case d < 0:
		return "–"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// short is the beginning of a long id.
func short(id string) string {
	if runes := []rune(id); len(runes) > 20 {
		return string(runes[:18]) + "…"
	}
	return id
}

// notFound is an error whose page says 404.
type notFound struct{ why string }

func (e *notFound) Error() string { return e.why }

// policy is the Content-Security-Policy of the pages.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// serve serves a page: as HTML or, if the request accepts events, what of it changes.
func (s *site) serve(p page) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept")
		if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
			s.stream(w, r, p)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), askTime)
		defer cancel()
		v, err := p.ask(ctx, r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		s.write(w, http.StatusOK, p.show, v)
	})
}

func (s *site) write(w http.ResponseWriter, code int, t *template.Template, v view) {
	var out bytes.Buffer
	if err := t.Execute(&out, v); err != nil {
		s.cfg.Logger.Error("page cannot be made", "page", v.Name, "error", err)
		http.Error(w, "the page cannot be made", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(out.Bytes())
}

// trouble is what the page of an error says.
type trouble struct {
	Title, Why string
	Retry      bool // whether it may be gone soon
}

// fail serves the page of an error.
func (s *site) fail(w http.ResponseWriter, r *http.Request, err error) {
	code, says := http.StatusServiceUnavailable, trouble{"Redis does not answer", err.Error(), true}
	var missing *notFound
	switch {
	case errors.As(err, &missing):
		code, says = http.StatusNotFound, trouble{"Not found", missing.why, false}
	case errors.Is(err, tasks.ErrUnknown):
		code, says = http.StatusNotFound, trouble{"No such workflow", "It never was, or it has ended and its results are no longer kept.", false}
	case errors.Is(err, errWrong):
		code, says = http.StatusBadRequest, trouble{"That does not work", err.Error(), false}
	case errors.Is(err, errForbidden):
		code, says = http.StatusForbidden, trouble{"Not allowed", err.Error(), false}
	}
	s.write(w, code, errorPage, s.view(r, says.Title, "", says))
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
