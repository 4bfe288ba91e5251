// Package fetch gets the pages of a site politely and says precisely what
// went wrong when it cannot.
//
// A Client is made for one definition. Its requests pass through a stack of
// transports, outermost first: robots.txt and the clock of the site, both of
// package polite, then the routes of sessions, then whatever the Config
// brings, usually proxies. What a page or an error means is a Class; PolicyFor
// has what is done about it.
package fetch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"muster/internal/addressfilter"
	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/polite"
)

// Config sets up a Client.
type Config struct {
	Definition *definition.Definition
	// Filter says which addresses that are not public may be connected to without a proxy, beside those that Definition
	// allows. It holds for the transports that the client makes itself. Defaults to none.
	Filter    *addressfilter.Filter
	Transport http.RoundTripper // carries the requests. Defaults to a transport of its own without proxies.
	Direct    http.RoundTripper // carries them when there is no proxy and the definition says direct. Defaults to one like that.
	// NoProxy is what Transport's error is when it has no proxy. If the proxies only rest, a method Resting of that error
	// says for how long. Defaults to none.
	NoProxy error
	// Refused is called with an answer that turned out to be a refusal although its status is that of a page, after its
	// body was read and closed. Transport can then keep its proxy from the site. Defaults to nothing.
	Refused  func(*http.Response)
	Clock    polite.Clock                // Defaults to one in this process.
	Key      string                      // of the site at Clock. Defaults to the site of Definition.
	Throttle *polite.Throttle            // of the site, for a definition with autothrottle. Defaults to none.
	Via      func(*http.Response) string // names the proxy that an answer came by, or "". Defaults to none.
	// Route makes a route of Transport that a session keeps to, in the place of another, or of nil. Defaults to none: the
	// requests of a session go by whichever proxy Transport chooses.
	Route    func(before Route) Route
	Ended    func(why string)    // called when a session has ended; it must not block. Defaults to nothing.
	Patience time.Duration       // the longest wait for a turn that Get sits out. Defaults to 250 ms.
	Robots   *polite.RobotsCache // Defaults to one of its own.
	Logger   *slog.Logger        // Defaults to none.
}

// Client gets pages of one site. It may be used by many goroutines.
type Client struct {
	cfg    Config
	def    *definition.Definition
	http   *http.Client
	own    *http.Transport
	direct sync.Once // logs that requests go without a proxy

	sessions *sessions // nil: the definition wants none
}

