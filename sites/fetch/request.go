package fetch

import (
	"context"
	"net/http"
	"strings"

	"muster/sites/definition"
)

// newRequest returns a request for a page, without its headers except for that of a body.
func newRequest(ctx context.Context, rawURL string, post definition.Post) (*http.Request, error) {
	if post.IsZero() {
		return http.NewRequestWithContext(ctx, http.MethodGet, rawURL, nil)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, rawURL, strings.NewReader(post.Text))
	if err == nil {
		req.Header.Set("Content-Type", post.Type)
	}
	return req, err
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
