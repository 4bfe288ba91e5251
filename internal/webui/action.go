package webui

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
)

const (
	// tokenName is the name of the cookie and of the form field that must be equal. It prevents cross-site request forgery,
	// because another site can neither read nor set the cookie.
	tokenName = "muster_form"
	maxForm   = 4 << 20
)

// Action is an operation of a page. GET shows a confirmation page; POST performs the action.
type Action struct {
	Class Class
	// Confirm returns the content of the confirmation page.
	Confirm func(ctx context.Context, r *http.Request) (Question, error)
	// Do performs the action. The fields of the form are in r.PostFormValue.
	Do func(ctx context.Context, r *http.Request) (Result, error)
}

// Question is the content of a confirmation page.
type Question struct {
	Title, Text string
	Button      string // label of the button
	Danger      bool   // it cannot be undone
	Fields      []Field
	Back        string // the URL of the page to return to
	At          string // the URL of its navigation entry
}

// Field is a form field of a confirmation page.
type Field struct {
	Name, Label, Hint string
	Type              string // text, number, password, textarea, select or checkbox
	Value             string
	Options           []Option // options of a select
	Min, Max          int      // bounds of a number; Max > 0 is the maximum length of a text
	Required          bool
}

// Option is an option of a select.
type Option struct{ Value, Text string }

// Result is the result of an action: the URL of the next page or, with a title, a result page.
type Result struct {
	To          string
	Title, Text string
	Secret      string // shown once, to be copied
	Created     string // with a title: the path of the created resource
}

// form is the template data of a confirmation page.
type form struct {
	Question
	Token, Path string
}

// Action returns handlers for the GET and the POST requests of an action.
func (s *Site) Action(a Action) (ask, do http.Handler) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.ask(w, r, a) }),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.perform(w, r, a) })
}

var errMay = Forbidden("You do not have permission for this action.")

// ask serves the confirmation page.
func (s *Site) ask(w http.ResponseWriter, r *http.Request, a Action) {
	if !s.cfg.May(r, a.Class) {
		s.Fail(w, r, errMay)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), AskTime)
	defer cancel()
	q, err := a.Confirm(ctx, r)
	if err != nil {
		s.Fail(w, r, err)
		return
	}
	path := r.URL.EscapedPath()
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	v := s.counted(r.Context(), s.framed(r, View{Name: q.Title, At: q.At, Data: form{q, s.token(w, r), path}}))
	v.question = true
	s.write(w, s.execute(http.StatusOK, s.confirm, v))
}

// token returns the CSRF token of the browser, and sets the cookie if necessary.
func (s *Site) token(w http.ResponseWriter, r *http.Request) string {
	if c, err := r.Cookie(tokenName); err == nil && len(c.Value) == 32 {
		return c.Value
	}
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	t := hex.EncodeToString(b[:])
	http.SetCookie(w, &http.Cookie{Name: tokenName, Value: t, Path: s.cfg.Prefix + "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
	return t
}

// perform performs the action of a submitted form.
func (s *Site) perform(w http.ResponseWriter, r *http.Request, a Action) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if !s.cfg.May(r, a.Class) {
		s.Fail(w, r, errMay)
		return
	}
	if err := r.ParseForm(); err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			s.Fail(w, r, &pageError{http.StatusRequestEntityTooLarge, "Request too large", fmt.Sprintf("The form is larger than %d MiB. Use the command line or the API instead.", maxForm>>20)})
			return
		}
		s.Fail(w, r, Invalid("Invalid form: %v.", err))
		return
	}
	cookie, err := r.Cookie(tokenName)
	if err == nil {
		err = http.NewCrossOriginProtection().Check(r)
	}
	if err != nil || len(cookie.Value) != 32 || subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(r.PostFormValue(tokenName))) != 1 {
		s.Fail(w, r, Forbidden("The form is from another site or outdated. Go back, reload the page and try again."))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), AskTime)
	defer cancel()
	done, err := a.Do(ctx, r)
	s.cfg.OnAction(r, r.Pattern, err)
	switch {
	case err != nil:
		s.Fail(w, r, err)
	case done.Title != "":
		v := s.counted(r.Context(), s.framed(r, View{Name: done.Title, Data: done}))
		v.question = true
		status := http.StatusOK
		if done.Created != "" {
			status = http.StatusCreated
			w.Header().Set("Location", done.Created)
		}
		s.write(w, s.execute(status, s.done, v))
	default:
		http.Redirect(w, r, done.To, http.StatusSeeOther)
	}
}
