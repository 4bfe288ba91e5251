// Package fetch gets the pages of a site politely and says precisely what
// went wrong when it cannot.
//
// A Client is made for one definition. Its requests pass through a stack of
// transports, outermost first: scope and robots.txt, then the pace of the
// site, then whatever the Config brings, usually proxies. What a page or an
// error means is a Class; PolicyFor has what is done about it.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/internal/addressfilter"
	"muster/sites/definition"
	"muster/sites/extract"
)

// Pacer hands out the turns of a site, best among all processes.
type Pacer interface {
	// Take takes a turn if it is time for one, the interval after the last,
	// and returns 0; otherwise it takes nothing and returns how long to wait.
	// It does not block.
	Take(ctx context.Context, interval time.Duration) (time.Duration, error)
	// Hold gives out no turn for a while.
	Hold(ctx context.Context, d time.Duration) error
}

// Throttle makes a delay of how slowly a site answers, best for all processes.
type Throttle interface {
	// Observe takes in the time from a request to the head of its answer, and
	// whether that was a page.
	Observe(ctx context.Context, latency time.Duration, ok bool) error
	// Delay is the delay that the answers ask for. It does no I/O.
	Delay() time.Duration
}

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
	// Refused is told of an answer that turned out to be a refusal although its status says otherwise, after its body was
	// read and closed, so that Transport can spare the site whom it does not want. Defaults to nobody.
	Refused  func(*http.Response)
	Pacer    Pacer                       // Defaults to one in this process.
	Throttle Throttle                    // with autothrottle. Defaults to one in this process.
	Via      func(*http.Response) string // names the proxy that an answer came by, or "". Defaults to none.
	// Route makes a way of Transport that a session keeps to, in the place of another, or of nil. Defaults to none: the
	// requests of a session go whichever way Transport takes.
	Route    func(before Route) Route
	Ended    func(why string) // hears that a session has ended; it must not block. Defaults to nobody.
	Patience time.Duration    // the longest wait for a turn that Get sits out. Defaults to 250 ms.
	Robots   *RobotsCache     // Defaults to one of its own.
	Logger   *slog.Logger     // Defaults to none.
}

// Client gets pages of one site. It may be used by many goroutines.
type Client struct {
	cfg    Config
	def    *definition.Definition
	http   *http.Client
	own    *http.Transport
	direct sync.Once // tells that requests go without a proxy

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
	if cfg.Pacer == nil {
		cfg.Pacer = &LocalPacer{}
	}
	if cfg.Throttle == nil {
		cfg.Throttle = &LocalThrottle{}
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
		cfg.Robots = &RobotsCache{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Transport = rendered(cfg.Definition, filter, cfg.Transport)
	c := &Client{cfg: cfg, def: cfg.Definition, own: own}
	c.http = &http.Client{
		Transport:     &polite{c},
		CheckRedirect: c.checkRedirect,
	}
	if c.def.Session != nil {
		c.sessions = newSessions(c)
	}
	return c
}

// Close ends the sessions of the client. Pages that are under way end.
func (c *Client) Close() {
	if c.sessions != nil {
		c.sessions.close()
	}
	c.own.CloseIdleConnections()
}

// DirectTransport is a transport without a proxy, whatever the environment
// says. It connects to the addresses that filter lets it.
func DirectTransport(filter *addressfilter.Filter) *http.Transport {
	t := filter.Transport()
	t.MaxIdleConnsPerHost = 64
	t.TLSHandshakeTimeout = 15 * time.Second
	t.ResponseHeaderTimeout = 60 * time.Second
	return t
}

// FilterFor returns base with the exceptions of a definition: its
// allow_addresses, and those of its own URLs that are written as addresses.
func FilterFor(def *definition.Definition, base *addressfilter.Filter) *addressfilter.Filter {
	f, err := base.With(def.Addresses...)
	if err != nil { // of one that was not loaded
		f = base
	}
	return f.WithURLs(def.OwnURLs()...)
}

var (
	errScope     = errors.New("leads out of the site")
	errRedirects = errors.New("too many redirects")
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
	return nil
}

// Get fetches a page of a kind. Every error is an *Error. A page that came
// but looks like a refusal is told by Inspect, which needs it parsed.
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

// get is Get in a session, or in none. A page that sends its readers on by
// itself counts as a redirect.
func (c *Client) get(ctx context.Context, s *session, rawURL, kind string) (extract.Page, error) {
	page, err := c.once(ctx, s, rawURL, kind)
	for hops := 0; err == nil && kind != definition.KindSitemap && c.def.Page(kind).Format != definition.FormatJSON; hops++ {
		to := page.Refresh()
		if to == nil {
			break
		}
		switch to = c.def.Move(to); {
		case hops == c.def.Limits.Redirects:
			return page, c.failed(ctx, rawURL, errRedirects)
		case !c.def.InScope(to) && captchaURL.MatchString(to.String()):
			return page, nil // what it is, its signs tell
		case !c.def.InScope(to):
			return page, c.failed(ctx, rawURL, errScope)
		}
		before := page.Took
		page, err = c.once(ctx, s, to.String(), kind)
		page.Requested = rawURL
		page.Took += before
	}
	return page, err
}

// once asks for a page, and follows the redirects of HTTP.
func (c *Client) once(ctx context.Context, s *session, rawURL, kind string) (extract.Page, error) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, kindKey{}, kind), c.def.Limits.PageTimeout)
	defer cancel()
	ctx, measure := measured(ctx)
	page := extract.Page{Requested: rawURL, Kind: kind}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, rawURL, nil)
	if err != nil {
		return page, &Error{Class: Refused, URL: rawURL, Err: err}
	}
	c.dress(req, kind, s)
	client := c.http
	if s != nil {
		client = s.http
	}
	res, err := client.Do(req)
	if err != nil {
		return page, c.failed(ctx, rawURL, err)
	}
	defer res.Body.Close()
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
	if err := c.judge(ctx, rawURL, kind, res); err != nil {
		_, _ = io.CopyN(io.Discard, res.Body, 64<<10) // keeps the connection
		return page, err
	}
	began := time.Now()
	page.Body, err = readAll(res, int64(c.def.Limits.MaxBytes))
	if err != nil {
		return page, c.from(res, c.failed(ctx, rawURL, err))
	}
	page.Took = measure.heads() + time.Since(began)
	c.cfg.Logger.Debug("fetched page", "site", c.def.Site, "url", rawURL, "status", res.StatusCode, "bytes", len(page.Body), "took", page.Took)
	if len(strings.TrimSpace(string(page.Body[:min(len(page.Body), 64)]))) == 0 && len(page.Body) < 64 {
		return page, &Error{Class: Empty, URL: rawURL, Status: res.StatusCode, Err: errors.New("the page is empty")}
	}
	return page, nil
}

