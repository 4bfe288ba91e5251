package extract

import (
	"regexp"
	"strings"

	"golang.org/x/net/html"
)

// Microdata returns the items of the page (HTML itemscope and itemprop), including nested items, in the form of JSON-LD: objects
// with @type.
func (d *Doc) Microdata() []any {
	if d.items == nil && d.Root != nil {
		d.items = microdataIn(d.Root)
	}
	return d.items
}

// microdataIn returns the items in a part of a page.
func microdataIn(root *html.Node) []any {
	items := []any{}
	var walk func(n *html.Node, item map[string]any)
	walk = func(n *html.Node, item map[string]any) {
		if n.Type == html.ElementNode {
			var value any
			inner := item
			if _, scope := Attr(n, "itemscope"); scope {
				inner = map[string]any{}
				if types, ok := Attr(n, "itemtype"); ok {
					var list []any
					for t := range strings.FieldsSeq(types) {
						list = append(list, t)
					}
					inner["@type"] = list
				}
				items = append(items, inner)
				value = inner
			}
			if props, ok := Attr(n, "itemprop"); ok && item != nil {
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
			item = inner
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c, item)
		}
	}
	walk(root, nil)
	return items
}

// markup matches evidence that a text is markup and does not merely contain < or &.
var markup = regexp.MustCompile(`&(?:#\w+|\w+);|</\w+>`)

// propValue returns the value of a property according to the HTML standard.
func propValue(n *html.Node) string {
	if v, ok := Attr(n, "content"); ok {
		if markup.MatchString(v) {
			v = stripMarkup(v)
		}
		return v
	}
	name := map[string]string{
		"a": "href", "area": "href", "link": "href", "img": "src", "audio": "src", "video": "src", "source": "src", "iframe": "src", "embed": "src", "track": "src",
		"object": "data", "data": "value", "meter": "value", "time": "datetime",
	}[n.Data]
	if v, ok := Attr(n, name); ok {
		return v
	}
	return Text(n)
}
