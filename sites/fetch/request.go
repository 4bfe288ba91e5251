package fetch

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"muster/sites/definition"
)

// request is what is requested.
type request struct {
	url, kind string
	post      definition.Post
	referer   string // the page whose form is sent, or ""
	login     bool   // it is part of a login
}

// http returns the request, without the headers of the definition.
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

// setHeaders sets the headers of a request: those of the definition, then those of the session's profile. A session's
// cookies are in its jar.
func (c *Client) setHeaders(req *http.Request, kind string, s *session) {
	req.Header.Set("User-Agent", c.def.UserAgent)
	accept := "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	if kind != "" && c.def.Page(kind).Format == definition.FormatJSON {
		accept = "application/json,*/*;q=0.8"
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("Accept-Language", "en;q=0.8,*;q=0.5")
	set := func(headers map[string]string) {
		for name, value := range headers {
			if strings.EqualFold(name, "Host") {
				req.Host = value
				continue
			}
			req.Header.Set(name, value)
		}
	}
	set(c.def.Headers)
	if s != nil {
		if s.profile != nil {
			set(s.profile.Headers)
		}
		return
	}
	for name, value := range c.def.Cookies {
		req.AddCookie(&http.Cookie{Name: name, Value: value})
	}
}
