package definition

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"muster/internal/secret"
)

// Refers reports whether headers, cookies or the login refer to secrets.
func (d *Definition) Refers() bool {
	found := false
	d.secretTexts(func(_, text string) string {
		found = found || secret.Refers(text)
		return text
	})
	return found
}

// WithSecrets returns the definition with the references in headers, cookies and the login replaced by secrets; see
// package secret. The error lists all secrets that are missing or invalid, by key and without their values. YAML still returns
// the references.
func (d *Definition) WithSecrets(getenv func(name string) (string, bool)) (*Definition, error) {
	var problems Problems
	with := d.secretTexts(func(key, text string) string {
		value, err := secret.Expand(text, getenv)
		if err == nil && secret.Refers(text) {
			err = sendable(key, value)
		}
		if err != nil {
			problems = append(problems, d.Problem(key, strings.ReplaceAll(err.Error(), "\n", "; ")))
		}
		return value
	})
	if len(problems) > 0 {
		return nil, problems.Sorted()
	}
	return with, nil
}

// sendable returns an error if a secret is invalid in a header or a cookie.
func sendable(key, value string) error {
	if strings.HasPrefix(key, "session.login.") {
		return nil
	}
	if strings.HasPrefix(key, "cookies.") {
		if !validCookie(value) {
			return errors.New("the secret is not a valid cookie value")
		}
	} else if !httpguts.ValidHeaderFieldValue(value) {
		return errors.New("the secret is not a valid HTTP header value")
	}
	return nil
}

// secretTexts returns a copy of the definition with each string of the headers, cookies, login fields, render.key and extractor.key replaced by the
// result of each.
func (d *Definition) secretTexts(each func(key, text string) string) *Definition {
	with := *d
	replaced := func(key string, m map[string]string) map[string]string {
		m = maps.Clone(m)
		for _, name := range slices.Sorted(maps.Keys(m)) {
			m[name] = each(key+"."+name, m[name])
		}
		return m
	}
	with.Extractor.Key = each("extractor.key", d.Extractor.Key)
	with.Headers, with.Cookies.Values, with.Render.Key = replaced("headers", d.Headers), replaced("cookies", d.Cookies.Values), each("render.key", d.Render.Key)
	if d.Session != nil {
		s := *d.Session
		if s.Login != nil {
			login := *s.Login
			login.Fields = replaced("session.login.fields", login.Fields)
			s.Login = &login
		}
		with.Session = &s
	}
	return &with
}

// Login describes the login of a session: it fetches a page, fills in the form on it and submits the form.
type Login struct {
	At       Pos
	URL      string            `yaml:"url"`
	Form     Selector          `yaml:"form"`
	Fields   map[string]string `yaml:"fields"`
	SignedIn Selector          `yaml:"signed_in"`
}

// FieldNames returns the names of the fields to fill in, sorted.
func (l *Login) FieldNames() []string { return slices.Sorted(maps.Keys(l.Fields)) }

// LoginURL returns the URL of the login page, or "" without a login.
func (d *Definition) LoginURL() string {
	if d.Session == nil || d.Session.Login == nil {
		return ""
	}
	return d.resolve(d.Session.Login.URL)
}

func (l *Login) check(c *checker, def *Definition, base *url.URL) {
	const key = "session.login"
	if l.URL == "" {
		c.problemAt(l.At, key+".url", "is missing; set the URL of the page with the form")
	} else {
		c.checkOwn(def, base, l.URL, l.At, key+".url")
	}
	if len(l.Fields) == 0 {
		c.problemAt(l.At, key+".fields", "is missing; set the form's fields and their values, such as password: ${SHOP_PASSWORD}")
	}
	if l.SignedIn.IsZero() && !c.failedAt(l.At) && !c.failedKey(key+".signed_in") {
		c.problemAt(l.At, key+".signed_in", "is missing; set a selector that matches every page while the visitor is logged in, such as a[href='/logout']")
	}
}
