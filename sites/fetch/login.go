package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/polite"
)

// pagesPerLogin is the number of pages that must be fetched before a client may log in again a second time.
const pagesPerLogin = 10

// logIn fills in and submits the form of session.login. If the site rejects the login, this client never retries: sites lock
// accounts after a few failures. The caller holds the gate.
func (p *visitors) logIn(ctx context.Context) error {
	if err := p.refusal(); err != nil {
		return err
	}
	err := p.submit(ctx)
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err // nil
	}
	e.Err = fmt.Errorf("session.login: %w", e.Err)
	switch e.Class {
	case Login, Gone, Robots, Redirect, ClientError, TooBig, BadType, Parse, Address:
		e.Class = Login
		stop := *e
		p.mu.Lock()
		p.refused = cmp.Or(p.refused, &stop)
		p.mu.Unlock()
	}
	return e
}

// submit fetches the page with the form, submits the form, and checks the response for session.login.signed_in.
func (p *visitors) submit(ctx context.Context) error {
	login, at := p.def.Session.Login, p.def.LoginURL()
	page, err := p.client.getOnce(ctx, request{url: at, login: true})
	if err != nil {
		return err
	}
	doc, err := p.parseLogin(page)
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
		return refused("the form at %s uses GET, which would expose the password in URLs", page.URL.Redacted())
	case page.URL.Scheme == "https" && action.Scheme != "https":
		return refused("the form at %s does not use TLS, which would expose the password", page.URL.Redacted())
	case !p.def.InScope(action):
		return refused("the form at %s submits to %s, which is outside the site; see hosts", page.URL.Redacted(), action.Host)
	}
	page, err = p.client.getOnce(polite.Patient(ctx), request{url: action.String(), post: form.Post(), referer: page.URL.String(), login: true})
	if e, ok := errors.AsType[*Error](err); ok {
		if e.Class == Blocked || e.Class == Empty { // 401, 403 or no content
			e.Class = Login
		}
		return e
	}
	if doc, err = p.parseLogin(page); err != nil {
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
	return refused("the response to the form, %s, does not match session.login.signed_in (%s); check the user, the password and the selector", page.URL.Redacted(), login.SignedIn.Text)
}

// parseLogin parses a page of the login, which is HTML regardless of the format of other pages.
func (p *visitors) parseLogin(page extract.Page) (*extract.Doc, error) {
	doc, err := extract.Parse(p.def.WithFormat(definition.FormatHTML), page)
	if err != nil {
		return nil, &Error{Class: Parse, URL: page.Requested, Status: page.Status, Via: page.Via, Err: err}
	}
	return doc, nil
}

// isLoggedOut parses a page and reports whether it fails to match session.login.signed_in. Sitemaps, JSON and blocked pages never count: they
// do not depend on the login, and Inspect reports blocked pages to the caller.
func (p *visitors) isLoggedOut(page *extract.Page) bool {
	if p.def.Session == nil || p.def.Session.Login == nil || definition.IsRaw(page.Kind) || p.def.Page(page.Kind).Format == definition.FormatJSON {
		return false
	}
	doc, err := extract.Parse(p.def, *page)
	if err != nil {
		return false
	}
	page.Parsed = doc
	if p.def.Session.Login.SignedIn.First(doc.Root) != nil {
		return false
	}
	return isLogin(doc) || p.def.Blocks.Off || blockedBy(p.def, doc) == ""
}

// expire ends a login after a page shows that it has expired, unless another request has already done so. The next login starts
// without cookies, because responses to concurrent requests would change cookies between the form and its submission.
func (p *visitors) expire(ctx context.Context, u *use) error {
	if err := p.hold(ctx); err != nil {
		return err
	}
	defer p.pass()
	if u.logins != u.login || !u.ready { // in the latter case, no request has logged in again yet
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if u.ended {
		return nil
	}
	if fetched := p.credit; !p.mayLogInAgain() {
		p.refused = cmp.Or(p.refused, &Error{Class: Login, URL: p.def.LoginURL(), Err: fmt.Errorf("session.login: the site logged out a session again after %d pages; check whether the account is used elsewhere or by several jobs", fetched)})
		e := *p.refused
		return &e
	}
	u.started, u.ready = false, false
	u.visitor.jar = newJar(p.def, p.client.tls)
	return nil
}

// mayLogInAgain reports whether a visitor that the site has logged out or blocked may log in again: once, and once more per
// pagesPerLogin fetched pages. It counts the login. The caller holds mu.
func (p *visitors) mayLogInAgain() bool {
	if p.credit < pagesPerLogin {
		return false
	}
	p.credit = 0
	return true
}

// notSignedInError returns the error of a page without session.login.signed_in right after a login.
func (p *visitors) notSignedInError(page extract.Page) error {
	return &Error{Class: Login, URL: page.Requested, Status: page.Status, Via: page.Via, Err: fmt.Errorf("session.login.signed_in (%s) does not match right after a login; use a selector that matches all pages", p.def.Session.Login.SignedIn.Text)}
}

// refusal returns the error that stops logins, or nil.
func (p *visitors) refusal() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused == nil {
		return nil
	}
	e := *p.refused
	return &e
}