// dress gives a request its headers: those of the definition, and over them
// those of the session's profile. The cookies of a session are in its jar.
func (c *Client) dress(req *http.Request, kind string, s *session) {
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

// leastRest is the shortest time for which proxies are taken to rest.
const leastRest = 50 * time.Millisecond

// failed makes an *Error of what went wrong with a request.
func (c *Client) failed(ctx context.Context, rawURL string, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.URL = rawURL
		return e
	}
	// A url.Error repeats the URL, with what secrets it may hold.
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	class := classOfNetwork(err)
	switch {
	case errors.Is(err, errScope), errors.Is(err, errRedirects):
		class = Redirect
	case class != Proxy && addressfilter.Is(err):
		class, err = Address, fmt.Errorf("%w, or allow_addresses of the definition", err)
	case c.cfg.NoProxy != nil && errors.Is(err, c.cfg.NoProxy):
		class = NoProxy
	}
	e := &Error{Class: class, URL: rawURL, Err: err}
	if class == Connect && errors.Is(err, io.EOF) {
		e.Err = fmt.Errorf("the connection was closed before an answer came: %w", err)
	}
	if r, ok := errors.AsType[interface {
		error
		Resting() time.Duration
	}](err); ok && class == NoProxy {
		e.After = min(max(r.Resting(), leastRest), c.def.Retries.Cap)
	}
	if v, ok := errors.AsType[interface {
		error
		Via() string
	}](err); ok {
		e.Via = v.Via()
	}
	if measure, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		e.Direct = e.Via == "" && measure.isSent()
	}
	return e
}

// from notes by what way an answer came that is none.
func (c *Client) from(res *http.Response, e *Error) *Error {
	e.Via = c.cfg.Via(res)
	e.Direct = e.Via == ""
	return e
}

