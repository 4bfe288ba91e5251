package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/polite"
)

// pagesPerLogin is how many pages a session must fetch before it may log in again a second time.
const pagesPerLogin = 10

// logIn fills in the form of session.login and submits it, one session after the other. After an answer that refuses the
// login this client never tries again: sites lock accounts after some failures. The caller holds the gate of s.
func (p *sessions) logIn(ctx context.Context, s *session) error {
	select {
	case p.login <- struct{}{}:
		defer func() { <-p.login }()
	case <-ctx.Done():
		return &Error{Class: classOfNetwork(ctx.Err()), Err: ctx.Err()}
	}
	if err := p.refusal(); err != nil {
		return err
	}
	err := p.submit(ctx, s)
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err // nil
	}
	e.Err = fmt.Errorf("session.login: %w", e.Err)
	switch e.Class {
	case Login, Gone, Robots, Redirect, ClientError, TooBig, BadType, Parse, Address:
		e.Class = Login
		p.refuse(e)
	}
	return e
}

// submit fetches the page with the form, submits the form, and looks for the sign in the answer.
func (p *sessions) submit(ctx context.Context, s *session) error {
	login, at := p.def.Session.Login, p.def.LoginURL()
	page, err := p.client.getOnce(ctx, s, request{url: at, login: true})
	if err != nil {
		return err
	}
	doc, err := p.parsed(page)
	if err != nil {
		return err
	}
	if err := Inspect(p.def, doc); err != nil {
		return err
	}
	refused := func(format string, args ...any) error {
		return &Error{Class: Login, URL: at, Status: page.Status, Via: page.Via, Err: fmt.Errorf(format, args...)}
	}
	form, err := doc.Form(login.Form)
	if err != nil {
		return refused("%s: %w", page.URL.Redacted(), err)
	}
	for _, name := range login.FieldNames() {
		if err := form.Set(name, login.Fields[name]); err != nil {
			return refused("%s: %w", page.URL.Redacted(), err)
		}
	}
	action := p.def.Move(form.Action)
	switch {
	case form.Method != http.MethodPost:
		return refused("the form at %s is sent by GET, which would put the password into addresses", page.URL.Redacted())
	case page.URL.Scheme == "https" && action.Scheme != "https":
		return refused("the form at %s is sent without TLS, so that others could read the password", page.URL.Redacted())
	case !p.def.InScope(action):
		return refused("the form at %s is sent to %s, which is not on the site; see hosts", page.URL.Redacted(), action.Host)
	}
	page, err = p.client.getOnce(polite.Patient(ctx), s, request{url: action.String(), post: form.Post(), referer: page.URL.String(), login: true})
	if e, ok := errors.AsType[*Error](err); ok {
		if e.Class == Blocked || e.Class == Empty { // 401, 403 or nothing with the sign
			e.Class = Login
		}
		return e
	}
	if doc, err = p.parsed(page); err != nil {
		return err
	}
	if doc.Root != nil && login.SignedIn.First(doc.Root) != nil {
		return nil
	}
	if elements.password.First(doc.Root) == nil {
		if err := Inspect(p.def, doc); err != nil {
			return err
		}
	}
	return refused("the answer to the form, %s, has no %s, the sign of session.login.signed_in: look at the user, the password and the sign", page.URL.Redacted(), login.SignedIn.Text)
}

// parsed parses a page of the login, which is HTML whatever other pages are.
func (p *sessions) parsed(page extract.Page) (*extract.Doc, error) {
	doc, err := extract.Parse(p.def.WithFormat(definition.FormatHTML), page)
	if err != nil {
		return nil, &Error{Class: Parse, URL: page.Requested, Status: page.Status, Via: page.Via, Err: err}
	}
	return doc, nil
}

// isLoggedOut reports whether a page lacks the sign of a login. Sitemaps and JSON never do, nor do pages that are
// blocked: they say nothing of the login, and Inspect tells the caller.
func (p *sessions) isLoggedOut(page extract.Page) bool {
	if p.def.Session.Login == nil || page.Kind == definition.KindSitemap || p.def.Page(page.Kind).Format == definition.FormatJSON {
		return false
	}
	doc, err := extract.Parse(p.def, page)
	if err != nil {
		return false
	}
	if p.def.Session.Login.SignedIn.First(doc.Root) != nil {
		return false
	}
	return isLogin(doc) || p.def.Blocks.Off || blockedBy(p.def, doc) == ""
}

// expire ends a login that a page says is over, unless another request has done so: was is the login of the page's
// session when the page was requested. The next login begins without cookies: the answers to requests that are still
// under way would change those between its form and its submission.
func (p *sessions) expire(ctx context.Context, s *session, was int) error {
	if err := s.hold(ctx); err != nil {
		return err
	}
	defer s.pass()
	if s.logins != was {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if fetched := s.credit; !s.mayLogInAgain() {
		if p.refused == nil {
			p.refused = &Error{Class: Login, URL: p.def.LoginURL(), Err: fmt.Errorf("session.login: the site ended a session that had logged in again after %d pages; is the account used elsewhere, or by more than one session?", fetched)}
		}
		e := *p.refused
		return &e
	}
	s.started, s.ready = false, false
	s.http.Store(p.visitor())
	return nil
}

// mayLogInAgain reports whether a session that the site has ended or blocked may log in again: once, and once more after
// pagesPerLogin fetched pages each. If so, it counts the login. The caller holds sessions.mu.
func (s *session) mayLogInAgain() bool {
	if s.credit < pagesPerLogin {
		return false
	}
	s.credit = 0
	return true
}

// unsigned returns the error of a page that lacks the sign right after a login.
func (p *sessions) unsigned(page extract.Page) error {
	return &Error{Class: Login, URL: page.Requested, Status: page.Status, Via: page.Via, Err: fmt.Errorf("the page has no %s, the sign of session.login.signed_in, right after a login that had it: choose a sign that all pages have", p.def.Session.Login.SignedIn.Text)}
}

// refusal returns why no login is tried any more, or nil.
func (p *sessions) refusal() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused == nil {
		return nil
	}
	e := *p.refused
	return &e
}

// refuse ends all logins.
func (p *sessions) refuse(why *Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused == nil {
		e := *why
		p.refused = &e
	}
}
