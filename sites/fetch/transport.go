package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"muster/internal/addressfilter"
	"muster/sites/definition"
	"muster/sites/polite"
)

// DirectTransport returns a transport without proxies, even if the environment configures one. It connects only to addresses that
// filter allows.
func DirectTransport(filter *addressfilter.Filter) *http.Transport {
	t := filter.Transport()
	t.MaxIdleConnsPerHost = 64
	t.TLSHandshakeTimeout = 15 * time.Second
	t.ResponseHeaderTimeout = 60 * time.Second
	return t
}

// FilterFor returns base with the exceptions of a definition: its allow_addresses and the addresses in its URLs.
func FilterFor(def *definition.Definition, base *addressfilter.Filter) *addressfilter.Filter {
	f, err := base.With(def.Addresses...)
	if err != nil { // the definition was not loaded and so not validated
		f = base
	}
	return f.WithURLs(def.OwnURLs()...)
}

// stack returns the transports for requests for pages and robots.txt. The site's circuit breaker is not among them: it counts
// pages and attempts, which only the caller knows; see OutcomeOf.
func (c *Client) stack() http.RoundTripper {
	cfg := polite.Config{
		Key:           func(*url.URL) string { return c.cfg.Key },
		Clock:         c.cfg.Clock,
		Interval:      c.interval,
		CrawlDelayMax: definition.MaxCrawlDelay,
		Vary:          true,
		Patience:      c.cfg.Patience,
		Logger:        c.cfg.Logger,
	}
	if c.def.Politeness.Robots {
		cfg.Robots = &polite.Robots{Agent: c.def.UserAgent, Cache: c.cfg.Robots, Prepare: c.prepareRobots}
	}
	return polite.New(&carrier{c}, cfg)
}

// interval returns the minimum time between requests to the site.
func (c *Client) interval() time.Duration {
	if c.cfg.Throttle != nil {
		return max(c.def.Politeness.Delay, c.cfg.Throttle.Delay())
	}
	return c.def.Politeness.Delay
}

// prepareRobots removes the visitor from a request for robots.txt, because all visitors share the file.
func (c *Client) prepareRobots(req *http.Request) *http.Request {
	ctx := context.WithValue(req.Context(), useKey{}, (*use)(nil))
	ctx, _ = measure(context.WithValue(ctx, kindKey{}, ""))
	req = req.WithContext(ctx)
	req.URL = c.def.Move(req.URL)
	return req
}

// exchange measures the requests for a page, without waits for robots.txt, the request rate and a proxy.
type exchange struct {
	asked atomic.Pointer[time.Time] // connection request of the last HTTP request; nil: none
	took  atomic.Int64              // time between requests and response headers, as a time.Duration
}

type exchangeKey struct{}

// measure returns a context with an exchange that measures its requests.
func measure(ctx context.Context) (context.Context, *exchange) {
	e := &exchange{}
	ctx = context.WithValue(ctx, exchangeKey{}, e)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: func(string) {
		now := time.Now()
		e.asked.Store(&now)
	}}), e
}

// send sends a request. limits.page_timeout covers it up to the last byte of the response. If the transport tries several proxies,
// only the last one is measured. If it does not trace its connections, the whole round trip is.
func (c *Client) send(by http.RoundTripper, req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), c.def.Limits.PageTimeout)
	body := &timedBody{ctx: ctx, cancel: cancel, limit: c.def.Limits.PageTimeout}
	e, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		e = &exchange{}
	}
	began := time.Now()
	e.asked.Store(nil)
	res, err := by.RoundTrip(req.WithContext(ctx))
	if asked := e.asked.Load(); asked != nil {
		began = *asked
	}
	e.took.Add(int64(time.Since(began)))
	if err != nil {
		defer cancel()
		return nil, body.explain(err)
	}
	body.ReadCloser, res.Body = res.Body, body
	return res, nil
}

// timedBody stops the timeout of a response when its body is closed.
type timedBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelFunc
	limit  time.Duration
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.explain(err)
	}
	return n, err
}

// explain names the limit in the error of a request that took too long.
func (b *timedBody) explain(err error) error {
	if errors.Is(b.ctx.Err(), context.DeadlineExceeded) && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no complete response within limits.page_timeout (%s): %w", b.limit, err)
	}
	return err
}

// Close implements io.Closer.
func (b *timedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// carrier sends the requests of a client through the route of their visitor, or without a proxy if the definition permits it.
type carrier struct{ *Client }

// RoundTrip implements http.RoundTripper. It keeps the cookies of the visitor, because http.Client would drop those that only
// browsers accept.
func (c *carrier) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := c.sendAs(c.withIdentity(req))
	if err != nil {
		return nil, err
	}
	if u := useOf(req.Context()); u != nil && u.jar != nil {
		u.jar.SetCookies(req.URL, cookiesIn(res.Header))
	}
	if path, rest := cutPath(res.Header.Get("Location")); strings.Contains(path, `\`) {
		res.Header.Set("Location", strings.ReplaceAll(path, `\`, "/")+rest) // as browsers do
	}
	return res, nil
}

// cutPath splits a reference before its query and fragment.
func cutPath(ref string) (path, rest string) {
	if i := strings.IndexAny(ref, "?#"); i >= 0 {
		return ref[:i], ref[i:]
	}
	return ref, ""
}

// sendAs sends a request through the route of its visitor.
func (c *carrier) sendAs(req *http.Request) (*http.Response, error) {
	ctx, u := req.Context(), useOf(req.Context())
	if c.render.wants(req) {
		return c.send(c.render, req)
	}
	if u != nil {
		if u.direct.Load() {
			return c.send(c.directly, req)
		}
		if u.route != nil {
			req = req.WithContext(u.route.Bind(ctx))
		}
	}
	began := time.Now()
	res, err := c.send(c.cfg.Transport, req)
	if err == nil && c.cfg.Throttle != nil && res.StatusCode != http.StatusTooManyRequests { // see statusError
		if terr := c.cfg.Throttle.Observe(ctx, time.Since(began), res.StatusCode == http.StatusOK); terr != nil {
			c.cfg.Logger.WarnContext(ctx, "cannot store the site's pace", "site", c.def.Site, "error", terr)
		}
	}
	if err != nil && c.cfg.NoProxy != nil && errors.Is(err, c.cfg.NoProxy) && c.def.Proxy.Fallback == definition.FallbackDirect {
		c.direct.Do(func() {
			c.cfg.Logger.WarnContext(ctx, "no proxy available; sending direct requests because of proxy.fallback", "site", c.def.Site)
		})
		if u != nil && c.def.Session != nil {
			u.direct.Store(true)
		}
		return c.send(c.directly, req)
	}
	return res, err
}