// judge turns a status into an error, or nil for a page.
func (c *Client) judge(ctx context.Context, rawURL, kind string, res *http.Response) error {
	fail := func(class Class, after time.Duration) error {
		return c.from(res, &Error{Class: class, URL: rawURL, Status: res.StatusCode, After: after, Err: fmt.Errorf("the site answered %d %s", res.StatusCode, http.StatusText(res.StatusCode))})
	}
	after, told := retryAfter(res.Header.Get("Retry-After"), time.Now())
	after = min(after, c.def.Politeness.RetryAfterMax)
	switch s := res.StatusCode; {
	case s == http.StatusTooManyRequests, s == http.StatusServiceUnavailable && told:
		if !told {
			after = min(time.Minute, c.def.Politeness.RetryAfterMax)
		}
		if v := sessionOf(ctx); v != nil && s == http.StatusTooManyRequests && c.sessions.alone(v) {
			return fail(RateLimited, 0) // another session may ask
		}
		if err := c.cfg.Pacer.Hold(ctx, after); err != nil {
			c.cfg.Logger.Warn("cannot hold the site's clock", "site", c.def.Site, "error", err)
		}
		return fail(RateLimited, after)
	case s >= 500:
		return fail(Server, after)
	case s == http.StatusProxyAuthRequired && c.cfg.Via(res) != "":
		return fail(Proxy, 0)
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		return fail(Blocked, 0)
	case s == http.StatusNotFound, s == http.StatusGone:
		return fail(Gone, 0)
	case s == http.StatusRequestTimeout:
		return fail(Timeout, after)
	case s >= 400:
		return fail(Refused, 0)
	case s == http.StatusNoContent:
		return fail(Empty, 0)
	case s >= 300:
		return fail(Redirect, 0)
	}
	if kind == definition.KindSitemap {
		return nil // may come as anything
	}
	if mt, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err == nil {
		for _, bad := range []string{"image/", "audio/", "video/", "font/", "application/zip", "application/pdf", "application/octet-stream", "application/gzip"} {
			if strings.HasPrefix(mt, bad) && mt != "image/svg+xml" {
				return &Error{Class: BadType, URL: rawURL, Status: res.StatusCode, Err: fmt.Errorf("the page is of type %s", mt)}
			}
		}
	}
	return nil
}

// retryAfter reads the header: seconds or a date.
func retryAfter(h string, now time.Time) (time.Duration, bool) {
	h = strings.TrimSpace(h)
	if h == "" {
		return 0, false
	}
	if s, err := strconv.ParseFloat(h, 64); err == nil && s >= 0 && s < 1e8 {
		return time.Duration(s * float64(time.Second)), true
	}
	if t, err := http.ParseTime(h); err == nil {
		return max(t.Sub(now), 0), true
	}
	return 0, false
}

// polite is the transport that obeys robots.txt and the site's pace, and
// knows what to do without a proxy.
type polite struct{ *Client }

// RoundTrip implements http.RoundTripper. Each redirect passes here again.
func (p *polite) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	interval := p.def.Politeness.Delay
	if p.def.Politeness.Robots {
		rules, err := p.Robots(ctx, req.URL)
		if err != nil {
			return nil, err
		}
		path := req.URL.EscapedPath()
		if req.URL.RawQuery != "" {
			path += "?" + req.URL.RawQuery
		}
		if !rules.Allowed(path) {
			return nil, &Error{Class: Robots, Err: errors.New("robots.txt forbids it; the site's definition can say politeness.robots: false")}
		}
		interval = max(interval, min(rules.CrawlDelay(), p.def.Politeness.CrawlDelayMax))
	}
	return p.send(req, interval)
}

// send waits for a turn and sends the request.
func (p *polite) send(req *http.Request, interval time.Duration) (*http.Response, error) {
	ctx := req.Context()
	if p.def.Politeness.AutoThrottle {
		interval = max(interval, p.cfg.Throttle.Delay())
	}
	for deadline := time.Now().Add(p.cfg.Patience); ; {
		wait, err := p.cfg.Pacer.Take(ctx, interval)
		if err != nil {
			if ctx.Err() == nil { // a request that was given up fails by itself
				p.cfg.Logger.Warn("cannot pace the site; going on without", "site", p.def.Site, "error", err)
			}
			wait = 0
		}
		if wait <= 0 {
			break
		}
		if time.Now().Add(wait).After(deadline) {
			return nil, &Error{Class: Throttled, After: wait, Err: fmt.Errorf("the next turn is in %s", wait.Round(time.Millisecond))}
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		}
	}
	s := sessionOf(ctx)
	if s != nil {
		if p.sessions.isDirect(s) {
			return carry(p.cfg.Direct, req)
		}
		if s.route != nil {
			req = req.WithContext(s.route.Bind(ctx))
		}
	}
	began := time.Now()
	res, err := carry(p.cfg.Transport, req)
	if err == nil && p.def.Politeness.AutoThrottle {
		if terr := p.cfg.Throttle.Observe(ctx, time.Since(began), res.StatusCode == http.StatusOK); terr != nil {
			p.cfg.Logger.Warn("cannot share how slow the site is", "site", p.def.Site, "error", terr)
		}
	}
	if err != nil && p.cfg.NoProxy != nil && errors.Is(err, p.cfg.NoProxy) && p.def.Proxy.Fallback == definition.FallbackDirect {
		p.direct.Do(func() {
			p.cfg.Logger.Warn("no proxy; asking the site directly while there is none, as its definition says", "site", p.def.Site)
		})
		if s != nil {
			p.sessions.goDirectly(s)
		}
		return carry(p.cfg.Direct, req)
	}
	return res, err
}

// LocalPacer paces within one process. The zero value is ready for use.
type LocalPacer struct {
	mu   sync.Mutex // guards next
	next time.Time
}

