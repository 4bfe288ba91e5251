package extract

import (
	"strconv"

	"golang.org/x/net/html"
)

// inColumn finds the cell of a table row that stands under a heading. A cell
// that spans several columns or rows counts in each.
func inColumn(n *html.Node, heading string) []found {
	row := above(n, "tr")
	table := above(row, "table")
	if row == nil || table == nil {
		return nil
	}
	want := labelText(heading)
	column := -1
	var under *html.Node
	grid(table, func(r *html.Node, at int, cell *html.Node) {
		if labelText(Text(cell)) == want && (column < 0 || cell.Data == "th") && r != row {
			if column < 0 {
				column = at
			}
		}
		if r == row && at == column && under == nil {
			under = cell
		}
	})
	if under == nil {
		return nil
	}
	return []found{{at: at{node: under}, text: Text(under), given: true}}
}

func above(n *html.Node, name string) *html.Node {
	for n != nil && !(n.Type == html.ElementNode && n.Data == name) {
		n = n.Parent
	}
	return n
}

// maxSpan bounds what a cell claims to span.
const maxSpan = 1000

// grid calls fn with every cell of a table, of nested ones not, by the row
// and the column that it covers.
func grid(table *html.Node, fn func(row *html.Node, column int, cell *html.Node)) {
	type hanging struct {
		cell *html.Node
		rows int
	}
	down := map[int]hanging{}
	var rows func(n *html.Node)
	rows = func(n *html.Node) {
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			switch {
			case c.Type != html.ElementNode:
			case c.Data == "thead" || c.Data == "tbody" || c.Data == "tfoot":
				rows(c)
			case c.Data == "tr":
				column := 0
				fill := func() {
					for down[column].rows > 0 {
						h := down[column]
						fn(c, column, h.cell)
						down[column] = hanging{h.cell, h.rows - 1}
						column++
					}
				}
				for cell := c.FirstChild; cell != nil; cell = cell.NextSibling {
					if cell.Type != html.ElementNode || cell.Data != "td" && cell.Data != "th" {
						continue
					}
					fill()
					across, deep := spanOf(cell, "colspan"), spanOf(cell, "rowspan")
					for range across {
						fn(c, column, cell)
						if deep > 1 {
							down[column] = hanging{cell, deep - 1}
						}
						column++
					}
				}
				fill()
			}
		}
	}
	rows(table)
}

func spanOf(cell *html.Node, name string) int {
	v, _ := attr(cell, name)
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		return 1
	}
	return min(n, maxSpan)
}
