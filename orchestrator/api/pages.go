package api

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"muster/orchestrator/health"
	"muster/sites"
)

//go:embed pages
var pageFiles embed.FS

var (
	overviewPage = page("overview.html")
	sitePage     = page("site.html")
	errorPage    = page("error.html")
)

// What the pages show.
type (
	overview struct {
		Now    time.Time
		Checks *health.Report // of Redis, the workers and the proxies; nil without checks
		Sites  []sites.State  // those that have a job, or are paused; the worst first
		Idle   []sites.State  // the others
		Jobs   []Job          // of all kinds, the newest
		Agents []agentState
	}
	siteView struct {
		Site
		Now time.Time
	}
	errorView struct {
		Code int
		Why  string
	}
)

func page(name string) *template.Template {
	return template.Must(template.New("frame.html").Funcs(template.FuncMap{
		"share":   func(f float64) string { return fmt.Sprintf("%.0f %%", 100*f) },
		"width":   func(f float64) string { return fmt.Sprintf("%.0f", 100*min(max(f, 0), 1)) },
		"millis":  func(f float64) string { return fmt.Sprintf("%.0f ms", f) },
		"ago":     ago,
		"total":   total,
		"through": func(j *sites.Job) int64 { return j.Pages.Done + j.Pages.Skipped + j.Pages.Error },
		"percent": func(j *sites.Job) int64 {
			if j.Pages.Total == 0 {
				return 0
			}
			return 100 * (j.Pages.Done + j.Pages.Skipped + j.Pages.Error) / j.Pages.Total
		},
		"ref": func(j sites.Job) *sites.Job { return &j },
	}).ParseFS(pageFiles, "pages/frame.html", "pages/"+name))
}

// ago is how long before now something was.
func ago(now, then time.Time) string {
	switch d := now.Sub(then); {
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", max(int(d.Seconds()), 0))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days ago", int(d.Hours()/24))
	}
}

func total(byType map[string]int) int {
	n := 0
	for _, of := range byType {
		n += of
	}
	return n
}

// pages serves what ask returns as a page; an error as a page too.
func pages(t *template.Template, ask func(context.Context, *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), askTime)
		defer cancel()
		code, show := http.StatusOK, t
		v, err := ask(ctx, r)
		if err != nil {
			code, show = problemOf(err, "path.").Status, errorPage
			v = errorView{Code: code, Why: err.Error()}
		}
		var out bytes.Buffer
		if err := show.Execute(&out, v); err != nil {
			http.Error(w, "the page cannot be made: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		w.WriteHeader(code)
		_, _ = w.Write(out.Bytes())
	})
}

// style serves what the pages look like.
func style(w http.ResponseWriter, _ *http.Request) {
	css, err := pageFiles.ReadFile("pages/style.css")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	_, _ = w.Write(css)
}
