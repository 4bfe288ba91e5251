package fetch

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"muster/internal/addressfilter"
	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/polite"
	"muster/sites/render"
)

// kindKey is the context key for the kind of the requested page.
type kindKey struct{}

// renderKey is the context key of requests and responses that are rendered although the definition does not say so for their kind.
type renderKey struct{}

// maxVain is the number of pages of a kind that render: auto renders in vain before it stops.
const maxVain = 3

// renderer fetches the pages of a definition that need JavaScript.
type renderer struct {
	def    *definition.Definition
	by     render.Renderer
	filter *addressfilter.Filter
	proxy  func(visitor string) (string, error) // nil: none
	idle   func()                               // closes unused connections

	mu   sync.Mutex
	auto map[string]int // by kind: pages rendered in vain; -1: pages of the kind need it
}

func newRenderer(def *definition.Definition, cfg Config, filter *addressfilter.Filter) *renderer {
	r := &renderer{def: def, by: cfg.Browser, filter: filter, proxy: cfg.BrowserProxy, idle: func() {}, auto: map[string]int{}}
	if def.Render.URL != "" {
		service := serviceClient(def.Render.URL, filter)
		r.idle = service.CloseIdleConnections
		r.by = &render.Client{URL: def.Render.URL, Key: def.Render.Key, HTTP: service}
		if u, err := url.Parse(def.Render.URL); err == nil && !addressfilter.IsLoopback(u.Hostname()) {
			r.proxy = nil // it cannot reach the proxies of this process
		}
	}
	return r
}

// wants reports whether a request is rendered. Requests for robots.txt, sitemaps and logins have no kind.
func (r *renderer) wants(req *http.Request) bool {
	kind, _ := req.Context().Value(kindKey{}).(string)
	if req.Method != http.MethodGet || !slices.Contains(r.def.Render.Kinds, kind) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.def.Render.When == definition.RenderAlways || r.auto[kind] < 0 || req.Context().Value(renderKey{}) != nil
}

// RoundTrip implements http.RoundTripper.
func (r *renderer) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.by == nil {
		return nil, &render.Error{Class: render.Failed, Err: render.ErrUnavailable}
	}
	q := render.Request{
		URL: req.URL.String(), Headers: map[string]string{}, Milliseconds: r.def.Render.Timeout.Milliseconds(), Wait: r.def.Render.Wait,
		MaxBytes: int64(r.def.Limits.MaxBytes), Filter: r.filter,
	}
	for name := range req.Header {
		if strings.HasPrefix(name, "If-") { // a browser needs the page
			continue
		}
		q.Headers[name] = req.Header.Get(name)
	}
	visitor := rand.Text()
	if u := useOf(req.Context()); u != nil && u.jar != nil { // without a jar each page has its own cookies
		visitor = fmt.Sprint(u.id, u.login)
		q.Session = visitor
	}
	if r.proxy != nil {
		var err error
		if q.Proxy, err = r.proxy(visitor); err != nil {
			return nil, err
		}
	}
	res, err := r.by.Render(req.Context(), q)
	if err != nil {
		return nil, err
	}
	final := req.WithContext(context.WithValue(req.Context(), renderKey{}, true))
	if at := res.Header.Get("X-Page-URL"); at != "" {
		u, err := req.URL.Parse(at)
		if err != nil || !r.def.InScope(r.def.Move(u)) {
			return nil, &redirectError{"renderer: X-Page-URL is outside the site; add its host to hosts if it belongs to the site"}
		}
		final.URL = r.def.Move(u)
	}
	res.Request = final
	return res, nil
}

// isRendered reports whether a response is from a renderer.
func isRendered(res *http.Response) bool { return res.Request.Context().Value(renderKey{}) != nil }

// CanRender reports whether Render may return more than a page has: the definition has render: auto, the page was not rendered, and
// rendering others of its kind was not in vain.
func (c *Client) CanRender(p extract.Page) bool {
	r := c.render
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.def.Render.When == definition.RenderAuto && !p.Rendered && p.Post.IsZero() && slices.Contains(r.def.Render.Kinds, p.Kind) && r.auto[p.Kind] < maxVain
}

// Render fetches a page again, rendered. Then call Learn.
func (c *Client) Render(ctx context.Context, p extract.Page) (extract.Page, error) {
	page, err := c.visit(context.WithValue(polite.Patient(ctx), renderKey{}, true), request{url: p.Requested, kind: p.Kind})
	page.Keep = p.Keep
	return page, err
}

// Learn stores whether a rendered page had what the page without JavaScript lacked: the next pages of its kind are rendered at once.
func (c *Client) Learn(ctx context.Context, kind string, helped bool) {
	r := c.render
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.auto[kind] < 0:
	case helped:
		r.auto[kind] = -1
		c.cfg.Logger.InfoContext(ctx, "pages need JavaScript and are rendered", "site", r.def.Site, "kind", kind)
	default:
		r.auto[kind]++
	}
}
