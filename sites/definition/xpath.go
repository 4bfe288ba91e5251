package definition

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/antchfx/htmlquery"
	"github.com/antchfx/xpath"
	"golang.org/x/net/html"
)

// isXPath reports whether a selector is XPath. CSS selectors never begin with these characters.
func isXPath(text string) bool {
	return strings.HasPrefix(text, "/") || strings.HasPrefix(text, "./") || strings.HasPrefix(text, "../") || strings.HasPrefix(text, "(") || strings.HasPrefix(text, "xpath:")
}

// xpathQuery is a compiled XPath expression. Its root is the searched element: //a in a record finds the links of the record.
// Axes such as ancestor and preceding-sibling reach outside the element.
type xpathQuery struct {
	text string
	free sync.Pool // of *xpath.Expr, for one evaluation at a time: it changes the state of an expression
}

func parseXPath(text string) (q *xpathQuery, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("bad XPath %s: %v", strconv.Quote(text), p)
		}
	}()
	q = &xpathQuery{text: strings.TrimSpace(strings.TrimPrefix(text, "xpath:"))}
	expr, err := xpath.Compile(q.text)
	if err != nil {
		return nil, fmt.Errorf("bad XPath %s: %w; XPath 1.0 is supported, such as //div[@class='price']/text()", strconv.Quote(text), err)
	}
	q.free.Put(expr)
	return q, nil
}

// all returns the found nodes in document order and without duplicates, which the library does not ensure: //div//a yields a link
// once per enclosing div, and a union yields one side after the other. The contents of templates and noscripts are skipped unless
// aside is set. Attributes and computed strings and numbers are returned as text nodes.
func (q *xpathQuery) all(n *html.Node, aside bool) (nodes []*html.Node) {
	expr, ok := q.free.Get().(*xpath.Expr)
	if !ok {
		expr = xpath.MustCompile(q.text)
	}
	defer func() {
		if recover() != nil {
			nodes = nil // an expression that does not apply here finds nothing
			return
		}
		q.free.Put(expr)
	}()
	switch v := expr.Evaluate(htmlquery.CreateXPathNavigator(n)).(type) {
	case *xpath.NodeIterator:
		hits := map[*html.Node]*xpathHit{}
		for v.MoveNext() {
			nav, ok := v.Current().(*htmlquery.NodeNavigator)
			if !ok {
				continue
			}
			hit := hits[nav.Current()]
			if hit == nil {
				hit = &xpathHit{}
				hits[nav.Current()] = hit
			}
			if nav.NodeType() != xpath.AttributeNode {
				hit.itself = true
			} else if !slices.Contains(hit.attrs, nav.LocalName()) {
				hit.attrs = append(hit.attrs, nav.LocalName())
			}
		}
		nodes = sortHits(hits, n, aside)
	case string:
		nodes = append(nodes, textNode(v))
	case float64:
		nodes = append(nodes, textNode(strconv.FormatFloat(v, 'f', -1, 64)))
	case bool:
		if v {
			nodes = append(nodes, textNode("true"))
		}
	}
	return nodes
}

// xpathHit has the nodes that an expression found at an element.
type xpathHit struct {
	itself bool
	attrs  []string
}

// sortHits returns the hits of a search at n in document order.
func sortHits(hits map[*html.Node]*xpathHit, n *html.Node, aside bool) []*html.Node {
	top, rest := n, maps.Clone(hits)
	var above []*html.Node // hits on ancestors of n, collected without a walk through the whole page
	for top.Parent != nil {
		top = top.Parent
		if hit := rest[top]; hit != nil {
			above = slices.Concat(hit.at(top), above)
			delete(rest, top)
		}
	}
	below := inOrder(rest, n, aside)
	if len(rest) > 0 { // siblings of ancestors
		return inOrder(hits, top, aside)
	}
	return append(above, below...)
}

// at returns the nodes found at n.
func (h *xpathHit) at(n *html.Node) (nodes []*html.Node) {
	if h.itself {
		nodes = append(nodes, n)
	}
	for _, a := range n.Attr {
		if slices.Contains(h.attrs, a.Key) {
			nodes = append(nodes, textNode(a.Val))
		}
	}
	return nodes
}

// inOrder removes the hits at n and below it from hits and returns their nodes in document order.
func inOrder(hits map[*html.Node]*xpathHit, n *html.Node, aside bool) (nodes []*html.Node) {
	visit := func(at *html.Node) {
		if hit := hits[at]; hit != nil && (aside || !Aside(at, n)) {
			nodes = append(nodes, hit.at(at)...)
		}
		delete(hits, at)
	}
	visit(n)
	for at := range n.Descendants() {
		if len(hits) == 0 {
			break
		}
		visit(at)
	}
	return nodes
}

func textNode(s string) *html.Node { return &html.Node{Type: html.TextNode, Data: s} }
