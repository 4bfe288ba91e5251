package fetch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"muster/internal/addressfilter"
	"muster/sites/definition"
)

// kindKey is the context key for the kind of the requested page.
type kindKey struct{}

// renderer fetches pages that need JavaScript from an HTTP endpoint, usually a browser. It sends requests for other kinds of
// pages and for robots.txt with next.
type renderer struct {
	def  *definition.Definition
	next http.RoundTripper
	http *http.Client
}

// CloseIdleConnections closes the unused connections to the endpoint.
func (r *renderer) CloseIdleConnections() { r.http.CloseIdleConnections() }

// newRenderer returns a renderer if the definition has one, and next otherwise.
func newRenderer(def *definition.Definition, filter *addressfilter.Filter, next http.RoundTripper) http.RoundTripper {
	if def.Render.URL == "" {
		return next
	}
	return &renderer{def: def, next: next, http: &http.Client{
		Transport:     DirectTransport(filter.WithURLs(def.Render.URL)),
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("the renderer redirects") },
	}}
}

// RoundTrip implements http.RoundTripper. It sends the endpoint a POST with
//
//	{"url": "…", "headers": {"User-Agent": "…"}, "timeout_ms": 30000}
//
// and expects 200 with the page's HTML. Two response headers are optional: X-Page-Status, the status of the
// site's response, and X-Page-URL, the URL after redirects, which must be on the site.
func (r *renderer) RoundTrip(req *http.Request) (*http.Response, error) {
	kind, _ := req.Context().Value(kindKey{}).(string)
	if !slices.Contains(r.def.Render.Kinds, kind) {
		return r.next.RoundTrip(req)
	}
	headers := map[string]string{}
	for name := range req.Header {
		headers[name] = req.Header.Get(name)
	}
	body, err := json.Marshal(map[string]any{"url": req.URL.String(), "headers": headers, "timeout_ms": r.def.Render.Timeout.Milliseconds()})
	if err != nil {
		return nil, fmt.Errorf("create request to the renderer: %w", err)
	}
	ctx, cancel := context.WithTimeout(req.Context(), r.def.Render.Timeout+time.Second)
	rendering, err := http.NewRequestWithContext(ctx, http.MethodPost, r.def.Render.URL, bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("create request to the renderer: %w", err)
	}
	rendering.Header.Set("Content-Type", "application/json")
	res, err := r.http.Do(rendering)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("request to render.url: %w", err)
	}
	res.Body = &cancelBody{res.Body, cancel}
	if res.StatusCode != http.StatusOK {
		_ = res.Body.Close()
		return nil, fmt.Errorf("renderer: HTTP status %d; see its log", res.StatusCode)
	}
	return r.page(req, res)
}

// page converts the renderer's response to the site's response.
func (r *renderer) page(req *http.Request, res *http.Response) (*http.Response, error) {
	if s := res.Header.Get("X-Page-Status"); s != "" {
		status, err := strconv.Atoi(s)
		if err != nil || status < 200 || status > 599 {
			_ = res.Body.Close()
			return nil, fmt.Errorf("renderer: invalid X-Page-Status %q", s)
		}
		res.StatusCode = status
	}
	res.Request = req
	if at := res.Header.Get("X-Page-URL"); at != "" {
		u, err := req.URL.Parse(at)
		if err != nil || !r.def.InScope(r.def.Move(u)) {
			_ = res.Body.Close()
			return nil, &redirectError{"renderer: X-Page-URL is outside the site; add its host to hosts if it belongs to the site"}
		}
		final := *req
		final.URL = r.def.Move(u)
		res.Request = &final
	}
	return res, nil
}

// cancelBody calls cancel when a body is closed.
type cancelBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (e *cancelBody) Close() error {
	defer e.cancel()
	return e.ReadCloser.Close()
}
