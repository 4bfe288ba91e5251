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
	// tokenName is the name of the cookie and of the field of forms that must be equal, so that no other site can send
	// the form: it can neither read nor set the cookie.
	tokenName = "muster_form"
	maxForm   = 4 << 20
)

// Action is something that a page can do. A GET shows what it will do and asks; a POST does it.
type Action struct {
	Class Class
	// Says returns what a person is asked.
	Says func(ctx context.Context, r *http.Request) (Question, error)
	// Do does it. r.PostFormValue has the values of the fields of the question.
	Do func(ctx context.Context, r *http.Request) (Done, error)
}

// Question is what a person is asked before something is done.
type Question struct {
	Title, Text string
	Button      string // its text: what will be done
	Danger      bool   // it cannot be undone
	Fields      []Field
	Back        string // the URL of the page to return to
	At          string // the URL of the entry of the navigation that it belongs to
}

// Field is a field of the form of a question.
type Field struct {
	Name, Label, Hint string
	Type              string // text, number, password, textarea, select or checkbox
	Value             string
	Options           []Option // of a select
	Min, Max          int      // of a number; the length of a text is at most Max, if Max > 0
	Required          bool
}

// Option is a value of a select.
type Option struct{ Value, Text string }

// Done is what follows a change: the URL of the page to show or, with a title, a page that says what came of it.
type Done struct {
	To          string
	Title, Text string
	Secret      string // shown once, to be copied
	Created     string // with a title: the path of what was created
}

// form is a question as it is shown.
type form struct {
	Question
	Token, Path string
}

// Action returns handlers for the GET and the POST of an action.
func (s *Site) Action(a Action) (ask, do http.Handler) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.ask(w, r, a) }),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.perform(w, r, a) })
}

var errMay = Forbidden("You may not do this here.")

// ask asks before something is done.
func (s *Site) ask(w http.ResponseWriter, r *http.Request, a Action) {
	if !s.cfg.May(r, a.Class) {
		s.Fail(w, r, errMay)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), AskTime)
	defer cancel()
	q, err := a.Says(ctx, r)
	if err != nil {
		s.Fail(w, r, err)
		return
	}
	path := r.URL.EscapedPath()
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	v := s.framed(r, View{Name: q.Title, At: q.At, Data: form{q, s.token(w, r), path}})
	v.question = true
	s.write(w, http.StatusOK, s.confirm, v)
}

// token returns the token of the browser, and gives it one if it has none.
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

// perform does what was asked for.
func (s *Site) perform(w http.ResponseWriter, r *http.Request, a Action) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if !s.cfg.May(r, a.Class) {
		s.Fail(w, r, errMay)
		return
	}
	if err := r.ParseForm(); err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			s.Fail(w, r, &pageError{http.StatusRequestEntityTooLarge, "Too long", fmt.Sprintf("What was sent has more than %d MiB. Send it by the command line or the API.", maxForm>>20)})
			return
		}
		s.Fail(w, r, Invalid("The form cannot be read: %v.", err))
		return
	}
	cookie, err := r.Cookie(tokenName)
	if err == nil {
		err = http.NewCrossOriginProtection().Check(r)
	}
	if err != nil || len(cookie.Value) != 32 || subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(r.PostFormValue(tokenName))) != 1 {
		s.Fail(w, r, Forbidden("The form does not come from these pages, or it is old. Go back, reload the page, and try again."))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), AskTime)
	defer cancel()
	done, err := a.Do(ctx, r)
	s.cfg.Did(r, r.Pattern, err)
	switch {
	case err != nil:
		s.Fail(w, r, err)
	case done.Title != "":
		v := s.framed(r, View{Name: done.Title, Data: done})
		v.question = true
		status := http.StatusOK
		if done.Created != "" {
			status = http.StatusCreated
			w.Header().Set("Location", done.Created)
		}
		s.write(w, status, s.done, v)
	default:
		http.Redirect(w, r, done.To, http.StatusSeeOther)
	}
}
