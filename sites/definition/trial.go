package definition

import (
	"strings"

	"github.com/goccy/go-yaml/ast"

	"muster/internal/yamlstrict"
)

// ParseField parses a field in the notation of definitions, for a page format and the locale of d. It returns Problems with
// positions in text.
func ParseField(d *Definition, text, format string) (Field, error) {
	const name = "field"
	f := Field{}
	dec := decoder()
	dec.Decode([]byte(text), &f)
	f.Name = name
	c := &checker{places: map[string]yamlstrict.Place{}, problems: dec.Problems}
	for key, at := range dec.Places {
		c.places["."+yamlstrict.Join(name, key)] = at
	}
	fields := Fields{f}
	if len(c.problems) == 0 {
		c.checkFields(d, fields, format, "")
	}
	for _, p := range c.problems {
		p.Key = strings.TrimPrefix(strings.TrimPrefix(p.Key, "."+name), ".")
	}
	if len(c.problems) > 0 {
		return Field{}, c.problems.Sorted()
	}
	return fields[0], nil
}

// Trial returns a copy of the definition that extracts one field from pages of a kind: one record per match of each, a selector,
// or a JSON path if the page is JSON without HTML; "" is the whole page.
func (d *Definition) Trial(kind, each string, f Field) (*Definition, error) {
	r := Record{Name: "record", From: kind, Fields: Fields{f}}
	if page := d.Page(kind); each != "" && page.Format == FormatJSON && page.HTML.IsZero() {
		path, err := ParsePath(each)
		if err != nil {
			return nil, err
		}
		r.EachJSON = path
	} else if each != "" {
		sel, err := ParseSelector(each)
		if err != nil {
			return nil, err
		}
		r.Each = sel
	}
	only := *d
	only.Records = Records{r}
	only.Listing.Links, only.Listing.Next, only.Detail.Links = nil, nil, nil
	return &only, nil
}

// WithFormat returns a copy of the definition with one format for all kinds of page.
func (d *Definition) WithFormat(format string) *Definition {
	with := *d
	with.Listing.Format, with.Detail.Format = format, format
	return &with
}

// decoder returns a decoder of definitions.
func decoder() *yamlstrict.Decoder {
	d := &yamlstrict.Decoder{Removed: removed}
	d.Custom = func(v any, n ast.Node, key string) bool {
		nd, ok := v.(nodeDecoder)
		if ok {
			nd.decodeNode(d, n, key)
		}
		return ok
	}
	return d
}

// removed has the ways out for keys that earlier versions had.
var removed = map[string]string{
	"*.if":                       "select the elements in each, as in each: 'body:has(.buy-button)'",
	"*.xpath":                    "give the expression to css, as in css: xpath:count(//a)",
	"politeness.crawl_delay_max": "a Crawl-delay counts up to a minute; robots: false ignores it",
	"politeness.retry_after_max": "a Retry-After counts up to ten minutes",
	"session.max":                "each process of a job is one visitor",
	"session.max_uses":           "a visitor ends when the site blocks it",
	"session.max_age":            "a visitor ends when the site blocks it",
	"session.max_errors":         "a visitor ends when the site blocks it",
	"session.profiles":           "set headers, in one definition per profile",
}
