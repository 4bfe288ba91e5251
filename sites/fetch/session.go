package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/sites/definition"
)

// Route is what the requests of a session go by, such as one proxy. See
// Config.Route.
type Route interface {
	// Bind returns a context whose requests go by this route.
	Bind(context.Context) context.Context
	// Close releases it. No request may use it after that.
	Close()
}

// Unsent is implemented by errors of a transport, to say that the route of the
// request's session is gone, and that the request was not sent.
type Unsent interface{ Unsent() bool }

// session is a visitor of a site: cookies, headers and a route that belong
// together, until they end together.
type session struct {
	http    *http.Client
	jar     *cookiejar.Jar
	profile *definition.Profile // nil: the headers of the definition
	route   Route               // nil: the transport has none
	born    time.Time
	start   chan struct{} // has a token until the session has begun; closed then

	// The fields below are guarded by sessions.mu.
	uses, busy int
	used       int64 // the turn at which it was used last
	good       int   // pages that came
	errors     float64
	direct     bool // it went without a proxy, as the definition says, and goes on so
	ended      bool // it gets no more pages; its route is closed when it is not busy
}

// sessions are the visitors of a site in this process. All is in memory: a
// process that starts again begins with new ones.
type sessions struct {
	client *Client
	def    *definition.Definition
	start  string

	mu      sync.Mutex // guards the fields below and those of its sessions
	live    []*session
	gone    []*session // whose successors are not there yet
	turn    int64
	limited int // answers 429 in a row
}

func newSessions(c *Client) *sessions {
	return &sessions{client: c, def: c.def, start: c.def.SessionStart()}
}

// acquire returns the session whose turn it is; give it back with release.
// While there are fewer than there may be, that is a new one.
func (p *sessions) acquire() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	limits, now := p.def.Session, time.Now()
	for _, s := range slices.Clone(p.live) {
		if now.Sub(s.born) >= limits.MaxAge {
			p.end(s, "max_age")
		}
	}
	if len(p.live) < limits.Max {
		p.live = append(p.live, p.successor())
	}
	s := slices.MinFunc(p.live, func(a, b *session) int { return cmp.Or(a.busy-b.busy, cmp.Compare(a.used, b.used)) })
	p.turn++
	s.used = p.turn
	s.uses++
	s.busy++
	if s.uses >= limits.MaxUses {
		p.end(s, "max_uses")
	}
	return s
}

// successor makes a session in the place of one that is gone, if one is.
func (p *sessions) successor() *session {
	var old *session
	if len(p.gone) > 0 {
		old, p.gone = p.gone[0], p.gone[1:]
	}
	jar, _ := cookiejar.New(nil) // never fails
	s := &session{jar: jar, born: time.Now(), start: make(chan struct{}, 1), profile: p.profile(old)}
	s.start <- struct{}{}
	s.http = &http.Client{Transport: p.client.http.Transport, CheckRedirect: p.client.checkRedirect, Jar: jar}
	var given []*http.Cookie
	for _, name := range slices.Sorted(maps.Keys(p.def.Cookies)) {
		given = append(given, &http.Cookie{Name: name, Value: p.def.Cookies[name], Path: "/"})
	}
	if len(given) > 0 {
		for _, host := range p.def.Hosts {
			name, _ := definition.SplitHost(host) // cookies are for all ports
			under, wild := strings.CutPrefix(name, "*.")
			for _, c := range given {
				c.Domain = ""
				if wild {
					c.Domain = under
				}
			}
			jar.SetCookies(&url.URL{Scheme: "https", Host: under, Path: "/"}, given)
		}
	}
	if p.client.cfg.Route != nil {
		var before Route
		if old != nil {
			before = old.route
		}
		s.route = p.client.cfg.Route(before)
	}
	return s
}

// profile is that which the fewest sessions have, and not that of the one
// before, if there is another.
func (p *sessions) profile(old *session) *definition.Profile {
	var best *definition.Profile
	least := 0
	for i := range p.def.Session.Profiles {
		profile := &p.def.Session.Profiles[i]
		if old != nil && old.profile == profile && len(p.def.Session.Profiles) > 1 {
			continue
		}
		n := 0
		for _, s := range p.live {
			if s.profile == profile {
				n++
			}
		}
		if best == nil || n < least {
			best, least = profile, n
		}
	}
	return best
}

