package fetch

import (
	"errors"
	"net/http"
	"net/url"

	"muster/sites/definition"
	"muster/sites/extract"
)

var (
	errScope     = errors.New("redirect outside the site")
	errRedirects = errors.New("too many redirects")
	errBody      = errors.New("redirect would resend the form to another URL")
)

func (c *Client) checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > c.def.Limits.Redirects {
		return errRedirects
	}
	if moved := c.def.Move(req.URL); moved != req.URL {
		req.URL = moved
		req.Host = ""
	}
	if !c.def.InScope(req.URL) {
		return errScope
	}
	first := via[0].URL
	if req.Body != nil && (req.URL.Host != first.Host || first.Scheme == "https" && req.URL.Scheme != "https") {
		return errBody // the form may contain a password
	}
	return nil
}

// refreshTarget returns the target of a page's refresh, or nil. Each refresh counts as a redirect; hops is the number of earlier
// redirects.
func (c *Client) refreshTarget(page extract.Page, hops int) (*url.URL, error) {
	if page.Kind == definition.KindSitemap || c.def.Page(page.Kind).Format == definition.FormatJSON {
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
		return nil, errRedirects
	case !c.def.InScope(to) && isChallenge(to):
		return nil, nil // Inspect recognizes the challenge
	case !c.def.InScope(to):
		return nil, errScope
	}
	return to, nil
}
