package webui

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// tokenName is the name of the cookie and of the form field that must be equal. It prevents cross-site request forgery,
	// because another site can neither read nor set the cookie.
	tokenName = "muster_form"
	maxForm   = 4 << 20
)

// Action returns the question of a request. GET shows it; POST checks the fields of its form and calls its Do.
type Action func(ctx context.Context, r *http.Request) (Question, error)

// Question is an action with the content of its confirmation page.
type Question struct {
	Title, Text string
	Button      string // label of the button
	Danger      bool   // it cannot be undone
	Fields      []Field
	Back        string // the URL of the page to return to
	// Do performs the action.
	Do func(ctx context.Context, f Form) (Result, error)
}

// Field is a form field of a confirmation page.
type Field struct {
	Name, Label, Hint string
	Type              string // text, number, duration, password, textarea, json, select or checkbox
	Value             string
	Options           []Option // options of a select
	Min, Max          int      // bounds of a number; Max > 0 is the maximum length of a text
	Required          bool
}

// Option is an option of a select.
type Option struct{ Value, Text string }

// Form contains the values of the fields of a question. They are valid. Only texts of several lines may have space around them.
type Form map[string]string

// Int returns the value of a number; 0 for none.
func (f Form) Int(name string) int {
	n, _ := strconv.Atoi(f[name])
	return n
}

// Duration returns the value of a duration; 0 for none.
func (f Form) Duration(name string) time.Duration {
	d, _ := time.ParseDuration(f[name])
	return d
}

// form returns the values of a submitted form.
func (q Question) form(r *http.Request) (Form, error) {
	f := Form{}
	for _, field := range q.Fields {
		v, err := field.parse(r.PostFormValue(field.Name))
		if err != nil {
			return nil, err
		}
		f[field.Name] = v
	}
	return f, nil
}

// parse checks a submitted value.
func (f Field) parse(v string) (string, error) {
	trimmed := strings.TrimSpace(v)
	if f.Type != "textarea" {
		v = trimmed
	}
	n, notNumber := strconv.Atoi(v)
	d, notDuration := time.ParseDuration(v)
	switch {
	case f.Type == "select":
		v = cmp.Or(v, f.Value)
		if !slices.ContainsFunc(f.Options, func(o Option) bool { return o.Value == v }) {
			return "", Invalid("Choose an option: %s.", f.Label)
		}
	case trimmed == "" && f.Required:
		return "", Invalid("Required: %s.", f.Label)
	case trimmed == "", f.Type == "checkbox":
	case f.Type == "number":
		if notNumber != nil || n < f.Min || f.Max > 0 && n > f.Max {
			return "", Invalid("%s must be a number from %d to %d.", f.Label, f.Min, f.Max)
		}
	case f.Type == "duration" && (notDuration != nil || d < 0):
		return "", Invalid("%s must be a duration such as 10m.", f.Label)
	case f.Type == "json" && !json.Valid([]byte(v)):
		return "", Invalid(`%s must be JSON. A string requires quotes: "yes".`, f.Label)
	case f.Max > 0 && utf8.RuneCountInString(v) > f.Max:
		return "", Invalid("%s is too long: at most %d characters are allowed.", f.Label, f.Max)
	}
	return v, nil
}

// Result is the result of an action: the URL of the next page, Back of the question by default. With a title it is shown on a page.
type Result struct{ To, Title, Text string }

// form is the template data of a confirmation page.
type form struct {
	Question
	Token, Path string
}

var errMay = Forbidden("You do not have permission for this action.")

// Action serves an action.
func (s *Site) Action(a Action) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), AskTime)
		defer cancel()
		if err := s.act(ctx, w, r, a); err != nil {
			s.Fail(w, r, err)
		}
	})
}

// act shows the question of an action, or performs it.
func (s *Site) act(ctx context.Context, w http.ResponseWriter, r *http.Request, a Action) error {
	if !s.cfg.May(r) {
		return errMay
	}
	submitted := r.Method == http.MethodPost
	if submitted {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := genuine(r); err != nil {
			return err
		}
	}
	q, err := a(ctx, r)
	if err != nil {
		return err
	}
	if !submitted {
		return s.still(w, r, s.confirm, q.Title, q.Back, form{q, s.token(w, r), r.URL.RequestURI()})
	}
	f, err := q.form(r)
	if err != nil {
		return err
	}
	done, err := q.Do(ctx, f)
	if s.cfg.OnAction != nil {
		s.cfg.OnAction(r, r.Pattern, err)
	}
	done.To = cmp.Or(done.To, q.Back)
	switch {
	case err != nil:
		return err
	case done.Title != "":
		return s.still(w, r, s.done, done.Title, done.To, done)
	default:
		http.Redirect(w, r, done.To, http.StatusSeeOther)
		return nil
	}
}

// still serves a page of an action.
func (s *Site) still(w http.ResponseWriter, r *http.Request, show func() *template.Template, name, back string, data any) error {
	v := s.framed(r, View{Name: name, At: s.cfg.at(back), Data: data, Fixed: true})
	res, err := s.execute(http.StatusOK, show, s.counted(r.Context(), v))
	if err == nil {
		s.write(w, res)
	}
	return err
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

// genuine returns an error unless a form was submitted by a page of the site.
func genuine(r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			return &pageError{http.StatusRequestEntityTooLarge, "Request too large", fmt.Sprintf("The form is larger than %d MiB. Use the command line or the API instead.", maxForm>>20)}
		}
		return Invalid("Invalid form: %v.", err)
	}
	cookie, err := r.Cookie(tokenName)
	if err == nil {
		err = http.NewCrossOriginProtection().Check(r)
	}
	if err != nil || len(cookie.Value) != 32 || subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(r.PostFormValue(tokenName))) != 1 {
		return Forbidden("The form is from another site or outdated. Go back, reload the page and try again.")
	}
	return nil
}
