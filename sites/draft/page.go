package draft

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/html"

	"muster/sites/definition"
	"muster/sites/extract"
)

// maxFields limits the fields of a kind of record.
const maxFields = 12

// content returns the elements of a page without menus, headers and footers.
func content(doc *extract.Doc) []*html.Node {
	var all []*html.Node
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		switch n.Data {
		case "head", "header", "footer", "script", "style", "template", "noscript", "svg", "select", "button", "nav", "aside":
			return
		}
		if n.Type == html.ElementNode {
			all = append(all, n)
		}
		for child := range n.ChildNodes() {
			walk(child)
		}
	}
	walk(doc.Body())
	return all
}

// heading returns the text of the first h1 of the content, or "".
func heading(doc *extract.Doc) string {
	for _, n := range content(doc) {
		if n.Data == "h1" {
			return extract.Text(n)
		}
	}
	return ""
}

// findList returns the elements with a common class and a link, a heading or an image that have most of the page's text, if that
// is a third of it. Elements inside others win if they have all the text.
func findList(doc *extract.Doc) (each string, items []*html.Node) {
	most, seen := len(extract.Text(doc.Body()))/3, map[string]bool{}
	for _, n := range content(doc) {
		for _, class := range classes(n) {
			css := n.Data + "." + class
			if seen[css] {
				continue
			}
			seen[css] = true
			found := selectAll(css, doc.Root)
			size, texts := 0, map[string]bool{}
			for i, item := range found {
				if i > 0 && slices.Contains(slices.Collect(item.Ancestors()), found[i-1]) || selectFirst("a[href], h1, h2, h3, h4, h5, h6, img", item) == nil {
					clear(texts)
					break
				}
				text := extract.Text(item)
				texts[text] = true
				size += len(text)
			}
			if len(found) >= 3 && found[0] == n && len(texts)*2 >= len(found) && size >= most {
				each, items, most = css, found[:min(len(found), 50)], size
			}
		}
	}
	return each, items
}

// mainLink returns a selector for the link to an item's page, which selects one address in most items, in a heading if possible. If
// the items are links, it is "". ok is false if there is none.
func mainLink(items []*html.Node) (css string, ok bool) {
	if items[0].Data == "a" {
		return "", true
	}
	candidates := []string{"h1 a", "h2 a", "h3 a", "h4 a", "h5 a", "h6 a"}
	for _, a := range selectAll("a[href]", items[0]) {
		candidates = append(candidates, "a:not([class])")
		if list := classes(a); len(list) > 0 {
			candidates[len(candidates)-1] = "a." + list[0]
		}
	}
	for _, css := range candidates {
		if most(items, func(item *html.Node) bool {
			to := map[string]bool{}
			for _, a := range selectAll(css, item) {
				to[value(a, "href")] = true
			}
			return len(to) == 1 && !to[""]
		}) {
			return css, true
		}
	}
	return "", false
}

// findNext returns listing.next for a link to the next page that is marked as one.
func findNext(doc *extract.Doc) string {
	const rel = "{rel: next}"
	if selectFirst(`link[rel~="next"][href], a[rel~="next"][href]`, doc.Root) != nil {
		return rel
	}
	for _, css := range []string{"a.next", ".next a", `a:contains("Next")`, `a[aria-label*="next" i]`} {
		if a := selectFirst(css, doc.Root); a != nil && value(a, "href") != "" && len(extract.Text(a)) < 30 {
			return "{css: " + quote(css) + "}"
		}
	}
	return rel
}

