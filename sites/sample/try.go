package sample

import (
	"encoding/json"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/internal/lines"
)

// Trial is the result of one field on a page.
type Trial struct {
	Field
	Values   []json.RawMessage // of the records with the field, in page order, valid ones first
	Problems []string          // without duplicates
}

// Try extracts one field of a page, at each match of each; see definition.Trial. It may be called repeatedly for a page, but not
// concurrently.
func Try(def *definition.Definition, doc *extract.Doc, each string, f definition.Field) (Trial, error) {
	only, err := def.Trial(doc.Page.Kind, each, f)
	if err != nil {
		return Trial{}, err
	}
	res, err := extract.Declared(only, doc)
	if err != nil {
		return Trial{}, err
	}
	name := only.Records[0].Name + "." + f.Name
	t := Trial{Field: Field{Name: f.Name, Hits: res.Hits[name]}}
	for _, r := range slices.Concat(res.Records, res.Invalid) {
		for _, v := range r.Fields {
			value, _ := lines.JSON(v.Value) // values of fields always encode
			t.Values = append(t.Values, value)
		}
		for _, p := range r.Problems {
			if !slices.Contains(t.Problems, p) {
				t.Problems = append(t.Problems, p)
			}
		}
	}
	if why := res.Faults[name]; why.Unparsed > 0 {
		t.Problems = append(t.Problems, f.Name+": "+why.Example)
	}
	return t, nil
}

// Matches are the matches of a selector or a JSON path on a page.
type Matches struct {
	Places, With int      // number of matches of each, and of matches of each that contain a match of the selector
	Found        []string // start tag and text of elements, strings, or JSON, in page order
}

// Match evaluates a selector at each match of each, or on the whole page if each is "". On a JSON page without HTML both are JSON
// paths.
func Match(doc *extract.Doc, each, selector string) (Matches, error) {
	if doc.Root == nil {
		return matchJSON(doc, each, selector)
	}
	sel, err := definition.ParseSelector(selector)
	if err != nil {
		return Matches{}, err
	}
	places := []*html.Node{doc.Root}
	if each != "" {
		outer, err := definition.ParseSelector(each)
		if err != nil {
			return Matches{}, err
		}
		places = outer.All(doc.Root)
	}
	return matchesOf(places, sel.All, func(n *html.Node) string { return describeMatch(n, sel.Attr) }), nil
}

// matchesOf collects the matches in places as strings.
func matchesOf[P, V any](places []P, find func(P) []V, text func(V) string) Matches {
	m := Matches{Places: len(places)}
	for _, p := range places {
		found := find(p)
		if len(found) > 0 {
			m.With++
		}
		for _, v := range found {
			m.Found = append(m.Found, text(v))
		}
	}
	return m
}

// describeMatch returns an attribute of an element, or its start tag and text, or the text of a text node.
func describeMatch(n *html.Node, attr string) string {
	if n.Type != html.ElementNode {
		return extract.Fold(n.Data)
	}
	if v, ok := extract.Attr(n, attr); ok {
		return v
	}
	tag := html.Token{Type: html.StartTagToken, Data: n.Data, Attr: n.Attr}.String()
	return strings.TrimSpace(tag + " " + extract.Text(n))
}

func matchJSON(doc *extract.Doc, each, path string) (Matches, error) {
	inner, err := definition.ParsePath(path)
	if err != nil {
		return Matches{}, err
	}
	places := []any{doc.JSON}
	if each != "" {
		outer, err := definition.ParsePath(each)
		if err != nil {
			return Matches{}, err
		}
		places = outer.Members(doc.JSON)
	}
	return matchesOf(places, inner.Eval, func(v any) string { text, _ := lines.JSON(v); return string(text) }), nil
}
