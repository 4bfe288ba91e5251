package polite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Robots configures the use of robots.txt.
type Robots struct {
	Agent string       // User-Agent that selects the rules
	Cache *RobotsCache // Defaults to a new cache.
	// Prepare changes a request for a robots.txt before it is sent. By default only User-Agent and Accept are set.
	Prepare func(*http.Request) *http.Request
	Timeout time.Duration // of the request for a robots.txt. By default only the timeout of the page's request applies.

	own RobotsCache
}

const (
	robotsTTL       = 24 * time.Hour // RFC 9309 §2.4
	robotsHosts     = 10_000         // in a cache
	robotsRedirects = 5              // RFC 9309 §2.3.1.2
)

// robots sends the requests that the robots.txt of their host allows.
type robots struct {
	*Robots
	next http.RoundTripper // sends the request for the robots.txt, too
}

// RoundTrip implements http.RoundTripper.
func (r *robots) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	rules, err := r.rules(ctx, req.URL)
	if err != nil {
		return nil, err
	}
	path := req.URL.EscapedPath()
	if req.URL.RawQuery != "" {
		path += "?" + req.URL.RawQuery
	}
	if !rules.Allowed(path) {
		return nil, ErrDisallowed
	}
	if d := rules.CrawlDelay(); d > 0 {
		req = req.WithContext(context.WithValue(ctx, crawlDelay{}, d))
	}
	return r.next.RoundTrip(req)
}

// rules returns the rules of the host of u, from the cache or its robots.txt.
func (r *robots) rules(ctx context.Context, u *url.URL) (*Rules, error) {
	e := cmp.Or(r.Cache, &r.own).entry(u.Scheme + "://" + u.Host + " " + r.Agent)
	select {
	case e.busy <- struct{}{}:
		defer func() { <-e.busy }()
	case <-ctx.Done():
		return nil, unsentError{ctx.Err()}
	}
	if e.rules != nil && time.Now().Before(e.until) {
		return e.rules, nil
	}
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Timeout)
		defer cancel()
	}
	rules, err := r.fetch(ctx, u)
	if err != nil {
		return nil, err
	}
	e.rules, e.until = rules, time.Now().Add(robotsTTL)
	return rules, nil
}

// fetch fetches the robots.txt of the host of u according to RFC 9309. A 4xx status means that there are no rules, except 429,
// which is treated like 5xx. After 5xx or without a response the site must not be fetched. fetch returns an error in this case
// instead of a rule, so that pages wait and are retried.
func (r *robots) fetch(ctx context.Context, u *url.URL) (*Rules, error) {
	at := &url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/robots.txt"}
	for range 1 + robotsRedirects {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if err != nil {
			return nil, fmt.Errorf("create request for robots.txt: %w", err)
		}
		req.Header.Set("User-Agent", r.Agent)
		req.Header.Set("Accept", "text/plain,*/*;q=0.8")
		if r.Prepare != nil {
			req = r.Prepare(req)
		}
		res, err := r.next.RoundTrip(req)
		if errors.As(err, new(*WaitError)) || errors.As(err, new(unsentError)) {
			return nil, err
		}
		if err != nil {
			return nil, &RobotsError{Request: req, Err: err}
		}
		rules, next, err := r.read(req, res)
		if next == nil {
			return rules, err
		}
		at = next
	}
	return AllowAll, nil // RFC 9309 permits treating further redirects as a missing file
}

// read reads and closes the response to a request for a robots.txt. Exactly one of rules, next (the target of a redirect) and err
// is not nil.
func (r *robots) read(req *http.Request, res *http.Response) (rules *Rules, next *url.URL, err error) {
	defer res.Body.Close()
	switch s := res.StatusCode; {
	case s == http.StatusTooManyRequests || s >= 500:
		return nil, nil, &RobotsError{req, res, fmt.Errorf("HTTP status %d %s", s, http.StatusText(s))}
	case s >= 400:
		return AllowAll, nil, nil
	case s >= 300:
		location := res.Header.Get("Location")
		to, err := req.URL.Parse(location)
		if err != nil || location == "" || (to.Scheme != "http" && to.Scheme != "https") {
			return AllowAll, nil, nil
		}
		return nil, to, nil
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxRobots))
	if err != nil {
		return nil, nil, &RobotsError{req, res, fmt.Errorf("read body: %w", err)}
	}
	return ParseRobots(data, r.Agent), nil, nil
}

// RobotsCache caches the robots.txt of hosts for a day. The zero value is ready to use. It is safe for concurrent use, and
// several stacks may share it.
type RobotsCache struct {
	mu    sync.Mutex // guards hosts
	hosts map[string]*robotsEntry
}

type robotsEntry struct {
	busy  chan struct{} // a lock that holds a token while the file is fetched or read; guards the fields below
	rules *Rules
	until time.Time
}

// entry returns the entry of a key; a new one is empty.
func (c *RobotsCache) entry(key string) *robotsEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hosts == nil || len(c.hosts) > robotsHosts {
		c.hosts = map[string]*robotsEntry{}
	}
	e := c.hosts[key]
	if e == nil {
		e = &robotsEntry{busy: make(chan struct{}, 1)}
		c.hosts[key] = e
	}
	return e
}
