package draft

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/html"

	"muster/sites/definition"
	"muster/sites/extract"
)

// maxFields limits the fields of a kind of record.
const maxFields = 12

// content is the main content of a page: its elements without menus, headers and footers.
type content struct {
	doc      *extract.Doc
	elements []*html.Node // in the order of the page
}

func readContent(doc *extract.Doc) *content {
	c := &content{doc: doc}
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		switch n.Data {
		case "head", "script", "style", "template", "noscript", "svg", "select", "button", "nav", "aside":
			return
		case "header", "footer":
			if within(n, "article") == nil && within(n, "li") == nil {
				return
			}
		}
		if n.Type == html.ElementNode {
			c.elements = append(c.elements, n)
		}
		for child := range n.ChildNodes() {
			walk(child)
		}
	}
	walk(doc.Body())
	return c
}

// heading returns the text of the first h1, or "".
func (c *content) heading() string {
	for _, n := range c.elements {
		if n.Data == "h1" {
			return extract.Text(n)
		}
	}
	return ""
}

// list is the repeated elements of a listing page.
type list struct {
	each  string // selects the items
	items []*html.Node
	text  int // bytes
}

// findList returns the elements with a common class, or the rows of a table, that have most of the page's text, if that is a third
// of it. Elements inside others win if they have all the text.
func (c *content) findList() *list {
	groups := map[string]*list{}
	for _, n := range c.elements {
		for _, css := range selectors(n) {
			if groups[css] == nil {
				groups[css] = &list{each: css, items: selectAll(css, c.doc.Root)}
			}
		}
	}
	var best *list
	for _, n := range c.elements { // in the order of the page
		for _, css := range selectors(n) {
			l := groups[css]
			if l.items == nil || l.items[0] != n || !l.repeats() {
				continue
			}
			for _, item := range l.items {
				l.text += len(extract.Text(item))
			}
			if best == nil || l.text >= best.text {
				best = l
			}
		}
	}
	if best == nil || best.text*3 < len(extract.Text(c.doc.Body())) {
		return nil
	}
	return best
}

// selectors returns selectors for an element and similar ones.
func selectors(n *html.Node) []string {
	var out []string
	for _, class := range classes(n) {
		out = append(out, n.Data+"."+class)
	}
	if table := within(n, "table"); n.Data == "tr" && table != nil && selectFirst("td", n) != nil {
		css := "table tr:has(td)"
		if list := classes(table); len(list) > 0 {
			css = "table." + list[0] + " tr:has(td)"
		}
		out = append(out, css)
	}
	return out
}

// repeats reports whether the items are separate elements with texts, which most of them do not share: rows, or elements with a link,
// a heading or an image.
func (l *list) repeats() bool {
	texts := map[string]bool{}
	for i, n := range l.items {
		if i > 0 && isInside(n, l.items[i-1]) || n.Data != "tr" && selectFirst("a[href], h1, h2, h3, h4, h5, h6, img", n) == nil {
			return false
		}
		texts[extract.Text(n)] = true
	}
	return len(l.items) >= 3 && len(texts)*2 >= len(l.items)
}

// mainLink returns a selector for the link to an item's page: in a heading, or else the only link of its kind in most items with
// the longest text. If the items are links, it is "". ok is false if there is none.
func mainLink(items []*html.Node) (css string, ok bool) {
	if items[0].Data == "a" {
		return "", true
	}
	longest := 0
	for _, item := range items {
		for _, a := range selectAll("a[href]", item) {
			candidate := "a:not([class])"
			if list := classes(a); len(list) > 0 {
				candidate = "a." + list[0]
			}
			score := 1 + len(extract.Text(a))
			for p := a.Parent; p != item; p = p.Parent {
				if isHeading(p) {
					candidate, score = p.Data+" a", 1000
				}
			}
			if score > longest && share(items, func(n *html.Node) bool { return len(targets(candidate, n)) == 1 }) >= 0.8 {
				css, ok, longest = candidate, true, score
			}
		}
	}
	return css, ok
}

