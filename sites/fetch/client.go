// Package fetch fetches the pages of a site politely and classifies failures.
//
// A Client belongs to one definition. Its requests pass a stack of transports, outermost first: robots.txt and the clock of the
// site, both of package polite, then the route of the visitor, then Config.Transport, usually proxies. Each error has a Class;
// PolicyFor returns the retries of a class.
package fetch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/internal/addressfilter"
	"muster/internal/contentencoding"
	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/polite"
	"muster/sites/render"
)

// Config configures a Client.
type Config struct {
	Definition *definition.Definition
	// Filter allows direct connections to non-public addresses, in addition to the addresses that Definition allows. It applies
	// to the transports that the client creates itself. Defaults to none.
	Filter    *addressfilter.Filter
	Transport http.RoundTripper // sends the requests. Defaults to a new transport without proxies.
	// NoProxy is the error (for errors.Is) of Transport if no proxy is available. If all proxies are resting, the error has a
	// method Resting that returns the remaining time. Defaults to none.
	NoProxy error
	// OnBlocked is called with the response of a page that is blocked although its status is a success, after its body has been
	// read and closed. Transport can then stop using the proxy for the site. Defaults to none.
	OnBlocked func(*http.Response)
	Clock     polite.Clock                // Defaults to a clock of this process.
	Key       string                      // key of the site in Clock. Defaults to the site of Definition.
	Throttle  *polite.Throttle            // adds delays after 429 and, with autothrottle, for response times. Defaults to none.
	Via       func(*http.Response) string // returns the proxy of a response, or "". Defaults to none.
	// Route returns a route through Transport for a session's visitor. Defaults to none: Transport chooses a proxy per request.
	Route    func() Route
	Ended    func(why string)    // called at the end of a session's visitor; it must not block. Defaults to none.
	Patience time.Duration       // maximum wait of Get for the request rate. Defaults to 250 ms.
	Robots   *polite.RobotsCache // Defaults to a separate cache.
	Browser  render.Renderer     // renders pages if the definition has render and no render.url. Defaults to none, which fails these pages.
	// BrowserProxy returns the URL of a proxy for the browser of a visitor. Defaults to none: the browser connects directly.
	BrowserProxy func(visitor string) (string, error)
	Extractors   map[string]string // commands of extractors by name, which definitions may use. Defaults to none.
	Cache        string            // directory of a cache of pages; its pages are not fetched, whatever their age. Defaults to none.
	Logger       *slog.Logger      // Defaults to none.
}

// Client fetches pages of one site. It is safe for concurrent use.
type Client struct {
	cfg      Config
	def      *definition.Definition
	http     *http.Client
	own      *http.Transport
	directly http.RoundTripper // sends requests without a proxy, if proxy.fallback is direct
	direct   sync.Once         // for the log of direct requests
	tls      bool              // the definition has only https URLs; see withIdentity

	visitors *visitors
	render   *renderer

	extractors *http.Client
}

