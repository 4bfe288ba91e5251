package fetch

import (
	"fmt"
	"net/http"
	"net/url"

	"muster/sites/definition"
	"muster/sites/extract"
)

// redirectError means that a redirect is not followed.
type redirectError struct{ why string }

func (e *redirectError) Error() string { return e.why }

// outside returns the error of a redirect to a URL that is not part of the site. It repeats only the host, because the rest may
// contain secrets.
func (c *Client) outside(to *url.URL) error {
	why := "add its host to hosts if it belongs to the site"
	if c.def.OwnsHost(to) {
		why = "scope excludes it"
	}
	return &redirectError{fmt.Sprintf("redirect to %s outside the site; %s", &url.URL{Scheme: to.Scheme, Host: to.Host}, why)}
}

func (c *Client) checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > c.def.Limits.Redirects {
		why := fmt.Sprintf("too many redirects: more than limits.redirects (%d)", c.def.Limits.Redirects)
		switch {
		case !setsCookies(req.Response):
		case c.def.Cookies.Off:
			why += "; they set cookies, which cookies: off drops"
		default:
			why += "; they set cookies that the site does not accept"
		}
		return &redirectError{why}
	}
	req.Header.Del("If-None-Match") // the validators are of the first URL
	req.Header.Del("If-Modified-Since")
	req.URL.User = nil // a login is not sent, nor stored in records
	if moved := c.def.Move(req.URL); moved != req.URL {
		req.URL = moved
		req.Host = ""
	}
	if !c.def.InScope(req.URL) {
		return c.outside(req.URL)
	}
	first := via[0].URL
	if req.Body != nil && (req.URL.Host != first.Host || first.Scheme == "https" && req.URL.Scheme != "https") {
		return &redirectError{"redirect would resend the form to another URL"} // the form may contain a password
	}
	return nil
}

// setsCookies reports whether a response, or one of the redirects that led to it, sets a cookie.
func setsCookies(res *http.Response) bool {
	for ; res != nil; res = res.Request.Response {
		if res.Header.Get("Set-Cookie") != "" {
			return true
		}
	}
	return false
}

// refreshTarget returns the target of a page's refresh, or nil. Each refresh counts as a redirect; hops is the number of earlier
// redirects.
func (c *Client) refreshTarget(page extract.Page, hops int) (*url.URL, error) {
	if definition.IsRaw(page.Kind) || c.def.Page(page.Kind).Format == definition.FormatJSON {
		return nil, nil
	}
	to := page.Refresh()
	if to == nil {
		return nil, nil
	}
	to = c.def.Move(to)
	switch {
	case hops > 0 && to.String() == page.URL.String():
		return nil, nil // the site does not insist on its cookie, or the client keeps none
	case hops == c.def.Limits.Redirects:
		return nil, &redirectError{fmt.Sprintf("too many refreshes: more than limits.redirects (%d)", hops)}
	case !c.def.InScope(to) && isChallenge(to):
		return nil, nil // Inspect recognizes the challenge
	case !c.def.InScope(to):
		return nil, c.outside(to)
	}
	return to, nil
}
