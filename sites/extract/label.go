package extract

import (
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"muster/sites/definition"
)

// meta looks up a name in meta elements, then in microdata.
func (x *run) meta(name string) []found {
	if x.doc.Root == nil {
		return nil
	}
	var metas, items []found
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		if definition.IsAside(n) {
			return
		}
		if n.Type == html.ElementNode {
			for _, a := range n.Attr {
				isMeta := n.Data == "meta" && (a.Key == "name" || a.Key == "property" || a.Key == "itemprop" || a.Key == "http-equiv")
				if !isMeta && a.Key != "itemprop" || !slices.ContainsFunc(strings.Fields(a.Val), func(w string) bool { return strings.EqualFold(w, name) }) {
					continue
				}
				v, ok := attr(n, "content")
				for _, k := range []string{"datetime", "href", "src"} {
					if !ok && (k != "href" || n.Data == "a" || n.Data == "link") {
						v, ok = attr(n, k)
					}
				}
				if !ok {
					v = Text(n)
				}
				fd := found{at: at{node: n}, text: v, given: true}
				if isMeta {
					metas = append(metas, fd)
				} else {
					items = append(items, fd)
				}
				break
			}
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c)
		}
	}
	walk(x.doc.Root)
	return append(metas, items...)
}

// maxLabelled is the longest text after a label, in bytes.
const maxLabelled = 2000

// findLabelValue finds the value of a label: in the next cell of the row, in the dd of a dt, in the next element, or after its colon.
func findLabelValue(root *html.Node, label string) []found {
	want := labelText(label)
	if want == "" {
		return nil
	}
	var headed, exact, inside []found // best first
	// walk reports whether n contains the label and its value. Then an element around both does not count as the label if the
	// value is empty.
	var walk func(n *html.Node) bool
	walk = func(n *html.Node) bool {
		if definition.IsAside(n) {
			return false
		}
		done := false
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			done = walk(c) || done
		}
		if n.Type != html.ElementNode || done {
			return done
		}
		if text := textUpTo(n, len(label)+64); labelText(text) == want {
			if v := valueElement(n); v != nil {
				fd := found{at: at{node: v}, text: valueText(v), given: true}
				if inHead(n) {
					headed = append(headed, fd)
				} else {
					exact = append(exact, fd)
				}
				return true
			} else if rest := lineAfter(n); rest != "" && n.Parent != nil {
				exact = append(exact, found{at: at{node: n.Parent}, text: rest, given: true})
				return true
			}
			return false
		}
		eachLine(n, func(line string) {
			if rest, ok := afterColon(line, want); ok {
				inside = append(inside, found{at: at{node: n}, text: rest, given: true})
			}
		})
		return false
	}
	walk(root)
	return slices.Concat(headed, exact, inside)
}

// inHead reports whether n is part of a row heading, a term or the label of a form field. Elsewhere the word is often not a
// label.
func inHead(n *html.Node) bool {
	for up := 0; n != nil && up < 3; up++ {
		switch n.DataAtom {
		case atom.Th, atom.Dt, atom.Label:
			return true
		}
		n = n.Parent
	}
	return false
}

// valueText returns the text of an element, or the value of a form field.
func valueText(n *html.Node) string {
	switch n.DataAtom {
	case atom.Input:
		v, _ := attr(n, "value")
		return v
	case atom.Select:
		first := ""
		for d := range n.Descendants() {
			if d.DataAtom != atom.Option {
				continue
			}
			if _, ok := attr(d, "selected"); ok {
				return Text(d)
			}
			if first == "" {
				first = Text(d)
			}
		}
		return first
	}
	return Text(n)
}

// eachLine calls fn with each line of text of n. Blocks and line breaks separate lines. Lines that are too long for a label with
// its value are skipped.
func eachLine(n *html.Node, fn func(string)) {
	w := folder{limit: maxLabelled}
	flush := func() {
		if w.b.Len() > 0 && !w.full() {
			fn(w.b.String())
		}
		w = folder{limit: maxLabelled}
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		if endsLine(c) {
			flush()
			continue
		}
		w.node(c)
	}
	flush()
}

// endsLine reports whether a node begins and ends a line.
func endsLine(n *html.Node) bool {
	return n.Type == html.ElementNode && !isInline(n) && n.DataAtom != atom.Script && n.DataAtom != atom.Style && n.DataAtom != atom.Noscript
}

// lineAfter returns the rest of the line after n, without a leading colon.
func lineAfter(n *html.Node) string {
	w := folder{limit: maxLabelled}
	for s := n.NextSibling; s != nil && !endsLine(s); s = s.NextSibling {
		w.node(s)
	}
	return strings.TrimLeft(w.b.String(), " :\uff1a\u2013-")
}

func labelText(s string) string {
	return strings.ToLower(strings.TrimRight(Fold(s), " :\uff1a\u00a0"))
}

func afterColon(text, label string) (string, bool) {
	i := strings.IndexAny(text, ":\uff1a")
	if i < 0 || labelText(text[:i]) != label {
		return "", false
	}
	rest := strings.TrimSpace(strings.TrimLeft(text[i:], ":\uff1a"))
	return rest, rest != ""
}

// valueElement returns the element with the value of the label n, or nil.
func valueElement(n *html.Node) *html.Node {
	for up := 0; n != nil && up < 3; up++ {
		for s := n.NextSibling; s != nil; s = s.NextSibling {
			if s.Type == html.TextNode && strings.Trim(s.Data, " \t\r\n:\uff1a\u00a0") != "" {
				return nil // the value is the text after the label
			}
			if n.Data == "dt" && s.Data == "dt" {
				continue // several terms share the last value
			}
			if s.Type == html.ElementNode && s.Data != "br" {
				return s
			}
		}
		// In <th><b>Label</b></th><td>… the label is the whole cell.
		p := n.Parent
		if p == nil || (p.Data != "th" && p.Data != "td" && p.Data != "dt" && p.Data != "label") {
			return nil
		}
		n = p
	}
	return nil
}
