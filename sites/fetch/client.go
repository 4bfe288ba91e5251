// Package fetch fetches the pages of a site politely and classifies what goes wrong.
//
// A Client is made for one definition. Its requests pass through a stack of transports, outermost first: robots.txt
// and the clock of the site, both of package polite, then the routes of sessions, then Config.Transport, usually
// proxies. Each error has a Class; PolicyFor says how pages of a class are retried.
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
	// Filter allows connections without a proxy to addresses that are not public, in addition to those that
	// Definition allows. It applies to the transports that the client makes itself. Defaults to none.
	Filter    *addressfilter.Filter
	Transport http.RoundTripper // sends the requests. Defaults to a transport of its own without proxies.
	Direct    http.RoundTripper // sends them when there is no proxy and the definition says direct. Defaults to a transport without proxies.
	// NoProxy is the error (as of errors.Is) of Transport when it has no proxy. If all proxies are resting, its error
	// has a method Resting that returns for how long. Defaults to none.
	NoProxy error
	// OnBlocked is called with the response of a page that is blocked although its status is a success, after its
	// body was read and closed. Transport can then stop using its proxy for the site. Defaults to none.
	OnBlocked func(*http.Response)
	Clock     polite.Clock                // Defaults to one in this process.
	Key       string                      // of the site at Clock. Defaults to the site of Definition.
	Throttle  *polite.Throttle            // of the site: more delay after 429, and with autothrottle by response times. Defaults to none.
	Via       func(*http.Response) string // returns the proxy that a response came through, or "". Defaults to none.
	// Route makes a route of Transport for a session that replaces another; before is the route of that one, or nil.
	// Defaults to none: Transport chooses a proxy for each request.
	Route    func(before Route) Route
	Ended    func(why string)    // called when a session has ended; it must not block. Defaults to none.
	Patience time.Duration       // the longest that Get waits for a turn. Defaults to 250 ms.
	Robots   *polite.RobotsCache // Defaults to one of its own.
	Logger   *slog.Logger        // Defaults to none.
}

// Client fetches pages of one site. It is safe for concurrent use.
type Client struct {
	cfg    Config
	def    *definition.Definition
	http   *http.Client
	own    *http.Transport
	direct sync.Once // logs that requests are sent without a proxy

	sessions *sessions // nil: the definition has none
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

// Close ends the sessions of the client. It does not cancel requests.
func (c *Client) Close() {
	if c.sessions != nil {
		c.sessions.close()
	}
	c.own.CloseIdleConnections()
}

// Get is Fetch by GET.
func (c *Client) Get(ctx context.Context, rawURL, kind string) (extract.Page, error) {
	return c.Fetch(ctx, rawURL, kind, definition.Post{})
}

// Fetch fetches a page of a kind. Every error is an *Error. Blocked pages with a status of success are recognized by
// Inspect, which needs the parsed page.
func (c *Client) Fetch(ctx context.Context, rawURL, kind string, post definition.Post) (extract.Page, error) {
	r := request{url: rawURL, kind: kind, post: post}
	if c.sessions == nil {
		return c.get(ctx, nil, r)
	}
	for tries := c.def.Session.Max; ; tries-- {
		s := c.sessions.acquire()
		page, err := c.visit(context.WithValue(ctx, sessionKey{}, s), s, r)
		c.sessions.release(s, err)
		if tries <= 0 || !isUnsent(err) {
			return page, err
		}
	}
}

// visit fetches a page in a session: after its first page and its login, and again after another login if the page
// says that the login is over.
func (c *Client) visit(ctx context.Context, s *session, r request) (extract.Page, error) {
	for again := false; ; again = true {
		login, err := c.sessions.begin(ctx, s)
		if err != nil {
			return extract.Page{Requested: r.url, Kind: r.kind, Post: r.post}, err
		}
		page, err := c.get(ctx, s, r)
		if err != nil {
			return page, err
		}
		if !c.sessions.isLoggedOut(page) {
			return page, nil
		}
		if again {
			return page, c.sessions.unsigned(page)
		}
		if err := c.sessions.expire(ctx, s, login); err != nil {
			return page, err
		}
	}
}

// get fetches a page, and follows its redirects and refreshes. s is nil without sessions.
func (c *Client) get(ctx context.Context, s *session, r request) (extract.Page, error) {
	page, err := c.getOnce(ctx, s, r)
	for hops := 0; err == nil; hops++ {
		to, rerr := c.refreshed(page, hops)
		if rerr != nil {
			return page, c.failed(ctx, r.url, rerr)
		}
		if to == nil {
			break
		}
		before := page.Took
		page, err = c.getOnce(polite.Patient(ctx), s, request{url: to.String(), kind: r.kind})
		page.Requested = r.url
		page.Took += before
	}
	return page, err
}

// getOnce fetches a page, and follows the redirects of HTTP.
func (c *Client) getOnce(ctx context.Context, s *session, r request) (extract.Page, error) {
	rawURL, kind := r.url, r.kind
	ctx, measure := measured(context.WithValue(ctx, kindKey{}, kind))
	page := extract.Page{Requested: rawURL, Kind: kind, Post: r.post}
	req, err := r.http(ctx)
	if err != nil {
		return page, &Error{Class: ClientError, URL: rawURL, Err: err}
	}
	client := c.http
	if s != nil {
		client = s.http.Load()
	}
	res, err := client.Do(req)
	if err != nil {
		return page, c.failed(ctx, rawURL, err)
	}
	defer res.Body.Close()
	owner := s
	if r.login { // whose end the caller's request decides
		owner = nil
	}
	c.setHead(&page, res, owner)
	if err := c.statusError(ctx, rawURL, kind, res); err != nil {
		_, _ = io.CopyN(io.Discard, res.Body, 64<<10) // so that the connection can be reused
		return page, err
	}
	began := time.Now()
	page.Body, err = readAll(res, int64(c.def.Limits.MaxBytes))
	if err != nil {
		return page, c.noteVia(res, c.failed(ctx, rawURL, err))
	}
	page.Took = measure.headTime() + time.Since(began)
	c.cfg.Logger.DebugContext(ctx, "fetched page", "site", c.def.Site, "url", rawURL, "status", res.StatusCode, "bytes", len(page.Body), "took", page.Took)
	if len(page.Body) < 64 && len(bytes.TrimSpace(page.Body)) == 0 {
		return page, &Error{Class: Empty, URL: rawURL, Status: res.StatusCode, Err: errors.New("the page is empty")}
	}
	return page, nil
}

// setHead sets the fields of a page that come from the head of its response, and its callbacks. s may be nil.
func (c *Client) setHead(page *extract.Page, res *http.Response, s *session) {
	page.URL, page.Status, page.Header, page.FetchedAt = res.Request.URL, res.StatusCode, res.Header, time.Now()
	if res.Request.Method == http.MethodGet {
		page.Post = definition.Post{} // a redirect led to another page
	}
	page.Via = c.cfg.Via(res)
	if c.cfg.OnBlocked != nil || s != nil {
		page.OnBlocked = func() {
			if c.cfg.OnBlocked != nil {
				c.cfg.OnBlocked(res)
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
