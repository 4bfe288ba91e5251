package extract

import (
	"strconv"

	"golang.org/x/net/html"
)

// table is the layout of a table: the cell at each row and column, including spans.
type table struct {
	columns map[string]int // by heading, case-insensitive
	rows    map[*html.Node][]*html.Node
}

// tableOf returns the layout of a table. It computes the layout on the first call.
func (d *Doc) tableOf(n *html.Node) *table {
	if t, ok := d.tables[n]; ok {
		return t
	}
	t := &table{columns: map[string]int{}, rows: map[*html.Node][]*html.Node{}}
	var first, last *html.Node
	grid(n, func(row *html.Node, column int, cell *html.Node) {
		if first == nil {
			first = row
		}
		t.rows[row] = append(t.rows[row], cell)
		if cell == last || cell.Data != "th" && row != first {
			return
		}
		last = cell
		if name := labelText(textUpTo(cell, 200)); name != "" {
			if _, ok := t.columns[name]; !ok {
				t.columns[name] = column
			}
		}
	})
	if d.tables == nil {
		d.tables = map[*html.Node]*table{}
	}
	d.tables[n] = t
	return t
}

// inColumn returns the cell in the row of n and the column of a heading, which is a th or a cell of the table's first row.
func (d *Doc) inColumn(n *html.Node, heading string) []found {
	row := above(n, "tr")
	within := above(row, "table")
	if row == nil || within == nil {
		return nil
	}
	t := d.tableOf(within)
	column, ok := t.columns[labelText(heading)]
	cells := t.rows[row]
	if !ok || column >= len(cells) || labelText(textUpTo(cells[column], 200)) == labelText(heading) {
		return nil // missing, or the heading itself
	}
	return []found{{at: at{node: cells[column]}, text: Text(cells[column]), given: true}}
}

func above(n *html.Node, name string) *html.Node {
	for n != nil && !(n.Type == html.ElementNode && n.Data == name) {
		n = n.Parent
	}
	return n
}

// Limits of a table, whatever its attributes declare.
const (
	maxSpan    = 1000
	maxColumns = 5000
	maxCells   = 1 << 20 // per table; further cells are dropped
)

// grid calls fn for every row and column that a cell of the table spans, without nested tables.
func grid(table *html.Node, fn func(row *html.Node, column int, cell *html.Node)) {
	type hanging struct {
		cell *html.Node
		rows int
	}
	down := map[int]hanging{}
	cells := 0
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
					for cells < maxCells && column < maxColumns && down[column].rows > 0 {
						cells++
						h := down[column]
						fn(c, column, h.cell)
						down[column] = hanging{h.cell, h.rows - 1}
						column++
					}
				}
				for cell := c.FirstChild; cell != nil && column < maxColumns; cell = cell.NextSibling {
					if cell.Type != html.ElementNode || cell.Data != "td" && cell.Data != "th" {
						continue
					}
					fill()
					across, deep := spanOf(cell, "colspan"), spanOf(cell, "rowspan")
					for range across {
						if cells++; cells > maxCells {
							return
						}
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
