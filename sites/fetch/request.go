package fetch

import (
	"context"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"muster/sites/definition"
	"muster/sites/extract"
)

// request describes an HTTP request.
type request struct {
	url, kind string
	post      definition.Post
	referer   string // page with the form, or ""
	login     bool   // part of a login
	known     Validators
}

// Validators identify the version of a page in a conditional request.
type Validators struct {
	ETag     string `json:"etag,omitempty"`
	Modified string `json:"modified,omitempty"`
}

// set adds the validators to a request.
func (v Validators) set(h http.Header) {
	for name, value := range map[string]string{"If-None-Match": v.ETag, "If-Modified-Since": v.Modified} {
		if value != "" {
			h.Set(name, value)
		}
	}
}

// ValidatorsOf returns the validators of a page. A page that was redirected or rendered has none: they would be of another page.
func ValidatorsOf(p extract.Page) Validators {
	if p.Rendered || !p.Post.IsZero() || p.URL.String() != p.Requested {
		return Validators{}
	}
	return Validators{p.Header.Get("ETag"), p.Header.Get("Last-Modified")}
}

// http returns the request without the headers that identified adds.
func (r request) http(ctx context.Context) (*http.Request, error) {
	if r.post.IsZero() {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
		if err == nil {
			r.known.set(req.Header)
		}
		return req, err
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

// newJar returns a jar with the cookies of a definition, or nil if the definition keeps no cookies.
func newJar(def *definition.Definition, secure bool) http.CookieJar {
	if def.Cookies.Off {
		return nil
	}
	jar, _ := cookiejar.New(nil) // never fails
	given := cookiesOf(def)
	for _, host := range def.Hosts {
		name, _ := definition.SplitHost(host) // cookies apply to all ports
		under, wild := strings.CutPrefix(name, "*.")
		for _, c := range given {
			c.Path, c.Domain, c.Secure = "/", "", secure
			if wild {
				c.Domain = under
			}
		}
		jar.SetCookies(&url.URL{Scheme: "https", Host: under, Path: "/"}, given)
	}
	return jar
}

// cookiesOf returns the cookies of a definition.
func cookiesOf(def *definition.Definition) []*http.Cookie {
	var given []*http.Cookie
	for _, name := range slices.Sorted(maps.Keys(def.Cookies.Values)) {
		given = append(given, &http.Cookie{Name: name, Value: def.Cookies.Values[name]})
	}
	return given
}

// addCookies adds cookies to a request as they are. net/http would quote or drop some values.
func addCookies(req *http.Request, cookies []*http.Cookie) {
	if len(cookies) == 0 {
		return
	}
	var pairs []string
	for _, c := range cookies {
		pairs = append(pairs, strings.TrimPrefix(c.Name+"="+c.Value, "="))
	}
	req.Header.Set("Cookie", strings.Join(pairs, "; "))
}

// cookiesIn returns the cookies that a response sets, with the names and values that browsers accept (RFC 6265, 5.2). net/http
// drops those that servers should not send, such as JSON.
func cookiesIn(header http.Header) []*http.Cookie {
	var set []*http.Cookie
	for _, line := range header.Values("Set-Cookie") {
		pair, attributes, _ := strings.Cut(line, ";")
		name, value, named := strings.Cut(pair, "=")
		if !named {
			name, value = "", pair
		}
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		c, err := http.ParseSetCookie("name=value;" + attributes)
		if err != nil || name+value == "" || !httpguts.ValidHeaderFieldValue(pair) {
			continue
		}
		c.Name, c.Value, c.Domain = name, value, strings.TrimPrefix(c.Domain, ".")
		set = append(set, c)
	}
	return set
}