// Take implements Pacer.
func (p *LocalPacer) Take(_ context.Context, interval time.Duration) (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if wait := p.next.Sub(now); wait > 0 {
		return wait, nil
	}
	p.next = now.Add(interval)
	return 0, nil
}

// Hold implements Pacer.
func (p *LocalPacer) Hold(_ context.Context, d time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := time.Now().Add(d); t.After(p.next) {
		p.next = t
	}
	return nil
}

// RobotsCache keeps the robots.txt of hosts. The zero value is ready for use
// and may be shared by the clients of many sites.
type RobotsCache struct {
	TTL time.Duration // how long a robots.txt is believed. Defaults to, and is at most, 24 hours.

	mu    sync.Mutex // guards hosts
	hosts map[string]*robotsEntry
}

type robotsEntry struct {
	mu    sync.Mutex // held while the file is fetched; guards the fields below
	rules *Rules
	until time.Time
}

// get returns the rules of the host of u, fetching them at first use.
func (rc *RobotsCache) get(ctx context.Context, c *Client, u *url.URL) (*Rules, error) {
	key := u.Scheme + "://" + u.Host + " " + c.def.UserAgent
	rc.mu.Lock()
	if rc.hosts == nil || len(rc.hosts) > 10_000 {
		rc.hosts = map[string]*robotsEntry{}
	}
	e := rc.hosts[key]
	if e == nil {
		e = &robotsEntry{}
		rc.hosts[key] = e
	}
	rc.mu.Unlock()

	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rules != nil && time.Now().Before(e.until) {
		return e.rules, nil
	}
	rules, err := c.fetchRobots(ctx, u)
	if err != nil {
		return nil, err
	}
	ttl := 24 * time.Hour
	if rc.TTL > 0 {
		ttl = min(ttl, rc.TTL)
	}
	e.rules, e.until = rules, time.Now().Add(ttl)
	return rules, nil
}

// Robots returns the rules of the host of u, from the cache or its robots.txt.
// Every error is an *Error: as long as there is one, no page of the host may be
// fetched.
func (c *Client) Robots(ctx context.Context, u *url.URL) (*Rules, error) {
	return c.cfg.Robots.get(ctx, c, u)
}

// fetchRobots gets a robots.txt as RFC 9309 says: 4xx is no rules at all,
// except that 429 is treated like 5xx; with 5xx and when nothing answers, the
// site must not be fetched until it does. That is an error here and not
// rules, so that pages wait and are tried again.
// It is asked for by the definition's name and in no session: what it says is
// for all of them.
func (c *Client) fetchRobots(ctx context.Context, u *url.URL) (*Rules, error) {
	if c.sessions != nil {
		ctx = context.WithValue(ctx, sessionKey{}, (*session)(nil))
	}
	ctx, _ = measured(ctx)
	at := &url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/robots.txt"}
	for range 6 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if err != nil {
			return nil, &Error{Class: Connect, Err: err}
		}
		c.dress(req, "", nil)
		req.Header.Set("Accept", "text/plain,*/*;q=0.8")
		res, err := (&polite{c}).send(req, c.def.Politeness.Delay)
		if err != nil {
			if e, ok := errors.AsType[*Error](err); ok && e.Class == Throttled {
				return nil, e
			}
			f := c.failed(ctx, at.String(), err)
			f.Err = fmt.Errorf("robots.txt cannot be fetched: %w", f.Err)
			return nil, f
		}
		rules, next, err := c.readRobots(ctx, at, res)
		if err != nil || rules != nil {
			return rules, err
		}
		at = next
	}
	return AllowAll, nil // more than five redirects: may be taken as not there
}

func (c *Client) readRobots(ctx context.Context, at *url.URL, res *http.Response) (*Rules, *url.URL, error) {
	defer res.Body.Close()
	switch s := res.StatusCode; {
	case s == http.StatusTooManyRequests || s >= 500:
		err := c.judge(ctx, at.String(), definition.KindSitemap, res)
		e, ok := errors.AsType[*Error](err)
		if !ok {
			return nil, nil, err
		}
		e.Err = fmt.Errorf("robots.txt: %w; until it is there, no page may be fetched", e.Err)
		return nil, nil, e
	case s >= 400:
		return AllowAll, nil, nil
	case s >= 300:
		loc, err := at.Parse(res.Header.Get("Location"))
		if err != nil || (loc.Scheme != "http" && loc.Scheme != "https") {
			return AllowAll, nil, nil
		}
		return nil, c.def.Move(loc), nil
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxRobots))
	if err != nil {
		return nil, nil, c.from(res, &Error{Class: Truncated, Err: fmt.Errorf("robots.txt ended early: %w", err)})
	}
	return ParseRobots(data, c.def.UserAgent), nil, nil
}
