package fetch

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"muster/internal/addressfilter"
	"muster/sites/definition"
	"muster/sites/polite"
)

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

// stack is what the requests for pages and for robots.txt pass through. The breaker of a site is none of its parts: it
// counts pages and their tries, which are the caller's; see OutcomeOf.
func (c *Client) stack() http.RoundTripper {
	cfg := polite.Config{
		Key:           func(*url.URL) string { return c.cfg.Key },
		Clock:         c.cfg.Clock,
		Interval:      c.interval,
		CrawlDelayMax: c.def.Politeness.CrawlDelayMax,
		Patience:      c.cfg.Patience,
		Logger:        c.cfg.Logger,
	}
	if c.def.Politeness.Robots {
		cfg.Robots = &polite.Robots{Agent: c.def.UserAgent, Cache: c.cfg.Robots, Dress: c.forRobots}
	}
	return polite.New(&carrier{c}, cfg)
}

// interval is how far apart requests to the site are to be.
func (c *Client) interval() time.Duration {
	if c.cfg.Throttle != nil {
		return max(c.def.Politeness.Delay, c.cfg.Throttle.Delay())
	}
	return c.def.Politeness.Delay
}

// forRobots gives a request for a robots.txt the headers of the definition, and takes it out of its session: what the
// file says is for all of them.
func (c *Client) forRobots(req *http.Request) *http.Request {
	ctx := context.WithValue(req.Context(), sessionKey{}, (*session)(nil))
	ctx, _ = measured(context.WithValue(ctx, kindKey{}, ""))
	req = req.WithContext(ctx)
	accept := req.Header.Get("Accept")
	c.setHeaders(req, "", nil)
	req.Header.Set("Accept", accept)
	req.URL = c.def.Move(req.URL)
	return req
}

// carrier sends the requests of a client by the route of their session, or without a proxy where the definition says so.
type carrier struct{ *Client }

// RoundTrip implements http.RoundTripper.
func (c *carrier) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	s := sessionOf(ctx)
	if s != nil {
		if c.sessions.isDirect(s) {
			return carry(c.cfg.Direct, req)
		}
		if s.route != nil {
			req = req.WithContext(s.route.Bind(ctx))
		}
	}
	began := time.Now()
	res, err := carry(c.cfg.Transport, req)
	if err == nil && c.cfg.Throttle != nil {
		if terr := c.cfg.Throttle.Observe(ctx, time.Since(began), res.StatusCode == http.StatusOK); terr != nil {
			c.cfg.Logger.Warn("cannot share how slow the site is", "site", c.def.Site, "error", terr)
		}
	}
	if err != nil && c.cfg.NoProxy != nil && errors.Is(err, c.cfg.NoProxy) && c.def.Proxy.Fallback == definition.FallbackDirect {
		c.direct.Do(func() {
			c.cfg.Logger.Warn("no proxy; asking the site directly while there is none, as its definition says", "site", c.def.Site)
		})
		if s != nil {
			c.sessions.goDirectly(s)
		}
		return carry(c.cfg.Direct, req)
	}
	return res, err
}
