package extract

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"muster/sites/definition"
)

// Form is the form of a page with the values that a browser would submit.
type Form struct {
	Action *url.URL
	Method string // GET or POST
	values url.Values
	names  map[string]bool // names of all controls
}

var (
	formSelector     = definition.MustSelector("form")
	passwordSelector = definition.MustSelector(`input[type="password" i]`)
	controlSelector  = definition.MustSelector("input[name], textarea[name], select[name], button[name]")
	optionSelector   = definition.MustSelector("option")
)

// Form returns the form that a selector matches or is inside of. With the zero Selector it is the first form with a password. Its
// hidden fields, defaults and first named button are set. Forms with files are not supported.
func (d *Doc) Form(sel definition.Selector) (*Form, error) {
	n, err := d.formNode(sel)
	if err != nil {
		return nil, err
	}
	action, _ := Attr(n, "action")
	u := d.Page.URL
	if strings.TrimSpace(action) != "" {
		if u, err = d.reference(action); err != nil {
			return nil, fmt.Errorf("the action of the form is not a URL: %q", action)
		}
	}
	f := &Form{Action: u, Method: http.MethodGet, values: url.Values{}, names: map[string]bool{}}
	if method, _ := Attr(n, "method"); strings.EqualFold(strings.TrimSpace(method), "post") {
		f.Method = http.MethodPost
	}
	button := false
	for _, c := range controlSelector.All(n) {
		name, _ := Attr(c, "name")
		if _, disabled := Attr(c, "disabled"); disabled || name == "" {
			continue
		}
		typ, _ := Attr(c, "type")
		typ = strings.ToLower(strings.TrimSpace(typ))
		switch {
		case typ == "submit" || c.Data == "button" && typ == "":
			if !button {
				button = true
				f.add(c, name, "")
			}
			continue
		case c.Data == "button" || typ == "image" || typ == "reset" || typ == "button" || typ == "file":
			continue
		case c.Data == "textarea":
			f.values.Add(name, raw(c))
		case c.Data == "select":
			f.option(c, name)
		case typ == "checkbox" || typ == "radio":
			if _, checked := Attr(c, "checked"); checked {
				f.add(c, name, "on")
			}
		default:
			f.add(c, name, "")
		}
		f.names[name] = true
	}
	return f, nil
}

func (d *Doc) formNode(sel definition.Selector) (*html.Node, error) {
	if d.Root == nil {
		return nil, errors.New("the page is not HTML, so it has no form")
	}
	n := passwordSelector.First(d.Root)
	what := "a password"
	if !sel.IsZero() {
		n, what = sel.First(d.Root), sel.Text
	}
	for n != nil && !formSelector.Match(n) {
		n = n.Parent
	}
	if n == nil {
		return nil, fmt.Errorf("the page has no form with %s", what)
	}
	return n, nil
}

// add adds the value of a control, or missing if it has none.
func (f *Form) add(c *html.Node, name, missing string) {
	value, ok := Attr(c, "value")
	if !ok {
		value = missing
	}
	f.values.Add(name, value)
}

// option adds the selected options, or the first option of a list that always has a selection.
func (f *Form) option(c *html.Node, name string) {
	options := optionSelector.All(c)
	var chosen []*html.Node
	for _, o := range options {
		if _, ok := Attr(o, "selected"); ok {
			chosen = append(chosen, o)
		}
	}
	if _, multiple := Attr(c, "multiple"); len(chosen) == 0 && len(options) > 0 && !multiple {
		chosen = options[:1]
	}
	for _, o := range chosen {
		f.add(o, name, Text(o))
	}
}

// raw returns the text below an element without changes.
func raw(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return b.String()
}

// Set fills in a field. The error for an unknown field contains no values.
func (f *Form) Set(name, value string) error {
	if !f.names[name] {
		return fmt.Errorf("the form has no field %q; it has %s", name, strings.Join(slices.Sorted(maps.Keys(f.names)), ", "))
	}
	f.values.Set(name, value)
	return nil
}

// Post returns the body of a form with the method POST.
func (f *Form) Post() definition.Post { return definition.FormPost(f.values) }