// targets returns the different addresses of the links that css selects in an item.
func targets(css string, item *html.Node) map[string]bool {
	out := map[string]bool{}
	for _, a := range selectAll(css, item) {
		out[value(a, "href")] = true
	}
	return out
}

// findNext returns the keys of listing.next for a link to the next page that is marked as one, or "".
func (c *content) findNext() string {
	if selectFirst(`link[rel~="next"][href], a[rel~="next"][href]`, c.doc.Root) != nil {
		return "rel: next"
	}
	for _, css := range []string{"a.next", ".next a", `a:contains("Next")`, `a:contains("next")`, `a[aria-label*="next" i]`, `a:contains("»")`, `a:contains("→")`} {
		if a := selectFirst(css, c.doc.Root); a != nil && value(a, "href") != "" && len(extract.Text(a)) < 30 {
			if list := classes(a.Parent); css == ".next a" && slices.Contains(list, "next") {
				css = a.Parent.Data + css
			}
			return "css: " + quote(css)
		}
	}
	return ""
}

// itemFields guesses the fields of the items of a list. link selects the main link in an item.
func (c *content) itemFields(items []*html.Node, link string, linked bool) []field {
	var fields []field
	used := map[string]bool{} // first values of fields, to avoid duplicates
	put := func(name, css, keys, typ string) bool {
		has := func(n *html.Node) bool {
			found := selectFirst(css, n)
			return found != nil && (keys != "" || extract.Text(found) != "")
		}
		if share(items, has) < 0.8 {
			return false
		}
		if keys == "" {
			used[firstText(css, items)] = true
		}
		fields = add(fields, field{name: name, sources: []string{"css: " + quote(css) + keys}, typ: typ})
		return true
	}
	titles := []string{"h1", "h2", "h3", "h4", "h5", "h6", "[itemprop=name]"}
	if link != "" && len(firstText(link, items)) > 10 {
		titles = append(titles, link)
	}
	for _, css := range titles {
		if put("title", css, "", "") {
			break
		}
	}
	switch {
	case linked && link == "":
		fields = append(fields, field{name: "url", sources: []string{"attr: href"}, typ: "url"})
	case linked:
		put("url", link, ", attr: href", "url")
	}
	put("image", "img", ", take: image", "url")
	fields = addColumns(fields, items, used)
	fields = c.addClasses(fields, items, used)
	if !slices.ContainsFunc(fields, func(f field) bool { return f.typ != "url" }) {
		fields = add(fields, field{name: "text", sources: []string{"take: text"}})
	}
	return fields
}

// addColumns adds a field for each headed column, if the items are rows of a table.
func addColumns(fields []field, rows []*html.Node, used map[string]bool) []field {
	table := within(rows[0], "table")
	if rows[0].Data != "tr" || table == nil {
		return fields
	}
	cells := selectAll("td", rows[0])
	for i, th := range selectAll("tr:first-child th, thead th", table) {
		heading, text := extract.Text(th), ""
		if i < len(cells) {
			text = extract.Text(cells[i])
		}
		if heading != "" && !used[text] && len(fields) < maxFields {
			fields = add(fields, field{name: fieldName(heading), sources: []string{"column: " + quote(heading)}})
			used[text] = text != ""
		}
	}
	return fields
}

// addClasses adds a field for each class of elements with a short text in at least half of the items, and for dates in time
// elements.
func (c *content) addClasses(fields []field, items []*html.Node, used map[string]bool) []field {
	if share(items, func(n *html.Node) bool { return selectFirst("time[datetime]", n) != nil }) >= 0.5 {
		fields = append(fields, field{name: "date", sources: []string{"css: 'time[datetime]', attr: datetime"}, typ: "date"})
	}
	tried := map[string]bool{}
	limit := len(fields) + maxFields
	for _, item := range items {
		for n := range item.Descendants() {
			list := classes(n)
			if len(list) == 0 || n.Data == "time" || tried[n.Data+"."+list[0]] || !isLeaf(n) || !slices.Contains(c.elements, n) {
				continue
			}
			css := n.Data + "." + list[0]
			tried[css] = true
			var firsts []string
			all := 0
			for _, item := range items {
				found := selectAll(css, item)
				if all += len(found); len(found) > 0 {
					firsts = append(firsts, extract.Text(found[0]))
				}
			}
			if text := firsts[0]; len(firsts)*2 < len(items) || text == "" || len(text) > 400 || used[text] || len(fields) >= limit {
				continue
			}
			used[firsts[0]] = true
			fields = add(fields, field{name: fieldName(list[0]), sources: []string{"css: " + quote(css)}, typ: typeOf(firsts, all)})
		}
	}
	return fields
}