// itemFields guesses the fields of the items of a list. link selects the main link in an item.
func itemFields(items []*html.Node, link string, linked bool) []field {
	var fields []field
	for _, css := range []string{"h1", "h2", "h3", "h4", "h5", "h6", link} {
		if css == link && len(firstText(link, items[0])) <= 10 {
			continue
		}
		if most(items, func(n *html.Node) bool { return firstText(css, n) != "" }) {
			fields = append(fields, field{name: "title", source: "css: " + quote(css)})
			break
		}
	}
	switch {
	case linked && link == "":
		fields = append(fields, field{name: "url", source: "attr: href", typ: "url"})
	case linked:
		fields = append(fields, field{name: "url", source: "css: " + quote(link) + ", attr: href", typ: "url"})
	}
	if most(items, func(n *html.Node) bool { return selectFirst("img", n) != nil }) {
		fields = append(fields, field{name: "image", source: "css: img, take: image", typ: "url"})
	}
	fields = addClasses(fields, items)
	if !slices.ContainsFunc(fields, func(f field) bool { return f.typ != "url" }) {
		fields = append(fields, field{name: "text", source: "take: text"})
	}
	return fields
}

// addClasses adds a field for each class of elements with a short text in at least half of the items.
func addClasses(fields []field, items []*html.Node) []field {
	tried, limit := map[string]bool{}, len(fields)+maxFields
	for _, item := range items {
		for n := range item.Descendants() {
			list := classes(n)
			if len(list) == 0 || slices.Contains([]string{"button", "script", "style"}, n.Data) || !isLeaf(n) || tried[n.Data+"."+list[0]] {
				continue
			}
			css := n.Data + "." + list[0]
			tried[css] = true
			var texts []string
			for _, item := range items {
				if found := selectFirst(css, item); found != nil {
					texts = append(texts, extract.Text(found))
				}
			}
			if text := texts[0]; len(texts)*2 >= len(items) && text != "" && len(text) <= 400 && len(fields) < limit {
				fields = add(fields, field{name: fieldName(list[0]), source: "css: " + quote(css), typ: typeOf(texts)})
			}
		}
	}
	return fields
}

// properties are fields for properties of schema.org, whose paths are the sources.
var properties = []field{
	{name: "title", source: "name"}, {name: "headline", source: "headline"},
	{name: "price", source: "offers.price", typ: "price"}, {name: "low_price", source: "offers.lowPrice", typ: "price"},
	{name: "date_published", source: "datePublished", typ: "date"}, {name: "date_posted", source: "datePosted", typ: "date"},
	{name: "author", source: "author.name"}, {name: "brand", source: "brand.name"},
	{name: "sku", source: "sku"}, {name: "gtin13", source: "gtin13"}, {name: "mpn", source: "mpn"}, {name: "isbn", source: "isbn"},
	{name: "availability", source: "offers.availability"}, {name: "rating_value", source: "aggregateRating.ratingValue"},
	{name: "category", source: "category"}, {name: "description", source: "description"}, {name: "image", source: "image", typ: "url"},
}

// structuredFields returns fields from the JSON-LD or microdata object that the page's heading names, or nil.
func structuredFields(doc *extract.Doc) (fields []field) {
	heading := heading(doc)
	for i, objects := range [][]any{doc.Linked(), doc.Microdata()} {
		for _, o := range objects {
			obj, _ := o.(map[string]any)
			typ, _ := obj["@type"].(string)
			typ = typ[strings.LastIndexAny(typ, "/:")+1:]
			name, _ := obj["name"].(string)
			if name = extract.Fold(name); name == "" || typ == "" || !strings.Contains(heading, name) {
				continue
			}
			for _, f := range properties {
				v := o
				for name := range strings.SplitSeq(f.source, ".") {
					if list, ok := v.([]any); ok && len(list) > 0 {
						v = list[0]
					}
					in, _ := v.(map[string]any)
					v = in[name]
				}
				if v != nil {
					f.source = []string{"jsonld: ", "microdata: "}[i] + quote(typ+"."+f.source)
					fields = append(fields, f)
				}
			}
			return fields
		}
	}
	return nil
}

