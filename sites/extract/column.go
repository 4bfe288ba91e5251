package extract

import (
	"strconv"

	"golang.org/x/net/html"
)

// inColumn returns the cell in the row of n below a heading, which is a cell of the table's first row. Rows of another width have
// none, because cells of rows above may extend to them.
func inColumn(n *html.Node, heading string) []found {
	row := above(n, "tr")
	table := above(row, "table")
	if table == nil {
		return nil
	}
	first := row
	for d := range table.Descendants() {
		if d.Data == "tr" {
			first = d
			break
		}
	}
	want, under := labelText(heading), -1
	width := eachCell(first, func(column int, cell *html.Node) {
		if under < 0 && labelText(textUpTo(cell, 200)) == want {
			under = column
		}
	})
	var value *html.Node
	same := width == eachCell(row, func(column int, cell *html.Node) {
		if column == under {
			value = cell
		}
	})
	if !same || value == nil || row == first {
		return nil
	}
	return []found{{at: at{node: value}, text: Text(value), given: true}}
}

// eachCell calls fn with the first column of each cell of a row and returns the number of columns.
func eachCell(row *html.Node, fn func(column int, cell *html.Node)) (width int) {
	for cell := row.FirstChild; cell != nil; cell = cell.NextSibling {
		if cell.Data == "td" || cell.Data == "th" {
			fn(width, cell)
			v, _ := Attr(cell, "colspan")
			span, _ := strconv.Atoi(v)
			width += min(max(span, 1), 1000)
		}
	}
	return width
}

func above(n *html.Node, name string) *html.Node {
	for n != nil && !(n.Type == html.ElementNode && n.Data == name) {
		n = n.Parent
	}
	return n
}