// NewClient returns a Client for the site of cfg.Definition.
func NewClient(cfg Config) *Client {
	filter := FilterFor(cfg.Definition, cfg.Filter)
	own := DirectTransport(filter)
	if cfg.Direct == nil && (cfg.Transport == nil || cfg.NoProxy != nil) {
		cfg.Direct = own
	}
	if cfg.Transport == nil {
		cfg.Transport = own
	}
	if cfg.Direct == nil {
		cfg.Direct = cfg.Transport
	}
	if cfg.Clock == nil {
		cfg.Clock = &polite.LocalClock{}
	}
	cfg.Key = cmp.Or(cfg.Key, cfg.Definition.Site)
	if !cfg.Definition.Politeness.AutoThrottle {
		cfg.Throttle = nil
	}
	if cfg.Via == nil {
		cfg.Via = func(*http.Response) string { return "" }
	}
	if cfg.Ended == nil {
		cfg.Ended = func(string) {}
	}
	if cfg.Patience == 0 {
		cfg.Patience = 250 * time.Millisecond
	}
	if cfg.Robots == nil {
		cfg.Robots = &polite.RobotsCache{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Transport = rendered(cfg.Definition, filter, cfg.Transport)
	c := &Client{cfg: cfg, def: cfg.Definition, own: own}
	c.http = &http.Client{
		Transport:     c.stack(),
		CheckRedirect: c.checkRedirect,
	}
	if c.def.Session != nil {
		c.sessions = newSessions(c)
	}
	return c
}

// Close ends the sessions of the client. It does not stop requests.
func (c *Client) Close() {
	if c.sessions != nil {
		c.sessions.close()
	}
	c.own.CloseIdleConnections()
}

// Get fetches a page of a kind. Every error is an *Error. A page that came
// but is blocked is recognized by Inspect, which needs it parsed.
func (c *Client) Get(ctx context.Context, rawURL, kind string) (extract.Page, error) {
	if c.sessions == nil {
		return c.get(ctx, nil, rawURL, kind)
	}
	for tries := c.def.Session.Max; ; tries-- {
		s := c.sessions.acquire()
		page, err := extract.Page{Requested: rawURL, Kind: kind}, c.sessions.begin(context.WithValue(ctx, sessionKey{}, s), s)
		if err == nil {
			page, err = c.get(context.WithValue(ctx, sessionKey{}, s), s, rawURL, kind)
		}
		c.sessions.release(s, err)
		if tries <= 0 || !isUnsent(err) {
			return page, err
		}
	}
}

// get is Get in a session, or in none.
func (c *Client) get(ctx context.Context, s *session, rawURL, kind string) (extract.Page, error) {
	page, err := c.once(ctx, s, rawURL, kind)
	for hops := 0; err == nil; hops++ {
		to, rerr := c.refreshed(page, hops)
		if rerr != nil {
			return page, c.failed(ctx, rawURL, rerr)
		}
		if to == nil {
			break
		}
		before := page.Took
		page, err = c.once(ctx, s, to.String(), kind)
		page.Requested = rawURL
		page.Took += before
	}
	return page, err
}

// once fetches a page, and follows the redirects of HTTP.
func (c *Client) once(ctx context.Context, s *session, rawURL, kind string) (extract.Page, error) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, kindKey{}, kind), c.def.Limits.PageTimeout)
	defer cancel()
	ctx, measure := measured(ctx)
	page := extract.Page{Requested: rawURL, Kind: kind}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, rawURL, nil)
	if err != nil {
		return page, &Error{Class: Refused, URL: rawURL, Err: err}
	}
	c.setHeaders(req, kind, s)
	client := c.http
	if s != nil {
		client = s.http
	}
	res, err := client.Do(req)
	if err != nil {
		return page, c.failed(ctx, rawURL, err)
	}
	defer res.Body.Close()
	c.head(&page, res, s)
	if err := c.statusError(ctx, rawURL, kind, res); err != nil {
		_, _ = io.CopyN(io.Discard, res.Body, 64<<10) // keeps the connection
		return page, err
	}
	began := time.Now()
	page.Body, err = readAll(res, int64(c.def.Limits.MaxBytes))
	if err != nil {
		return page, c.noteVia(res, c.failed(ctx, rawURL, err))
	}
	page.Took = measure.heads() + time.Since(began)
	c.cfg.Logger.Debug("fetched page", "site", c.def.Site, "url", rawURL, "status", res.StatusCode, "bytes", len(page.Body), "took", page.Took)
	if len(page.Body) < 64 && len(bytes.TrimSpace(page.Body)) == 0 {
		return page, &Error{Class: Empty, URL: rawURL, Status: res.StatusCode, Err: errors.New("the page is empty")}
	}
	return page, nil
}

// head notes in a page what the head of its answer says, and what to do when its content shows that it is none.
func (c *Client) head(page *extract.Page, res *http.Response, s *session) {
	page.URL, page.Status, page.Header, page.FetchedAt = res.Request.URL, res.StatusCode, res.Header, time.Now()
	page.Via = c.cfg.Via(res)
	if c.cfg.Refused != nil || s != nil {
		page.Refused = func() {
			if c.cfg.Refused != nil {
				c.cfg.Refused(res)
			}
			if s != nil {
				c.sessions.retire(s, string(SoftBlock))
			}
		}
	}
	if s != nil {
		page.Suspect = func() { c.sessions.suspect(s) }
	}
}
