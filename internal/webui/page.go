package webui

import (
	"bytes"
	"context"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"strings"
	"time"
)

// parse parses the template of a page of the site or of this package.
func (s *Site) parse(name string) *template.Template {
	all := template.FuncMap{}
	maps.Copy(all, formats)
	maps.Copy(all, s.cfg.Funcs)
	t := template.Must(template.New("frame.html").Funcs(all).ParseFS(files, "pages/frame.html", "pages/parts.html"))
	own := "pages/" + name + ".html"
	if _, err := files.Open(own); err == nil {
		return template.Must(t.ParseFS(files, own))
	}
	if _, err := s.cfg.Pages.Open("pages/parts.html"); err == nil {
		t = template.Must(t.ParseFS(s.cfg.Pages, "pages/parts.html"))
	}
	return template.Must(t.ParseFS(s.cfg.Pages, own))
}

// page is a template with a function that returns its data.
type page struct {
	show *template.Template
	ask  Ask
}

// policy is the Content-Security-Policy of the pages.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// Page serves a template: as HTML or, if the request accepts events, as a stream of updates. It panics if the template is invalid.
func (s *Site) Page(name string, ask Ask) http.Handler {
	p := page{s.parse(name), ask}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept")
		if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
			s.stream(w, r, p)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), AskTime)
		defer cancel()
		v, err := p.ask(ctx, r)
		if err != nil {
			s.Fail(w, r, err)
			return
		}
		s.write(w, http.StatusOK, p.show, s.framed(r, v))
	})
}

// framed adds the data of the frame to a view.
func (s *Site) framed(r *http.Request, v View) View {
	v.Config, v.Now, v.request = s.cfg, time.Now(), r
	return v
}

func (s *Site) write(w http.ResponseWriter, code int, t *template.Template, v View) {
	var out bytes.Buffer
	if err := t.Execute(&out, v); err != nil {
		s.cfg.Logger.Error("cannot render page", "page", v.Name, "error", err)
		http.Error(w, fmt.Sprintf("cannot render the page %q; see the log", v.Name), http.StatusInternalServerError)
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
