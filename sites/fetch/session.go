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
	"sync/atomic"
	"time"

	"muster/sites/definition"
)

// A Route carries the requests of a session, for example through one proxy. See Config.Route.
type Route interface {
	// Bind returns a context whose requests use this route.
	Bind(context.Context) context.Context
	// Close releases the route. No request may use it afterwards.
	Close()
}

// Unsent is implemented by errors of a transport to report that the session's route is broken and the request was not sent.
type Unsent interface{ Unsent() bool }

// A session is one visitor of a site: cookies, headers and a route that are used together and end together.
type session struct {
	http    atomic.Pointer[http.Client] // has the cookies
	profile *definition.Profile         // nil: headers of the definition
	route   Route                       // nil: Config.Route is not set
	born    time.Time
	gate    chan struct{} // holds a token while free; see hold

	// The holder of the gate guards the fields below.
	started bool // session.start was fetched
	ready   bool // start page and login are done
	logins  int

	// The fields below are guarded by sessions.mu.
	uses, busy int
	lastUse    int64 // value of sessions.clock
	pages      int   // fetched pages
	errors     float64
	credit     int  // pages fetched since the session last logged in again; see mayLogInAgain
	direct     bool // further requests are sent without a proxy
	ended      bool // no more requests; the route is closed after the last one
}

// sessions are the sessions of a site in this process. They are only in memory: after a restart all are new.
type sessions struct {
	client *Client
	def    *definition.Definition
	start  string
	login  chan struct{} // holds a token while a session logs in

	mu      sync.Mutex // guards the fields below and the fields of its sessions
	live    []*session
	gone    []*session // ended sessions without a successor
	clock   int64      // counts acquired sessions
	limited int        // consecutive 429 responses
	refused *Error     // error that stops logins
}

func newSessions(c *Client) *sessions {
	return &sessions{client: c, def: c.def, start: c.def.SessionStart(), login: make(chan struct{}, 1)}
}

// acquire returns the least busy session, or a new one while there are fewer than session.max. The caller must release it.
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
	s := slices.MinFunc(p.live, func(a, b *session) int { return cmp.Or(a.busy-b.busy, cmp.Compare(a.lastUse, b.lastUse)) })
	p.clock++
	s.lastUse = p.clock
	s.uses++
	s.busy++
	if s.uses >= limits.MaxUses {
		p.end(s, "max_uses")
	}
	return s
}

// successor returns a new session, which replaces the first one of gone if there is one.
func (p *sessions) successor() *session {
	var old *session
	if len(p.gone) > 0 {
		old, p.gone = p.gone[0], p.gone[1:]
	}
	s := &session{born: time.Now(), gate: make(chan struct{}, 1), profile: p.profile(old), credit: pagesPerLogin}
	if old != nil {
		s.credit = old.credit
	}
	s.gate <- struct{}{}
	s.http.Store(p.visitor())
	if p.client.cfg.Route != nil {
		var before Route
		if old != nil {
			before = old.route
		}
		s.route = p.client.cfg.Route(before)
	}
	return s
}

// visitor returns a client with only the cookies of the definition.
func (p *sessions) visitor() *http.Client {
	jar, _ := cookiejar.New(nil) // never fails
	var given []*http.Cookie
	for _, name := range slices.Sorted(maps.Keys(p.def.Cookies)) {
		given = append(given, &http.Cookie{Name: name, Value: p.def.Cookies[name], Path: "/"})
	}
	if len(given) > 0 {
		for _, host := range p.def.Hosts {
			name, _ := definition.SplitHost(host) // cookies apply to all ports
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
	return &http.Client{Transport: p.client.http.Transport, CheckRedirect: p.client.checkRedirect, Jar: jar}
}

// profile returns the least used profile, preferably another one than old's.
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

// end removes a session. If why is "", the session is not needed any more and gets no successor. The caller holds mu.
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
		p.client.cfg.Logger.Debug("session ended", "site", p.def.Site, "why", why, "pages", s.pages, "uses", s.uses, "age", time.Since(s.born).Round(time.Second))
		p.client.cfg.Ended(why)
	}
	if s.busy == 0 && s.route != nil {
		s.route.Close()
	}
}

// retire ends a session that the site has blocked.
func (p *sessions) retire(s *session, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.credit-- // the page was counted as fetched
	p.block(s, why)
}

