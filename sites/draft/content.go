package draft

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"muster/sites/definition"
	"muster/sites/extract"
)

// content is the main content of a page, without menus, headers, sidebars, footers and lists of related pages.
type content struct {
	doc      *extract.Doc
	base     *url.URL
	elements []*html.Node         // in the order of the page
	facts    map[*html.Node]facts // of the elements
}

// facts describe the content of an element and its descendants.
type facts struct {
	text int // bytes
	has  parts
}

// parts are kinds of element.
type parts uint8

const (
	hasLink parts = 1 << iota
	hasHeading
	hasImage
	hasDate
	hasPrice
	hasMain // the main part or heading of the page
)

func readContent(doc *extract.Doc) *content {
	c := &content{doc: doc, base: doc.Page.URL, facts: map[*html.Node]facts{}}
	if b := selectFirst("base[href]", doc.Root); b != nil {
		if u, err := c.base.Parse(value(b, "href")); err == nil {
			c.base = u
		}
	}
	c.measure(doc.Root)
	return c
}

// measure computes the facts of an element and all its descendants. It ignores elements outside the main content.
func (c *content) measure(n *html.Node) facts {
	var f facts
	at := len(c.elements)
	if n.Type == html.ElementNode {
		switch n.Data {
		case "head", "script", "style", "template", "noscript", "svg", "select", "button":
			return f
		}
		c.elements = append(c.elements, n)
		f.has = partOf(n)
	}
	for child := range n.ChildNodes() {
		if child.Type == html.TextNode {
			f.text += len(strings.TrimSpace(child.Data))
		} else {
			inner := c.measure(child)
			f.text += inner.text
			f.has |= inner.has
		}
	}
	if n.Type == html.ElementNode {
		if surrounds(n, f.has&hasMain != 0) {
			for _, e := range c.elements[at:] {
				delete(c.facts, e)
			}
			c.elements = c.elements[:at]
			return facts{}
		}
		if f.text <= 40 && money.MatchString(extract.Text(n)) {
			f.has |= hasPrice
		}
		c.facts[n] = f
	}
	return f
}

func partOf(n *html.Node) parts {
	switch {
	case n.Data == "a" && value(n, "href") != "":
		return hasLink
	case n.Data == "h1":
		return hasHeading | hasMain
	case isHeading(n):
		return hasHeading
	case n.Data == "img":
		return hasImage
	case n.Data == "time":
		return hasDate
	case n.Data == "main" || value(n, "role") == "main":
		return hasMain
	}
	return 0
}

// around matches roles, and words in classes and ids, of elements outside the main content.
var around = regexp.MustCompile(`(?i)(?:^|[\s_-])(?:nav|navbar|navigation|menu|breadcrumbs?|pagination|pager|footer|banner|contentinfo|complementary|sidebar|cookies?|social|related|recommendations)(?:$|[\s_-])`)

// surrounds reports whether an element is outside the main content. An element that contains the main part or the heading is
// inside, unless its tag excludes it.
func surrounds(n *html.Node, main bool) bool {
	switch n.Data {
	case "nav", "aside":
		return true
	case "header", "footer":
		for _, tag := range []string{"main", "article", "li"} {
			if within(n, tag) != nil {
				return false
			}
		}
		return selectFirst("main, article", n) == nil
	}
	return !main && n.Data != "body" && around.MatchString(value(n, "class")+" "+value(n, "id")+" "+value(n, "role"))
}

// heading returns the first heading of the highest rank, or nil.
func (c *content) heading() *html.Node {
	for _, tag := range []string{"h1", "h2", "h3"} {
		for _, n := range c.elements {
			if n.Data == tag && extract.Text(n) != "" {
				return n
			}
		}
	}
	return nil
}

// resolve returns the URL of a reference, or nil if it is outside the site.
func (c *content) resolve(ref string) *url.URL {
	ref = strings.TrimSpace(ref)
	u, err := c.base.Parse(ref)
	if err != nil || ref == "" || strings.HasPrefix(ref, "#") || u.Host != c.doc.Page.URL.Host {
		return nil
	}
	u.Fragment = ""
	return u
}

func isHeading(n *html.Node) bool {
	return len(n.Data) == 2 && n.Data[0] == 'h' && n.Data[1] >= '1' && n.Data[1] <= '6'
}

// within returns the nearest ancestor of a tag, or nil.
func within(n *html.Node, tag string) *html.Node {
	for p := n.Parent; p != nil; p = p.Parent {
		if p.Data == tag {
			return p
		}
	}
	return nil
}

// contains reports whether n is outer or inside it.
func contains(outer, n *html.Node) bool {
	for ; n != nil; n = n.Parent {
		if n == outer {
			return true
		}
	}
	return false
}

func selectAll(css string, n *html.Node) []*html.Node {
	s, err := definition.ParseSelector(css)
	if err != nil {
		return nil
	}
	return s.All(n)
}

// selectFirst returns the first element that css selects, or nil.
func selectFirst(css string, n *html.Node) *html.Node {
	if found := selectAll(css, n); len(found) > 0 {
		return found[0]
	}
	return nil
}

func value(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

var (

	// layout matches classes that describe the look of an element instead of its meaning.
	layout = regexp.MustCompile(`(?i)^(?:col|row|btn|button|icon|fa|glyph|clear|pull|text-|mt|mb|ml|mr|pt|pb|px|py|d-|w-|h-|flex|grid|container|wrapper|inner|outer|content|left|right|center|hidden|visible|img|image|thumb|link|item|box|block|small|large|bold|is-|has-|js-|ng-|css-|sc-)`)
)

// classes returns the classes of an element that a selector can contain, with layout classes last.
func classes(n *html.Node) []string {
	if !isSimpleName(n.Data) {
		return nil
	}
	list := slices.DeleteFunc(strings.Fields(value(n, "class")), func(c string) bool { return !isSimpleName(c) })
	slices.SortStableFunc(list, func(a, b string) int {
		switch la, lb := layout.MatchString(a), layout.MatchString(b); {
		case la == lb:
			return 0
		case la:
			return 1
		}
		return -1
	})
	return list
}

var money = regexp.MustCompile(`(?i)(?:[$€£¥₹₽₴₺]|\b(?:USD|EUR|GBP|CHF|PLN|RUB|JPY|BGN)\b)\s?\d|\d\s?(?:[$€£¥₹₽₴₺]|лв|zł|Kč|руб|kr\b|Ft\b|lei\b|円|元|(?:USD|EUR|GBP|CHF|PLN|RUB|JPY|BGN)\b)`)

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// isSimpleName reports whether a selector can contain a name without escapes.
func isSimpleName(s string) bool {
	return s != "" && strings.Trim(s[:1], letters+"_") == "" && strings.Trim(s, letters+"0123456789_-") == ""
}
