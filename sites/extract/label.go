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
	for n := range x.doc.Root.Descendants() {
		named := slices.ContainsFunc(n.Attr, func(a html.Attribute) bool {
			known := a.Key == "itemprop" || n.Data == "meta" && (a.Key == "name" || a.Key == "property" || a.Key == "http-equiv")
			return known && slices.ContainsFunc(strings.Fields(a.Val), func(w string) bool { return strings.EqualFold(w, name) })
		})
		if !named || definition.IsAside(n) || definition.Aside(n, x.doc.Root) {
			continue
		}
		v, ok := Attr(n, "content")
		for _, k := range []string{"datetime", "href", "src"} {
			if !ok && (k != "href" || n.Data == "a" || n.Data == "link") {
				v, ok = Attr(n, k)
			}
		}
		if !ok {
			v = Text(n)
		}
		fd := found{at: at{node: n}, text: v, given: true}
		if n.Data == "meta" {
			metas = append(metas, fd)
		} else {
			items = append(items, fd)
		}
	}
	return append(metas, items...)
}

// findLabelValue finds the value of a label: in the next cell of the row, in the dd of a dt, or in the next element.
func findLabelValue(root *html.Node, label string) []found {
	want := labelText(label)
	if want == "" {
		return nil
	}
	var headed, others []found // best first
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
		if n.Type != html.ElementNode || done || labelText(textUpTo(n, len(label)+64)) != want {
			return done
		}
		v := valueElement(n)
		if v == nil || v.DataAtom == atom.Input || v.DataAtom == atom.Select {
			return false
		}
		fd := found{at: at{node: v}, text: Text(v), given: true}
		if inHead(n) {
			headed = append(headed, fd)
		} else {
			others = append(others, fd)
		}
		return true
	}
	walk(root)
	return slices.Concat(headed, others)
}

// inHead reports whether n is part of a row heading or a term. Elsewhere the word is often not a label.
func inHead(n *html.Node) bool {
	for up := 0; n != nil && up < 3; up++ {
		if n.DataAtom == atom.Th || n.DataAtom == atom.Dt {
			return true
		}
		n = n.Parent
	}
	return false
}

func labelText(s string) string {
	return strings.ToLower(strings.TrimRight(Fold(s), " :\uff1a\u00a0"))
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
		if p == nil || (p.Data != "th" && p.Data != "td" && p.Data != "dt") {
			return nil
		}
		n = p
	}
	return nil
}
