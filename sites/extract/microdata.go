package extract

import (
	"regexp"
	"strings"

	"golang.org/x/net/html"
)

// Microdata returns the items of the page (HTML's itemscope and itemprop), also nested ones, in the form of JSON-LD:
// objects with @type.
func (d *Doc) Microdata() []any {
	if !d.itemsOK && d.Root != nil {
		d.itemsOK = true
		d.items = microdataIn(d.Root)
	}
	return d.items
}

// maxRefs bounds the itemrefs of a page that are followed.
const maxRefs = 1000

// microdataIn returns the items in a part of a page.
func microdataIn(root *html.Node) []any {
	var items []any
	var byID map[string]*html.Node
	refs := 0
	var walk func(n *html.Node, item map[string]any, inRef bool)
	walk = func(n *html.Node, item map[string]any, inRef bool) {
		if n.Type == html.ElementNode {
			var value any
			inner := item
			if _, scope := attr(n, "itemscope"); scope {
				inner = map[string]any{}
				if types, ok := attr(n, "itemtype"); ok {
					var list []any
					for t := range strings.FieldsSeq(types) {
						list = append(list, t)
					}
					inner["@type"] = list
				}
				if !inRef { // otherwise it is added where it is in the page
					items = append(items, inner)
				}
				value = inner
			}
			if props, ok := attr(n, "itemprop"); ok && item != nil {
				if value == nil {
					value = propValue(n)
				}
				for name := range strings.FieldsSeq(props) {
					switch old := item[name].(type) {
					case nil:
						item[name] = value
					case []any:
						item[name] = append(old, value)
					default:
						item[name] = []any{old, value}
					}
				}
			}
			ids, more := attr(n, "itemref")
			if more && value != nil && !inRef {
				if byID == nil {
					byID = idsIn(root)
				}
				for id := range strings.FieldsSeq(ids) {
					if at := byID[id]; at != nil && refs < maxRefs && !within(at, n) && !within(n, at) {
						refs++
						walk(at, inner, true)
					}
				}
			}
			item = inner
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c, item, inRef)
		}
	}
	walk(root, nil, false)
	return items
}

// idsIn returns the elements of the page that n is in, by id.
func idsIn(n *html.Node) map[string]*html.Node {
	for n.Parent != nil {
		n = n.Parent
	}
	ids := map[string]*html.Node{}
	for d := range n.Descendants() {
		if id, ok := attr(d, "id"); ok && ids[id] == nil {
			ids[id] = d
		}
	}
	return ids
}

// within reports whether n is the element at, or in it.
func within(n, at *html.Node) bool {
	for ; n != nil; n = n.Parent {
		if n == at {
			return true
		}
	}
	return false
}

// markup matches what shows that a text is markup, and not only has a < or an &.
var markup = regexp.MustCompile(`&(?:#\w+|\w+);|</\w+>`)

// propValue returns the value of a property, as the HTML standard defines it for the element.
func propValue(n *html.Node) string {
	if v, ok := attr(n, "content"); ok {
		if markup.MatchString(v) {
			v = unmarked(v)
		}
		return v
	}
	name := map[string]string{
		"a": "href", "area": "href", "link": "href", "img": "src", "audio": "src", "video": "src", "source": "src", "iframe": "src", "embed": "src", "track": "src",
		"object": "data", "data": "value", "meter": "value", "time": "datetime",
	}[n.Data]
	if v, ok := attr(n, name); ok {
		return v
	}
	return Text(n)
}
