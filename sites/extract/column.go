package extract

import (
	"strconv"

	"golang.org/x/net/html"
)

// headings returns the columns of a table's headings, by text without case: its th and the cells of its first row. They are nil for
// a table whose cells span rows. They are computed on the first call.
func (d *Doc) headings(table *html.Node) map[string]int {
	if h, ok := d.tables[table]; ok {
		return h
	}
	h := map[string]int{}
	var first *html.Node
	for n := range table.Descendants() {
		if n.Data != "tr" || above(n, "table") != table {
			continue
		}
		if first == nil {
			first = n
		}
		eachCell(n, func(column int, cell *html.Node) {
			if spanOf(cell, "rowspan") > 1 {
				h = nil
			}
			if name := labelText(textUpTo(cell, 200)); h != nil && name != "" && (n == first || cell.Data == "th") {
				if _, ok := h[name]; !ok {
					h[name] = column
				}
			}
		})
		if h == nil {
			break
		}
	}
	if d.tables == nil {
		d.tables = map[*html.Node]map[string]int{}
	}
	d.tables[table] = h
	return h
}

// eachCell calls fn with the first column of each cell of a row.
func eachCell(row *html.Node, fn func(column int, cell *html.Node)) {
	column := 0
	for cell := row.FirstChild; cell != nil; cell = cell.NextSibling {
		if cell.Data == "td" || cell.Data == "th" {
			fn(column, cell)
			column += spanOf(cell, "colspan")
		}
	}
}

// inColumn returns the cell in the row of n and the column of a heading, which is a th or a cell of the table's first row.
func (d *Doc) inColumn(n *html.Node, heading string) (finds []found) {
	row := above(n, "tr")
	within := above(row, "table")
	if row == nil || within == nil {
		return nil
	}
	want := labelText(heading)
	at0, ok := d.headings(within)[want]
	if !ok {
		return nil
	}
	eachCell(row, func(column int, cell *html.Node) {
		if column == at0 && labelText(textUpTo(cell, 200)) != want { // not the heading itself
			finds = []found{{at: at{node: cell}, text: Text(cell), given: true}}
		}
	})
	return finds
}

func above(n *html.Node, name string) *html.Node {
	for n != nil && !(n.Type == html.ElementNode && n.Data == name) {
		n = n.Parent
	}
	return n
}

func spanOf(cell *html.Node, name string) int {
	v, _ := Attr(cell, name)
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		return 1
	}
	return min(n, 1000)
}
