package webui

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"math"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	renderTime = 4 * time.Second       // timeout of a page
	pollTime   = 3 * time.Second       // timeout of the poll of an open page
	keepPage   = time.Second           // minimum age at which an open page is rendered again
	pageShare  = 50 * time.Millisecond // this age, multiplied by the square of the number of open pages
	maxShare   = 15 * time.Second      // maximum of it
	pingEvery  = 2 * time.Second       // maximum interval of polls, so that an open page notices an outage
	keepCounts = 5 * time.Second       // maximum age of counts of the navigation
	minZip     = 1000                  // minimum size of a compressed response
)

// pollHeader is the number of seconds until the next poll of an open page.
const pollHeader = "X-Poll-Interval"

// errRights is the error of a page if the permissions of its reader change during the rendering.
var errRights = &pageError{http.StatusServiceUnavailable, "Permissions changed", "Your permissions have changed."}

// template returns the template of a page of the site or of this package. The first use parses it: most processes show few pages.
func (s *Site) template(name string) func() *template.Template {
	return sync.OnceValue(func() *template.Template { return s.parse(name) })
}

func (s *Site) parse(name string) *template.Template {
	all := template.FuncMap{}
	maps.Copy(all, formats)
	maps.Copy(all, s.cfg.Funcs)
	all["prefix"] = func() string { return s.cfg.Prefix }
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

// response is a rendered page.
type response struct {
	status int
	html   []byte
	zipped func() []byte // html with gzip
	tag    string        // ETag
	keep   time.Duration // until an open page is rendered again
}

// policy is the Content-Security-Policy of the pages.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// Page serves a template. A request with If-None-Match is the poll of an open page: its response may be some seconds old and is
// shared with readers of equal permissions. If the template is invalid, the response is an error.
func (s *Site) Page(name string, ask Ask) http.Handler {
	show := s.template(name)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rights := s.rights(r)
		key := rights + " " + r.URL.RequestURI()
		var res response
		if r.Header.Get("If-None-Match") == "" {
			began := time.Now()
			res = s.kept(s.render(r.Context(), r, show, ask, renderTime))
			if res.status == http.StatusOK && s.rights(r) == rights {
				s.open.Put(key, res, began, res.keep) // a poll after this request must not get an older page
			}
		} else if err := s.ping(r.Context()); err != nil {
			res = s.failed(r, err)
		} else {
			res, _ = s.open.Get(r.Context(), key, func(ctx context.Context) (response, time.Duration, error) {
				res := s.render(ctx, r, show, ask, pollTime)
				if s.rights(r) != rights { // checked afterwards, because the rendering may have used either
					res = s.failed(r, errRights)
				}
				res = s.kept(res)
				return res, res.keep, nil
			})
		}
		if r.Context().Err() == nil {
			s.send(w, r, res)
		}
	})
}

// ping returns an error if the data is not available.
func (s *Site) ping(ctx context.Context) error {
	if s.cfg.Ping == nil {
		return nil
	}
	_, err := s.pings.Get(ctx, "", func(ctx context.Context) (struct{}, time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, pollTime)
		defer cancel()
		return struct{}{}, time.Second, s.cfg.Ping(ctx)
	})
	return err
}

// kept sets how long a page is kept for polls: the longer, the more pages are open.
func (s *Site) kept(res response) response {
	open := time.Duration(s.open.Used())
	res.keep = max(res.keep, keepPage, min(open*open*pageShare, maxShare))
	return res
}

// rights returns the part of the key of a page that depends on the permissions of the sender of a request. Readers share a rendering
// only if their permissions are equal.
func (s *Site) rights(r *http.Request) string {
	reads := ""
	if s.cfg.Reads != nil {
		reads = s.cfg.Reads(r)
	}
	return fmt.Sprintf("%q %t", reads, s.cfg.May(r))
}

// render renders a page for a request. Errors are rendered as pages.
func (s *Site) render(ctx context.Context, r *http.Request, show func() *template.Template, ask Ask, timeout time.Duration) (res response) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer func() {
		if cause := recover(); cause != nil {
			s.cfg.Logger.Error("page panicked", "page", r.URL.Path, "panic", cause, "stack", string(debug.Stack()))
			res = s.failed(r, errInternal)
		}
	}()
	v, err := ask(ctx, r.WithContext(ctx))
	if err == nil {
		res, err = s.execute(http.StatusOK, show, s.counted(ctx, s.framed(r.WithContext(ctx), v)))
	}
	if err != nil {
		return s.failed(r, err)
	}
	return res
}

// counted adds the counts of the navigation to a view, if they are available.
func (s *Site) counted(ctx context.Context, v View) View {
	if s.cfg.Counts == nil {
		return v
	}
	counts, err := s.counts.Get(ctx, "", func(ctx context.Context) (map[string]Count, time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, pollTime)
		defer cancel()
		counts, err := s.cfg.Counts(ctx)
		return counts, keepCounts, err
	})
	if err == nil {
		v.Numbers = counts
	}
	return v
}

// framed adds the data of the frame to a view.
func (s *Site) framed(r *http.Request, v View) View {
	v.Config, v.Ctx, v.Now, v.May, v.At = s.cfg, r.Context(), time.Now(), s.cfg.May(r), cmp.Or(v.At, s.cfg.at(r.URL.Path))
	return v
}

// execute executes a template. It returns the error of a method or function that the template calls.
func (s *Site) execute(status int, show func() *template.Template, v View) (response, error) {
	var out bytes.Buffer
	if err := show().Execute(&out, v); err != nil {
		if cause := errors.Unwrap(errors.Unwrap(err)); cause != nil { // in the position in the template, in "error calling"
			return response{}, cause
		}
		s.cfg.Logger.Error("cannot render page", "page", v.Name, "error", err)
		status = http.StatusInternalServerError
		out.Reset()
		fmt.Fprintf(&out, "cannot render the page %q; see the log", template.HTMLEscapeString(v.Name))
	}
	sum := sha256.Sum256(out.Bytes())
	zipped := sync.OnceValue(func() []byte {
		var all bytes.Buffer
		z := gzip.NewWriter(&all)
		_, _ = z.Write(out.Bytes())
		_ = z.Close()
		return all.Bytes()
	})
	return response{status, out.Bytes(), zipped, `W/"` + hex.EncodeToString(sum[:8]) + `"`, v.Every}, nil
}

// write serves a page that is not polled.
func (s *Site) write(w http.ResponseWriter, res response) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(res.status)
	_, _ = w.Write(res.html)
}

// send serves a page, compressed if the client accepts it, or 304 if the client has it. Pages with form tokens are not compressed,
// because the size of a response would reveal them.
func (s *Site) send(w http.ResponseWriter, r *http.Request, res response) {
	h := w.Header()
	h.Set("ETag", res.tag)
	h.Set("Vary", "Accept-Encoding")
	h.Set(pollHeader, strconv.Itoa(max(1, int(math.Ceil(min(res.keep, pingEvery).Seconds())))))
	if res.status == http.StatusOK && r.Header.Get("If-None-Match") == res.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if len(res.html) >= minZip && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		res.html = res.zipped()
	}
	s.write(w, res)
}
