package webui

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Filter is the filter of a list, for the template "filter": a tab for each value of one parameter, a form with the other parameters, and a
// link that removes it for each one that is set.
type Filter struct {
	Name   string  // of the tabs, such as "State"
	Tabs   []Tab   // of AddTab
	Fields []Field // of the form, with their values; one with options is a select
	Kept   []Field // parameters without a field
	Chips  []Link
}

// Tab is a link to the elements of a list with one value of a parameter.
type Tab struct {
	Link
	N  int64 // number of elements; negative if unknown
	On bool
}

const (
	maxParameter = 200 // default of the maximum length of a parameter of a filter
	maxCursor    = 2000
)

// positions are parameters for a part of a list.
var positions = []string{"after", "from"}

// NewFilter returns a filter of fields for the parameters of a list. Its links and its form lead to the beginning of the list. A value
// that is too long, or not among the options of its field, is an error.
func NewFilter(q url.Values, fields ...Field) (*Filter, error) {
	f := &Filter{Fields: fields}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		values := slices.DeleteFunc(slices.Clone(q[name]), func(v string) bool { return v == "" })
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
		for k, v := range values {
			most := maxParameter
			switch {
			case slices.Contains(positions, name):
				most = maxCursor
			case i < 0 || k > 0:
				f.Kept = append(f.Kept, Field{Name: name, Value: v})
			default:
				fields[i].Value = strings.TrimSpace(v)
			}
			text := v
			if i >= 0 {
				most = cmp.Or(fields[i].Max, most)
				if o := slices.IndexFunc(fields[i].Options, func(o Option) bool { return o.Value == v }); o >= 0 {
					text = fields[i].Options[o].Text
				} else if len(fields[i].Options) > 0 {
					return nil, Invalid("Invalid parameter %s: must be one of the choices.", name)
				}
				f.Chips = append(f.Chips, Link{Text: fields[i].Label + ": " + text, URL: listURL(q, name, slices.Delete(slices.Clone(values), k, k+1)...)})
			}
			if utf8.RuneCountInString(v) > most {
				return nil, Invalid("The parameter %.50q is too long: at most %d characters are allowed.", name, most)
			}
		}
	}
	return f, nil
}

// Get returns the value of a field; "" for none.
func (f *Filter) Get(name string) string {
	i := slices.IndexFunc(f.Fields, func(f Field) bool { return f.Name == name })
	return f.Fields[i].Value
}

// AddTab adds a tab for a value of a parameter, or with "" for all values.
func (f *Filter) AddTab(q url.Values, name, value, text string, n int64) {
	f.Tabs = append(f.Tabs, Tab{Link{Text: cmp.Or(text, value), URL: listURL(q, name, value)}, n, q.Get(name) == value})
}

// listURL returns the URL of the beginning of a list with other values of a parameter.
func listURL(q url.Values, name string, values ...string) string {
	q = maps.Clone(q)
	q[name] = values
	maps.DeleteFunc(q, func(name string, values []string) bool {
		return slices.Contains(positions, name) || len(values) == 0 || values[0] == ""
	})
	return "?" + q.Encode()
}

// After returns the URL of the part of a list at a cursor; "" without one.
func After(q url.Values, cursor string) string {
	if cursor == "" {
		return ""
	}
	q = maps.Clone(q)
	q.Set("after", cursor)
	return "?" + q.Encode()
}

// Part is a part of a list, for the template "turns".
type Part struct {
	From, To, All int    // the part has the elements from From to To
	Before, After string // URLs of the previous and the next part, or ""
}

// NewPart returns the part of a list with some elements that begins at the position in the parameters.
func NewPart(q url.Values, size, all int) (p Part, err error) {
	if text := q.Get("from"); text != "" {
		if p.From, err = strconv.Atoi(text); err != nil || p.From < 0 {
			return p, Invalid("Invalid page position %.20q.", text)
		}
	}
	p.All, p.From = all, min(p.From, max(all-1, 0))
	p.To = min(p.From+size, all)
	at := func(n int) string {
		to := maps.Clone(q)
		to.Set("from", strconv.Itoa(n))
		return "?" + to.Encode()
	}
	if p.From > 0 {
		p.Before = at(max(p.From-size, 0))
	}
	if p.To < all {
		p.After = at(p.To)
	}
	return p, nil
}

// First returns the number of the first element, or 0 in an empty list.
func (p Part) First() int { return min(p.From+1, p.All) }