var (
	capital = regexp.MustCompile(`([a-z])([A-Z])`)
	year    = regexp.MustCompile(`\b(?:1[5-9]|20)\d\d\b`)
	money   = regexp.MustCompile(`(?i)(?:[$€£¥₹]|\b(?:USD|EUR|GBP|CHF|JPY)\b)\s?\d|\d\s?(?:[$€£¥₹]|лв|zł|Kč|руб|kr\b|(?:USD|EUR|GBP|CHF|JPY)\b)`)
)

// typeOf returns the common type of the first values of items with a number of values, or "".
func typeOf(firsts []string, values int) string {
	all := func(is func(s string) bool) bool {
		return !slices.ContainsFunc(firsts, func(s string) bool { return !is(s) })
	}
	switch {
	case all(func(s string) bool { return len(s) < 40 && money.MatchString(s) }):
		return "price"
	case all(isDate):
		return "date"
	case values*2 > len(firsts)*3:
		return "list"
	case all(isNumber):
		return "number"
	}
	return ""
}

func isDate(s string) bool {
	if len(s) >= 40 || !year.MatchString(s) || isNumber(s) {
		return false
	}
	_, err := extract.Date(s, extract.DateOptions{Order: "dmy"})
	return err == nil
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789., ") == "" }

// isLeaf reports whether an element contains text and no blocks.
func isLeaf(n *html.Node) bool {
	for child := range n.ChildNodes() {
		if child.Type == html.ElementNode && !slices.Contains([]string{"a", "b", "i", "em", "strong", "span", "br", "small", "sup", "sub"}, child.Data) {
			return false
		}
	}
	return true
}

func hasField(fields []field, name string) bool {
	return slices.ContainsFunc(fields, func(f field) bool { return f.name == name })
}

// add appends a field and renames it if its name is taken.
func add(fields []field, f field) []field {
	name := f.name
	for i := 2; hasField(fields, f.name); i++ {
		f.name = name + "_" + strconv.Itoa(i)
	}
	return append(fields, f)
}

// fieldName turns a class, a label or a key into the name of a field.
func fieldName(s string) string {
	s = strings.ToLower(capital.ReplaceAllString(s, "${1}_$2"))
	name := strings.Join(strings.FieldsFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }), "_")
	name = strings.Trim(name[:min(len(name), 40)], "_")
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = strings.TrimSuffix("field_"+name, "_")
	}
	return name
}

// share returns the share of the items for which a condition holds.
func share(items []*html.Node, holds func(*html.Node) bool) float64 {
	n := 0
	for _, item := range items {
		if holds(item) {
			n++
		}
	}
	return float64(n) / float64(len(items))
}

// firstText returns the text of the first element that css selects in the items.
func firstText(css string, items []*html.Node) string {
	for _, item := range items {
		if n := selectFirst(css, item); n != nil {
			return extract.Text(n)
		}
	}
	return ""
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

func isInside(n, outer *html.Node) bool {
	for p := n.Parent; p != nil; p = p.Parent {
		if p == outer {
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

// classes returns the classes of an element that a selector can contain.
func classes(n *html.Node) []string {
	if !isSimpleName(n.Data) {
		return nil
	}
	return slices.DeleteFunc(strings.Fields(value(n, "class")), func(c string) bool { return !isSimpleName(c) })
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// isSimpleName reports whether a selector can contain a name without escapes.
func isSimpleName(s string) bool {
	return s != "" && strings.Trim(s[:1], letters+"_") == "" && strings.Trim(s, letters+"0123456789_-") == ""
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
