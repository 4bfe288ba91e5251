package extract

import (
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// unfoldNoscript parses the markup in the body's noscripts, which the parser reads as text, so that a selector that
// names noscript finds its elements. In the head it would end the head of broken pages.
func unfoldNoscript(root *html.Node) {
	if body := firstWith(root, "body", ""); body != nil {
		var all []*html.Node
		for n := range body.Descendants() {
			if n.DataAtom == atom.Noscript && n.FirstChild != nil && n.FirstChild.Type == html.TextNode {
				all = append(all, n)
			}
		}
		for _, n := range all {
			raw := n.FirstChild
			parts, err := html.ParseFragment(strings.NewReader(raw.Data), n.Parent)
			if err != nil || raw.NextSibling != nil || !slices.ContainsFunc(parts, func(p *html.Node) bool { return p.Type == html.ElementNode }) {
				continue // too deep, or only text
			}
			n.RemoveChild(raw)
			for _, p := range parts {
				n.AppendChild(p)
			}
		}
	}
}