// NewClient returns a Client for the site of cfg.Definition.
func NewClient(cfg Config) *Client {
	filter := FilterFor(cfg.Definition, cfg.Filter)
	own := DirectTransport(filter)
	directly := cfg.Transport
	if cfg.Transport == nil || cfg.NoProxy != nil {
		directly = own
	}
	if cfg.Transport == nil {
		cfg.Transport = own
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
	cfg.Patience = cmp.Or(cfg.Patience, 250*time.Millisecond)
	if cfg.Robots == nil {
		cfg.Robots = &polite.RobotsCache{}
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Transport = contentencoding.Transport(cfg.Transport)
	c := &Client{cfg: cfg, def: cfg.Definition, own: own, directly: contentencoding.Transport(directly), render: newRenderer(cfg.Definition, cfg, filter), extractors: serviceClient(cfg.Definition.Extractor.URL, filter)}
	c.http = &http.Client{Transport: c.stack(), CheckRedirect: c.checkRedirect}
	c.tls = !slices.ContainsFunc(c.def.OwnURLs(), func(u string) bool { return strings.HasPrefix(u, "http:") })
	c.visitors = newVisitors(c)
	return c
}

// Close ends the client's visitor. It does not cancel requests.
func (c *Client) Close() {
	c.visitors.close()
	c.own.CloseIdleConnections()
	c.render.idle()
	c.extractors.CloseIdleConnections()
}

// Get is Fetch with GET.
func (c *Client) Get(ctx context.Context, rawURL, kind string) (extract.Page, error) {
	return c.Fetch(ctx, rawURL, kind, definition.Post{})
}

// Fetch fetches a page of a kind. Every error is an *Error. Inspect detects blocked pages with a success status; it needs the
// parsed page.
func (c *Client) Fetch(ctx context.Context, rawURL, kind string, post definition.Post) (extract.Page, error) {
	return c.FetchChanged(ctx, rawURL, kind, post, Validators{})
}

// FetchChanged is like Fetch. If the site has the version of the page that known identifies, the page has the status 304 and no body.
func (c *Client) FetchChanged(ctx context.Context, rawURL, kind string, post definition.Post, known Validators) (extract.Page, error) {
	r := request{url: rawURL, kind: kind, post: post, known: known}
	var keep func(extract.Page) error
	if c.cfg.Cache != "" {
		page, err := readCached(cacheFile(c.cfg.Cache, c.def.Site, r))
		if err == nil {
			return page, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return page, &Error{Class: Parse, URL: rawURL, Err: err}
		}
		keep = func(p extract.Page) error { return c.keep(r, p) }
	}
	for tries := 1; ; tries++ {
		page, err := c.visit(ctx, r)
		if tries == maxVisitors || !isUnsent(err) {
			page.Keep = keep
			return page, err
		}
	}
}

// visit fetches a page as a visitor. If the page shows that the login has expired, visit logs in and fetches the page again.
func (c *Client) visit(ctx context.Context, r request) (extract.Page, error) {
	for again := false; ; again = true {
		u, err := c.visitors.acquire(ctx)
		if err != nil {
			return extract.Page{Requested: r.url, Kind: r.kind, Post: r.post}, err
		}
		page, err := c.get(context.WithValue(ctx, useKey{}, u), r)
		loggedOut := err == nil && page.Status != http.StatusNotModified && c.visitors.isLoggedOut(&page)
		c.visitors.release(u, err, loggedOut)
		if !loggedOut {
			return page, err
		}
		if again {
			return page, c.visitors.notSignedInError(page)
		}
		if err := c.visitors.expire(ctx, u); err != nil {
			return page, err
		}
	}
}

// get fetches a page and follows redirects and refreshes.
func (c *Client) get(ctx context.Context, r request) (extract.Page, error) {
	page, err := c.getOnce(ctx, r)
	for hops := 0; err == nil && page.Status != http.StatusNotModified; hops++ {
		to, rerr := c.refreshTarget(page, hops)
		if rerr != nil {
			return page, c.requestError(ctx, r.url, rerr)
		}
		if to == nil {
			break
		}
		before := page.Took
		page, err = c.getOnce(polite.Patient(ctx), request{url: to.String(), kind: r.kind})
		page.Requested = r.url
		page.Took += before
	}
	return page, err
}

// getOnce fetches a page and follows HTTP redirects.
func (c *Client) getOnce(ctx context.Context, r request) (extract.Page, error) {
	rawURL, kind := r.url, r.kind
	ctx, measure := measure(context.WithValue(ctx, kindKey{}, kind))
	page := extract.Page{Requested: rawURL, Kind: kind, Post: r.post}
	req, err := r.http(ctx)
	if err != nil {
		return page, &Error{Class: ClientError, URL: rawURL, Err: err}
	}
	res, err := c.http.Do(req)
	if err != nil {
		return page, c.requestError(ctx, rawURL, err)
	}
	defer res.Body.Close()
	owner := useOf(ctx)
	if r.login { // the caller's request ends the visitor
		owner = nil
	}
	c.setHead(&page, res, owner)
	if r.known != (Validators{}) && res.StatusCode == http.StatusNotModified {
		page.Took = time.Duration(measure.took.Load())
		return page, nil
	}
	if err := c.statusError(ctx, rawURL, kind, res); err != nil {
		_, _ = io.CopyN(io.Discard, res.Body, 64<<10) // to reuse the connection
		return page, err
	}
	began := time.Now()
	page.Body, err = readAll(res, int64(c.def.Limits.MaxBytes))
	if err != nil {
		return page, c.noteVia(res, c.requestError(ctx, rawURL, err))
	}
	page.Took = time.Duration(measure.took.Load()) + time.Since(began)
	c.cfg.Logger.DebugContext(ctx, "fetched page", "site", c.def.Site, "url", rawURL, "status", res.StatusCode, "bytes", len(page.Body), "took", page.Took)
	if len(page.Body) < 64 && len(bytes.TrimSpace(page.Body)) == 0 {
		return page, &Error{Class: Empty, URL: rawURL, Status: res.StatusCode, Err: errors.New("the page is empty")}
	}
	return page, nil
}

// setHead sets the fields of a page that depend on the response header, and its callback. u is nil for a login.
func (c *Client) setHead(page *extract.Page, res *http.Response, u *use) {
	at := *res.Request.URL
	at.User, at.Fragment, at.RawFragment = nil, "", ""
	page.URL, page.Status, page.Header, page.FetchedAt = &at, res.StatusCode, res.Header, time.Now()
	if res.Request.Method == http.MethodGet {
		page.Post = definition.Post{} // a redirect led to another page
	}
	page.Via, page.Rendered = c.cfg.Via(res), isRendered(res)
	page.OnBlocked = func() {
		if c.cfg.OnBlocked != nil {
			c.cfg.OnBlocked(res)
		}
		if u != nil {
			c.visitors.retire(u.visitor, string(SoftBlock))
		}
	}
}