// detailFields guesses the fields of a page about one thing: of structured data, its heading, classes, and labels in tables of two
// columns and definition lists.
func detailFields(doc *extract.Doc) []field {
	fields, matter := structuredFields(doc), doc.Body()
	for _, css := range []string{"main", "article"} {
		if found := selectAll(css, doc.Root); len(found) == 1 {
			matter = found[0]
			break
		}
	}
	if fields == nil {
		title := field{name: "title", source: "page: title"}
		switch h := heading(doc); h {
		case "":
		case firstText("h1", doc.Root):
			title.source = "css: h1"
		default:
			title.source = "css: " + matter.Data + " h1"
		}
		fields = []field{title}
	}
	fields = addClasses(fields, []*html.Node{matter})
	labels := selectAll("dt", matter)
	for _, tr := range selectAll("tr", matter) {
		if cells := selectAll("th, td", tr); len(cells) == 2 && cells[1].Data == "td" {
			labels = append(labels, cells[0])
		}
	}
	for _, n := range labels {
		if label := strings.TrimRight(extract.Text(n), " :"); label != "" && len(label) < 60 && len(fields) < 3*maxFields {
			fields = add(fields, field{name: fieldName(label), source: "label: " + quote(label)})
		}
	}
	return add(fields, field{name: "url", source: "page: url", typ: "url"})
}

var (
	capital = regexp.MustCompile(`([a-z])([A-Z])`)
	year    = regexp.MustCompile(`\b(?:1[5-9]|20)\d\d\b`)
	money   = regexp.MustCompile(`(?i)(?:[$€£¥₹]|\b(?:USD|EUR|GBP|CHF|JPY)\b)\s?\d|\d\s?(?:[$€£¥₹]|лв|zł|Kč|руб|kr\b|(?:USD|EUR|GBP|CHF|JPY)\b)`)
)

// typeOf returns the common type of texts, or "".
func typeOf(texts []string) string {
	switch {
	case !slices.ContainsFunc(texts, func(s string) bool { return len(s) >= 40 || !money.MatchString(s) }):
		return "price"
	case !slices.ContainsFunc(texts, func(s string) bool { return !isDate(s) }):
		return "date"
	}
	return ""
}

func isDate(s string) bool {
	if len(s) >= 40 || !year.MatchString(s) || strings.Trim(s, digits) == "" {
		return false
	}
	_, err := extract.Date(s, extract.DateOptions{Order: "dmy"})
	return err == nil
}

// isLeaf reports whether an element contains text and no blocks.
func isLeaf(n *html.Node) bool {
	for child := range n.ChildNodes() {
		if child.Type == html.ElementNode && !slices.Contains([]string{"a", "b", "i", "em", "strong", "span", "br", "small", "sup", "sub"}, child.Data) {
			return false
		}
	}
	return true
}

// add appends a field and renames it if its name is taken.
func add(fields []field, f field) []field {
	name := f.name
	for i := 2; slices.ContainsFunc(fields, func(other field) bool { return other.name == f.name }); i++ {
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

// most reports whether a condition holds for four of five items.
func most(items []*html.Node, holds func(*html.Node) bool) bool {
	n := 0
	for _, item := range items {
		if holds(item) {
			n++
		}
	}
	return n*5 >= len(items)*4
}

// firstText returns the text of the first element that css selects, or "".
func firstText(css string, in *html.Node) string {
	if n := selectFirst(css, in); n != nil {
		return extract.Text(n)
	}
	return ""
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
	v, _ := extract.Attr(n, name)
	return v
}

// classes returns the classes of an element that a selector can contain without escapes.
func classes(n *html.Node) []string {
	if !isSimpleName(n.Data) {
		return nil
	}
	return slices.DeleteFunc(strings.Fields(value(n, "class")), func(c string) bool { return !isSimpleName(c) })
}

// isSimpleName reports whether a selector or a path can contain a name without escapes.
func isSimpleName(s string) bool {
	return s != "" && strings.Trim(s[:1], letters+"_") == "" && strings.Trim(s, letters+digits+"_-") == ""
}