// block ends a session that the site has blocked. A session with a login continues if it may not log in again. The caller holds
// mu.
func (p *sessions) block(s *session, why string) {
	if p.def.Session.Login == nil || !s.ended && s.mayLogInAgain() {
		p.end(s, why)
	}
}

// suspect counts an error against a session.
func (p *sessions) suspect(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.countError(s)
}

// countError counts an error against a session. The caller holds mu.
func (p *sessions) countError(s *session) {
	if s.errors++; s.errors >= float64(p.def.Session.MaxErrors) {
		p.end(s, "max_errors")
	}
}

// release ends one use of a session. err is the error of its request.
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
		s.pages++
		s.errors = max(s.errors-0.5, 0)
		p.limited = 0
		s.credit++
	case Throttled, Canceled, NoProxy: // no request was sent
		s.uses--
	case Blocked, SoftBlock:
		p.block(s, string(class))
	case Proxy:
		p.end(s, string(class))
	case RateLimited:
		if status == http.StatusTooManyRequests {
			p.end(s, string(class))
		}
	case Timeout, Truncated, Connect, Server, Empty:
		p.countError(s)
	}
	if s.ended && s.busy == 0 && s.route != nil {
		s.route.Close()
	}
}

// isLimitedAlone reports whether a 429 concerns only this session: it has fetched pages, and this is the first 429 since the last
// fetched page.
func (p *sessions) isLimitedAlone(s *session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limited++
	return p.limited == 1 && s.pages > 0 && p.def.Session.Max > 1
}

// isDirect reports whether a session's requests are sent without a proxy.
func (p *sessions) isDirect(s *session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.direct
}

func (p *sessions) setDirect(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.direct = true
}

// close ends all sessions. Later requests get new ones.
func (p *sessions) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range slices.Clone(p.live) {
		p.end(s, "")
	}
	p.gone = nil
}

// hold waits for the gate of a session.
func (s *session) hold(ctx context.Context) error {
	select {
	case <-s.gate:
		return nil
	case <-ctx.Done():
		return &Error{Class: classOfNetwork(ctx.Err()), Err: ctx.Err()}
	}
}

// pass releases the gate.
func (s *session) pass() { s.gate <- struct{}{} }

// begin fetches session.start and logs in, unless the session has done so, or waits for another request that does. It returns the
// login number of the session.
func (p *sessions) begin(ctx context.Context, s *session) (login int, err error) {
	if p.start == "" && p.def.Session.Login == nil {
		return 0, nil
	}
	if err := s.hold(ctx); err != nil {
		return 0, err
	}
	defer s.pass()
	if s.ready {
		return s.logins, nil
	}
	if p.start != "" && !s.started {
		if err := p.visitStart(ctx, s); err != nil {
			return 0, err // the next request retries
		}
		s.started = true
	}
	if p.def.Session.Login != nil {
		if err := p.logIn(ctx, s); err != nil {
			return 0, err
		}
		s.logins++
	}
	s.ready = true
	return s.logins, nil
}

func (p *sessions) visitStart(ctx context.Context, s *session) error {
	ctx, _ = measure(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.start, nil)
	if err != nil {
		return &Error{Class: ClientError, Err: fmt.Errorf("session.start: %w", err)}
	}
	res, err := s.http.Load().Do(req)
	if err == nil {
		defer res.Body.Close()
		err = p.client.statusError(ctx, p.start, definition.KindSitemap, res)
		_, _ = io.CopyN(io.Discard, res.Body, 256<<10) // to reuse the connection
	} else {
		err = p.client.requestError(ctx, p.start, err)
	}
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok || e.Class == Empty:
		return nil
	case e.Class == Gone, e.Class == Robots, e.Class == Redirect: // final for a page, but an error for a session
		e.Class = ClientError
	}
	e.Err = fmt.Errorf("session.start %s: %w", p.start, e.Err)
	return e
}

type sessionKey struct{}

// sessionOf returns the session of a request, or nil.
func sessionOf(ctx context.Context) *session {
	s, _ := ctx.Value(sessionKey{}).(*session)
	return s
}

// isUnsent reports whether the request was not sent because the session's route is broken.
func isUnsent(err error) bool {
	u, ok := errors.AsType[interface {
		error
		Unsent
	}](err)
	return ok && u.Unsent()
}
