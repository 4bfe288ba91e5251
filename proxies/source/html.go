package source

import (
	"bytes"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// html parses tables with an address in one cell and a port in the next. Text outside tables is parsed as text.
func (p *parser) html(body []byte) {
	z := html.NewTokenizer(bytes.NewReader(body))
	z.SetMaxBuf(1 << 20)
	page := &htmlReader{parser: p}
	for {
		switch z.Next() {
		case html.ErrorToken:
			page.endRow()
			p.text(page.loose.String())
			return
		case html.StartTagToken, html.SelfClosingTagToken:
			page.start(z.Token())
		case html.EndTagToken:
			name, _ := z.TagName()
			page.end(string(name))
		case html.TextToken:
			page.text(z.Text())
		}
	}
}

// htmlReader collects the cells of a row and the text outside tables.
type htmlReader struct {
	parser      *parser
	cells       []string
	cell, loose strings.Builder
	inCell      bool
	hidden      int // number of open script and style elements
}

func (r *htmlReader) start(token html.Token) {
	switch token.Data {
	case "tr":
		r.endRow()
		r.dataOf(token.Attr)
	case "td", "th":
		r.endCell()
		r.inCell = true
	case "script", "style":
		r.hidden++
	case "br", "p", "div", "li", "pre":
		r.loose.WriteByte('\n')
	}
}

// dataOf adds the attributes of <tr data-ip="…" data-port="…"> as cells.
func (r *htmlReader) dataOf(attributes []html.Attribute) {
	for i, a := range attributes {
		if host, ok := strings.CutPrefix(a.Key, "data-"); !ok || !slices.Contains(columns.host, host) {
			continue
		}
		for _, b := range attributes[i+1:] {
			if b.Key == "data-port" {
				r.cells = append(r.cells, a.Val, b.Val)
			}
		}
	}
}

func (r *htmlReader) end(tag string) {
	switch tag {
	case "td", "th":
		r.endCell()
	case "tr", "table":
		r.endRow()
	case "script", "style":
		r.hidden = max(0, r.hidden-1)
	}
}

func (r *htmlReader) text(text []byte) {
	switch {
	case r.hidden > 0:
	case r.inCell:
		r.cell.Write(text)
	case bytes.Contains(text, []byte(":")):
		r.loose.WriteString(string(text))
	}
}

func (r *htmlReader) endCell() {
	if r.inCell {
		r.cells = append(r.cells, strings.TrimSpace(r.cell.String()))
		r.cell.Reset()
		r.inCell = false
	}
}

func (r *htmlReader) endRow() {
	r.endCell()
	r.parser.tableRow(r.cells)
	r.cells = nil
}

func (p *parser) tableRow(cells []string) {
	for i, cell := range cells {
		if isQuad(cell) || isIPv6(cell) {
			if i+1 >= len(cells) || !isNumber(cells[i+1]) {
				p.reject(Unparsed) // the port is an image or computed by a script
				return
			}
			row := map[string]string{"ip": cell, "port": cells[i+1]}
			for _, other := range cells[i+2:] {
				labels := strings.FieldsFunc(other, func(c rune) bool { return strings.ContainsRune(" ,/", c) })
				for _, label := range labels {
					if protocolOf(label) != "" {
						row["protocol"] = strings.TrimSpace(row["protocol"] + " " + label)
					}
				}
				if len(other) == 2 && strings.ToUpper(other) == other {
					row["country"] = other
				}
			}
			p.row(row)
			return
		}
		if p.token(cell, "") {
			return
		}
	}
}
