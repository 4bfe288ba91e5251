package fetch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"muster/sites/definition"
)

// A Route carries the requests of a visitor, for example through one proxy. See Config.Route.
type Route interface {
	// Bind returns a context whose requests use this route.
	Bind(context.Context) context.Context
}

// Unsent is implemented by errors of a transport to report that the visitor's route is broken and the request was not sent.
type Unsent interface{ Unsent() bool }

// maxVisitors limits the visitors that a request tries while their routes are broken.
const maxVisitors = 5

// A visitor is how a site sees the requests of a client: cookies, a route and a login that are used together and end together.
type visitor struct {
	id     string
	route  Route       // nil: the definition has no session, or Config.Route is not set
	direct atomic.Bool // further requests are sent without a proxy

	// The holder of visitors.gate guards the fields below.
	jar     http.CookieJar // nil: no cookies are kept
	started bool           // session.start was fetched
	ready   bool           // start page and login are done
	logins  int

	ended bool // no more requests; guarded by visitors.mu
}

// use is one use of a visitor, with its cookies and the number of its login at that time.
type use struct {
	*visitor
	jar   http.CookieJar
	login int
}

// visitors are the visitors of a client, one after the other. They are only in memory: after a restart there is a new one.
type visitors struct {
	client *Client
	def    *definition.Definition
	start  string
	gate   chan struct{} // holds a token while free; see acquire

	mu      sync.Mutex // guards the fields below and the fields of visitors
	now     *visitor   // nil: the next request needs a new one
	credit  int        // pages fetched since the last repeated login; see mayLogInAgain
	refused *Error     // error that stops logins
}

func newVisitors(c *Client) *visitors {
	p := &visitors{client: c, def: c.def, start: c.def.SessionStart(), gate: make(chan struct{}, 1), credit: pagesPerLogin}
	p.gate <- struct{}{}
	return p
}

// acquire returns the visitor for a request, after its start page and login. The caller must release it. Other requests wait
// while one fetches the start page or logs in.
func (p *visitors) acquire(ctx context.Context) (*use, error) {
	if err := p.hold(ctx); err != nil {
		return nil, err
	}
	defer p.pass()
	u := p.current()
	if err := p.begin(ctx, u); err != nil {
		p.release(u, err, false)
		return nil, err
	}
	return u, nil
}

// hold waits for the gate.
func (p *visitors) hold(ctx context.Context) error {
	select {
	case <-p.gate:
		return nil
	case <-ctx.Done():
		return &Error{Class: classOfNetwork(ctx.Err()), Err: ctx.Err()}
	}
}

// pass releases the gate.
func (p *visitors) pass() { p.gate <- struct{}{} }

// current returns a use of the current visitor, or of a new one. The caller holds the gate.
func (p *visitors) current() *use {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil {
		p.now = &visitor{id: rand.Text(), jar: newJar(p.def, p.client.tls)}
		if p.def.Session != nil && p.client.cfg.Route != nil {
			p.now.route = p.client.cfg.Route()
		}
	}
	return &use{p.now, p.now.jar, p.now.logins}
}

// begin fetches session.start and logs in, unless the visitor has done so. The caller holds the gate.
func (p *visitors) begin(ctx context.Context, u *use) error {
	if u.ready {
		return nil
	}
	ctx = context.WithValue(ctx, useKey{}, u)
	if p.start != "" && !u.started {
		if err := p.visitStart(ctx); err != nil {
			return err // the next request retries
		}
		u.started = true
	}
	if p.def.Session != nil && p.def.Session.Login != nil {
		if err := p.logIn(ctx); err != nil {
			return err
		}
		u.logins++
		u.login = u.logins
	}
	u.ready = true
	return nil
}

// end ends a visitor. If why is "", the visitor is not needed any more. The caller holds mu.
func (p *visitors) end(v *visitor, why string) {
	if v.ended {
		return
	}
	v.ended, p.now = true, nil
	if why != "" && p.def.Session != nil {
		p.client.cfg.Logger.Debug("session ended", "site", p.def.Site, "why", why)
		p.client.cfg.Ended(why)
	}
}

// retire ends a visitor that the site has blocked.
func (p *visitors) retire(v *visitor, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.credit-- // the page was counted as fetched
	p.block(v, why)
}

// block ends a visitor that the site has blocked. One with a login continues if it may not log in again. The caller holds mu.
func (p *visitors) block(v *visitor, why string) {
	if p.def.Session == nil || p.def.Session.Login == nil || !v.ended && p.mayLogInAgain() {
		p.end(v, why)
	}
}

// release ends one use of a visitor. err is the error of its request. loggedOut means that the page shows that the login has
// expired.
func (p *visitors) release(u *use, err error, loggedOut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch class := ClassOf(err); class {
	case OK, Gone:
		if !loggedOut {
			p.credit++
		}
	case Blocked, SoftBlock:
		p.block(u.visitor, string(class))
	case Proxy:
		if u.route != nil {
			p.end(u.visitor, string(class))
		}
	case RateLimited:
		if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusTooManyRequests {
			p.block(u.visitor, string(class))
		}
	}
}

// close ends the current visitor. A later request gets a new one.
func (p *visitors) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now != nil {
		p.end(p.now, "")
	}
}

// visitStart fetches session.start, whatever its content.
func (p *visitors) visitStart(ctx context.Context) error {
	_, err := p.client.getOnce(ctx, request{url: p.start, login: true})
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok || e.Class == Empty, e.Class == TooBig, e.Class == BadType, e.Class == Truncated:
		return nil
	case e.Class == Gone, e.Class == Robots, e.Class == Redirect: // final for a page, but an error for a session
		e.Class = ClientError
	}
	e.Err = fmt.Errorf("session.start %s: %w", p.start, e.Err)
	return e
}

type useKey struct{}

// useOf returns the use of a visitor that a request belongs to, or nil.
func useOf(ctx context.Context) *use {
	u, _ := ctx.Value(useKey{}).(*use)
	return u
}

// isUnsent reports whether the request was not sent because the visitor's route is broken.
func isUnsent(err error) bool {
	var u Unsent
	return errors.As(err, &u) && u.Unsent()
}
