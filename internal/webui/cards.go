package webui

import (
	"io/fs"
	"regexp"
	"strings"
)

// templates is a file system of templates. Tables without a class that have a head get the class cards, and their cells the title of the
// column in the attribute data-title: on phones, each row is shown as a card.
type templates struct{ fs.FS }

// ReadFile returns a template, as [fs.ReadFile] does.
func (t templates) ReadFile(name string) ([]byte, error) {
	raw, err := fs.ReadFile(t.FS, name)
	return []byte(tables.ReplaceAllStringFunc(string(raw), cards)), err
}

var (
	tables = regexp.MustCompile(`(?s)<table>\s*<thead>.*?</table>`)
	heads  = regexp.MustCompile(`<th[ >].*?</th>`)
	cells  = regexp.MustCompile(`<tr|<td( colspan)?`)
	tags   = regexp.MustCompile(`<[^>]*>`)
)

// cards adds the titles of the columns to the cells of a table. The cells of a row are in the order of the columns; both may depend on
// the same conditions. A cell that spans columns has no title: it replaces cells if there is nothing to show. It panics if there are more
// cells than columns.
func cards(table string) string {
	head, body, _ := strings.Cut(table, "</thead>")
	var titles []string
	for _, th := range heads.FindAllString(head, -1) {
		titles = append(titles, tags.ReplaceAllString(th, ""))
	}
	i := 0
	body = cells.ReplaceAllStringFunc(body, func(tag string) string {
		switch tag {
		case "<tr":
			i = 0
			return tag
		case "<td colspan":
			return tag
		}
		if i++; i > len(titles) {
			panic("more cells than columns: " + table)
		}
		return `<td data-title="` + titles[i-1] + `"`
	})
	return strings.Replace(head, "<table>", `<table class="cards">`, 1) + "</thead>" + body
}
