// Package tableful extracts quotes from tables with paired rows. It is an example of a site that needs code.
package tableful

import (
	_ "embed"
	"strings"

	"muster/sites/definition"
	"muster/sites/extract"
)

// Definition is the part of the site that needs no code.
//
//go:embed tableful.yaml
var Definition []byte

// Extract implements extract.Func. A row that names an author is a quote; the links in the next row are its tags.
func Extract(def *definition.Definition, d *extract.Doc) (extract.Result, error) {
	declared, err := extract.Declared(def, d)
	if err != nil {
		return extract.Result{}, err
	}
	res := extract.Result{Links: declared.Links, Next: declared.Next, Counted: declared.Counted}
	rows := row.All(d.Root)
	for i, r := range rows {
		text, author, ok := strings.Cut(extract.Text(r), " Author: ")
		if !ok || strings.Contains(author, "Author: ") {
			continue // a row that contains other rows
		}
		var tags []any
		if i+1 < len(rows) {
			for _, t := range tag.All(rows[i+1]) {
				tags = append(tags, extract.Text(t))
			}
		}
		if err := res.Add(def, d, "quote", extract.Value{Name: "text", Value: text}, extract.Value{Name: "author", Value: author}, extract.Value{Name: "tags", Value: tags}); err != nil {
			return extract.Result{}, err
		}
	}
	return res, nil
}

var (
	row = definition.MustSelector("tr")
	tag = definition.MustSelector(`a[href*="/tag/"]`)
)
