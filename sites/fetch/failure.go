package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"muster/internal/addressfilter"
	"muster/sites/definition"
	"muster/sites/polite"
	"muster/sites/render"
)

// OutcomeOf returns the result of a request for the site's circuit breaker. err is from Get or from reading the page.
func OutcomeOf(err error) polite.Outcome {
	o := polite.Outcome{SiteUp: ClassOf(err).SiteUp()}
	if e, ok := errors.AsType[*Error](err); ok {
		o.OfSite, o.Blocked, o.Class, o.Via = e.OfSite(), e.Class == Blocked, string(e.Class), e.Via
		if e.Status == http.StatusInternalServerError { // of a broken page more often than of a site that is down
			o.Via = "status 500"
		}
	}
	return o
}

// leastRest is the minimum wait for resting proxies.
const leastRest = 50 * time.Millisecond

// requestError converts the error of a request to an *Error.
func (c *Client) requestError(ctx context.Context, rawURL string, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.URL = rawURL
		return e
	}
	if e, ok := errors.AsType[*polite.WaitError](err); ok {
		return &Error{Class: Throttled, URL: rawURL, After: e.After, Err: e}
	}
	if errors.Is(err, polite.ErrDisallowed) {
		return &Error{Class: Robots, URL: rawURL, Err: fmt.Errorf("%w; to ignore it, set politeness.robots: false in the definition", polite.ErrDisallowed)}
	}
	if e, ok := errors.AsType[*polite.RobotsError](err); ok {
		return c.robotsFailed(rawURL, e)
	}
	// A url.Error repeats the URL, which may contain secrets.
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	class := classOfNetwork(err)
	rendering, failed := errors.AsType[*render.Error](err)
	if failed {
		class = Class(rendering.Class)
	}
	switch {
	case errors.As(err, new(*redirectError)):
		class = Redirect
	case class != Proxy && addressfilter.Is(err):
		class, err = Address, fmt.Errorf("%w, or allow_addresses of the definition", err)
	case c.cfg.NoProxy != nil && errors.Is(err, c.cfg.NoProxy):
		class = NoProxy
	}
	e := &Error{Class: class, URL: rawURL, Err: err}
	if class == Connect && errors.Is(err, io.EOF) {
		e.Err = fmt.Errorf("connection closed before a response: %w", err)
	}
	var r interface{ Resting() time.Duration }
	if errors.As(err, &r) && class == NoProxy {
		e.After = min(max(r.Resting(), leastRest), c.def.Retries.Cap)
	}
	var v interface{ Via() string }
	if errors.As(err, &v) {
		e.Via = v.Via()
	}
	if measure, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		e.Direct = e.Via == "" && measure.asked.Load() != nil
	}
	if failed {
		e.Direct = c.render.proxy == nil
	}
	return e
}

// robotsFailed returns the *Error for a robots.txt that could not be fetched.
func (c *Client) robotsFailed(rawURL string, err *polite.RobotsError) *Error {
	ctx, res := err.Request.Context(), err.Response
	if res == nil {
		e := c.requestError(ctx, rawURL, err.Err)
		e.Err = fmt.Errorf("fetch robots.txt: %w", e.Err)
		return e
	}
	if e, ok := errors.AsType[*Error](c.statusError(ctx, rawURL, definition.KindSitemap, res)); ok {
		e.Err = fmt.Errorf("robots.txt: %w; no page may be fetched until it is available", e.Err)
		return e
	}
	e := bodyError(res, err)
	e.URL = rawURL
	return c.noteVia(res, e)
}
