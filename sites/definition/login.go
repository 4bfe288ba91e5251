package definition

import (
	"maps"
	"net/url"
	"slices"
)

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
	u, err := d.Base().Parse(d.Session.Login.URL)
	if err != nil {
		return "" // checked at load
	}
	return d.Move(u).String()
}

func (l *Login) check(c *checker, def *Definition, base *url.URL) {
	const key = "session.login"
	switch {
	case l.URL == "":
		c.problemAt(l.At, key+".url", "is missing; set the URL of the page with the form")
	case base != nil:
		if u, err := base.Parse(l.URL); err != nil || !def.InScope(u) {
			c.problemAt(l.At, key+".url", "%q is outside the site's scope; check hosts and scope", l.URL)
		}
	}
	if len(l.Fields) == 0 {
		c.problemAt(l.At, key+".fields", "is missing; set the form's fields and their values, such as password: ${SHOP_PASSWORD}")
	}
	if l.SignedIn.IsZero() && !c.failedAt(l.At) && !c.failedKey(key+".signed_in") {
		c.problemAt(l.At, key+".signed_in", "is missing; set a selector that matches every page while the visitor is logged in, such as a[href='/logout']")
	}
}