// end takes a session out for a reason, or with "" because it is not needed
// any more. The caller holds mu.
func (p *sessions) end(s *session, why string) {
	if s.ended {
		return
	}
	s.ended = true
	p.live = slices.DeleteFunc(p.live, func(o *session) bool { return o == s })
	if why != "" {
		p.gone = append(p.gone, s)
		if n := len(p.gone) - p.def.Session.Max; n > 0 {
			p.gone = slices.Delete(p.gone, 0, n)
		}
		p.client.cfg.Logger.Debug("a session has ended", "site", p.def.Site, "why", why, "pages", s.good, "uses", s.uses, "age", time.Since(s.born).Round(time.Second))
		p.client.cfg.Ended(why)
	}
	if s.busy == 0 && s.route != nil {
		s.route.Close()
	}
}

// retire ends a session that the site refuses, or whose route is gone.
func (p *sessions) retire(s *session, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(s, why)
}

// suspect counts an error against a session.
func (p *sessions) suspect(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong(s)
}

func (p *sessions) wrong(s *session) {
	if s.errors++; s.errors >= float64(p.def.Session.MaxErrors) {
		p.end(s, "max_errors")
	}
}

// release gives a session back with what became of its page.
func (p *sessions) release(s *session, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.busy--
	status := 0
	if e, ok := errors.AsType[*Error](err); ok {
		status = e.Status
	}
	switch class := ClassOf(err); class {
	case OK, Gone:
		s.good++
		s.errors = max(s.errors-0.5, 0)
		p.limited = 0
	case Throttled, Canceled, NoProxy: // nothing was asked for
		s.uses--
	case Blocked, SoftBlock, Proxy:
		p.end(s, string(class))
	case RateLimited:
		if status == http.StatusTooManyRequests {
			p.end(s, string(class))
		}
	case Timeout, Truncated, Connect, Server, Empty:
		p.wrong(s)
	}
	if s.ended && s.busy == 0 && s.route != nil {
		s.route.Close()
	}
}

// alone reports whether a 429 means this session and not everybody: it had
// pages before, and since the last page that came no other session got one.
func (p *sessions) alone(s *session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limited++
	return p.limited == 1 && s.good > 0 && p.def.Session.Max > 1
}

// isDirect reports whether a session goes without a proxy.
func (p *sessions) isDirect(s *session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.direct
}

func (p *sessions) goDirectly(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.direct = true
}

// close ends all of them. Requests after that get new ones.
func (p *sessions) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range slices.Clone(p.live) {
		p.end(s, "")
	}
	p.gone = nil
}

// begin sees that the session has fetched session.start, once.
func (p *sessions) begin(ctx context.Context, s *session) error {
	if p.start == "" {
		return nil
	}
	select {
	case _, first := <-s.start:
		if !first {
			return nil
		}
	case <-ctx.Done():
		return &Error{Class: classOfNetwork(ctx.Err()), Err: ctx.Err()}
	}
	if err := p.visitStart(ctx, s); err != nil {
		s.start <- struct{}{} // the next one tries
		return err
	}
	close(s.start)
	return nil
}

func (p *sessions) visitStart(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, p.def.Limits.PageTimeout)
	defer cancel()
	ctx, _ = measured(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.start, nil)
	if err != nil {
		return &Error{Class: Refused, Err: fmt.Errorf("session.start: %w", err)}
	}
	p.client.setHeaders(req, "", s)
	res, err := s.http.Do(req)
	if err == nil {
		defer res.Body.Close()
		err = p.client.statusError(ctx, p.start, definition.KindSitemap, res)
		_, _ = io.CopyN(io.Discard, res.Body, 256<<10) // keeps the connection
	} else {
		err = p.client.failed(ctx, p.start, err)
	}
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok || e.Class == Empty:
		return nil
	case e.Class == Gone, e.Class == Robots, e.Class == Redirect: // of a page these would be its end, and not an error
		e.Class = Refused
	}
	e.Err = fmt.Errorf("session.start %s: %w", p.start, e.Err)
	return e
}

type sessionKey struct{}

// sessionOf is the session that a request belongs to, or nil.
func sessionOf(ctx context.Context) *session {
	s, _ := ctx.Value(sessionKey{}).(*session)
	return s
}

// isUnsent reports whether the route of a session is gone and nothing was sent.
func isUnsent(err error) bool {
	u, ok := errors.AsType[interface {
		error
		Unsent
	}](err)
	return ok && u.Unsent()
}
