package webui

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
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

// positions are parameters for a part of a list.
var positions = []string{"after", "from"}

// NewFilter returns a filter of fields for the parameters of a list. Its links and its form lead to the beginning of the list.
func NewFilter(q url.Values, fields ...Field) *Filter {
	f := &Filter{Fields: fields}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		values := slices.DeleteFunc(slices.Clone(q[name]), func(v string) bool { return v == "" })
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
		for k, v := range values {
			switch {
			case slices.Contains(positions, name):
			case i < 0 || k > 0:
				f.Kept = append(f.Kept, Field{Name: name, Value: v})
			default:
				fields[i].Value = v
			}
			if i >= 0 {
				text := v
				if o := slices.IndexFunc(fields[i].Options, func(o Option) bool { return o.Value == v }); o >= 0 {
					text = fields[i].Options[o].Text
				}
				f.Chips = append(f.Chips, Link{Text: fields[i].Label + ": " + text, URL: listURL(q, name, slices.Delete(slices.Clone(values), k, k+1)...)})
			}
		}
	}
	return f
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
