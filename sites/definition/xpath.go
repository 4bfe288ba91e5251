package definition

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/antchfx/htmlquery"
	"github.com/antchfx/xpath"
	"golang.org/x/net/html"
)

// isXPath tells whether a selector is XPath: no CSS selector begins like
// one.
func isXPath(text string) bool {
	return strings.HasPrefix(text, "/") || strings.HasPrefix(text, "./") || strings.HasPrefix(text, "(") || strings.HasPrefix(text, "xpath:")
}

// xpathQuery is a compiled XPath expression. What it is asked of counts as
// the root: //a in a record finds links of the record.
type xpathQuery struct {
	mu   sync.Mutex // an expression keeps state while it is evaluated
	expr *xpath.Expr
}

func parseXPath(text string) (q *xpathQuery, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("bad XPath %s: %v", strconv.Quote(text), p)
		}
	}()
	expr, err := xpath.Compile(strings.TrimSpace(strings.TrimPrefix(text, "xpath:")))
	if err != nil {
		return nil, fmt.Errorf("bad XPath %s: %w; XPath 1.0 is understood, as in //div[@class='price']/text()", strconv.Quote(text), err)
	}
	return &xpathQuery{expr: expr}, nil
}

// all returns what is found below n in document order. An attribute, and a
// text or number that the expression makes, comes as a text node.
func (q *xpathQuery) all(n *html.Node) (nodes []*html.Node) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer func() {
		if recover() != nil {
			nodes = nil // an expression that cannot be applied to what is there finds nothing
		}
	}()
	switch v := q.expr.Evaluate(htmlquery.CreateXPathNavigator(n)).(type) {
	case *xpath.NodeIterator:
		for v.MoveNext() {
			nav, ok := v.Current().(*htmlquery.NodeNavigator)
			if !ok {
				continue
			}
			if nav.NodeType() == xpath.AttributeNode {
				nodes = append(nodes, textNode(nav.Value()))
			} else {
				nodes = append(nodes, nav.Current())
			}
		}
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

func textNode(s string) *html.Node { return &html.Node{Type: html.TextNode, Data: s} }
