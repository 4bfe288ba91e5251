package fetch

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"muster/sites/definition"
)

// request describes an HTTP request.
type request struct {
	url, kind string
	post      definition.Post
	referer   string // page with the form, or ""
	login     bool   // part of a login
}

// http returns the request without the headers that identified adds.
func (r request) http(ctx context.Context) (*http.Request, error) {
	if r.post.IsZero() {
		return http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, strings.NewReader(r.post.Text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", r.post.Type)
	if from, err := url.Parse(r.referer); err == nil && r.referer != "" {
		req.Header.Set("Referer", r.referer)
		req.Header.Set("Origin", from.Scheme+"://"+from.Host)
	}
	return req, nil
}

// withIdentity returns a copy of a request with User-Agent and Accept headers and, only for hosts of the definition because they
// may be secret, the headers and cookies of the definition and the visitor. They are not sent in plain
// text, such as after a redirect from https to http, if all URLs in the definition are https. Every request of a client passes
// through here.
func (c *Client) withIdentity(req *http.Request) *http.Request {
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", c.def.UserAgent)
	if req.Header.Get("Accept") == "" {
		accept := "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
		if kind, _ := req.Context().Value(kindKey{}).(string); kind != "" && c.def.Page(kind).Format == definition.FormatJSON {
			accept = "application/json,*/*;q=0.8"
		}
		req.Header.Set("Accept", accept)
	}
	req.Header.Set("Accept-Language", "en;q=0.8,*;q=0.5")
	if !c.def.OwnsHost(req.URL) || c.tls && req.URL.Scheme != "https" {
		return req
	}
	for name, value := range c.def.Headers {
		if strings.EqualFold(name, "Host") {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	if u := useOf(req.Context()); u != nil && u.jar != nil {
		addCookies(req, u.jar.Cookies(req.URL))
	} else {
		addCookies(req, cookiesOf(c.def))
	}
	return req
}
