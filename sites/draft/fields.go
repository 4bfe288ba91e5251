package draft

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/html"

	"muster/sites/extract"
)

// maxFields limits the fields of a kind of record.
const maxFields = 12

// itemFields guesses the fields of the items of a list.
func (c *content) itemFields(items []*html.Node, main *links) []field {
	var fields []field
	used := map[string]bool{} // first values of fields, to avoid duplicates
	put := func(name, css, keys, typ string) bool {
		hits, value, different := 0, "", map[string]bool{}
		for _, item := range items {
			if n := selectFirst(css, item); n != nil && (keys != "" || extract.Text(n) != "") {
				hits++
				different[extract.Text(n)] = true
				if value == "" && keys == "" {
					value = extract.Text(n)
				}
			}
		}
		if hits*5 < len(items)*4 || used[value] || name == "title" && len(different)*2 < hits {
			return false
		}
		used[value] = value != ""
		fields = add(fields, field{name: name, sources: []string{"css: " + quote(css) + keys}, typ: typ})
		return true
	}
	for _, css := range titleSelectors(main) {
		if put("title", css, "", "") {
			break
		}
	}
	if main != nil && main.css == "" {
		if len(fields) == 0 {
			fields = append(fields, field{name: "title", sources: []string{"take: text"}})
		}
		fields = append(fields, field{name: "url", sources: []string{"attr: href"}, typ: "url"})
	} else if main != nil {
		put("url", main.css, ", attr: href", "url")
	}
	put("image", "img", ", take: image", "url")
	fields = addColumns(fields, items, used)
	fields = c.addTyped(fields, items, used)
	if !slices.ContainsFunc(fields, func(f field) bool { return f.typ != "url" }) {
		fields = add(fields, field{name: "text", sources: []string{"take: text"}})
	}
	return fields
}

// titleSelectors returns selectors for the title of an item, best first.
func titleSelectors(main *links) []string {
	list := []string{"h1", "h2", "h3", "h4", "h5", "h6"}
	if main != nil && main.css != "" {
		list = append(list, main.css)
	}
	return append(list, "[itemprop=name]", "[class*=title]", "[class*=name]")
}

// addColumns adds a field for each headed column, if the items are rows of a table.
func addColumns(fields []field, rows []*html.Node, used map[string]bool) []field {
	table := within(rows[0], "table")
	if rows[0].Data != "tr" || table == nil {
		return fields
	}
	for i, th := range selectAll("tr:first-child th, thead th", table) {
		heading, text := extract.Text(th), ""
		if cells := selectAll("td", rows[0]); i < len(cells) {
			text = extract.Text(cells[i])
		}
		if heading != "" && !used[text] && len(fields) < maxFields {
			fields = add(fields, field{name: fieldName(heading), sources: []string{"column: " + quote(heading)}})
			used[text] = text != ""
		}
	}
	return fields
}

// matchesMost reports whether css matches in at least half of the items.
func matchesMost(items []*html.Node, css string) bool {
	n := 0
	for _, item := range items {
		if selectFirst(css, item) != nil {
			n++
		}
	}
	return n*2 >= len(items)
}

// texts are the strings that a selector finds in the items.
type texts struct {
	css, name string
	firsts    []string // one per item with a match
	all       int
}

// addTyped adds fields for typed values, beginning with price and date, and for classes of elements with a short text in at least
// half of the items.
func (c *content) addTyped(fields []field, items []*html.Node, used map[string]bool) []field {
	byClass := c.textsByClass(items)
	typed := func(t *texts) field {
		return field{name: t.name, sources: []string{"css: " + quote(t.css)}, typ: typeOfTexts(t)}
	}
	for _, typ := range []string{"price", "date"} {
		if hasField(fields, typ) {
			continue
		}
		if typ == "date" && matchesMost(items, "time[datetime]") {
			fields = append(fields, field{name: "date", sources: []string{"css: 'time[datetime]', attr: datetime"}, typ: "date"})
			byClass = slices.DeleteFunc(byClass, func(t *texts) bool { return strings.HasPrefix(t.css, "time.") })
			continue
		}
		for _, t := range byClass {
			if f := typed(t); f.typ == typ && !used[t.firsts[0]] {
				used[t.firsts[0]] = true
				fields = add(fields, f)
				break
			}
		}
	}
	limit := len(fields) + maxFields
	for _, t := range byClass {
		f := typed(t)
		if used[t.firsts[0]] || len(fields) >= limit || f.typ == "price" && slices.ContainsFunc(fields, func(o field) bool { return o.typ == "price" }) {
			continue
		}
		used[t.firsts[0]] = true
		fields = add(fields, f)
	}
	return fields
}

// textsByClass collects the short texts of elements by their classes.
func (c *content) textsByClass(items []*html.Node) []*texts {
	byCSS := map[string]*texts{}
	var ordered []*texts
	for _, item := range items {
		seen := map[string]bool{}
		for n := range item.Descendants() {
			if _, ok := c.facts[n]; !ok || !leaf(n) {
				continue
			}
			text := extract.Text(n)
			list := slices.DeleteFunc(classes(n), layout.MatchString)
			if len(text) > 400 || len(list) == 0 || !strings.ContainsFunc(text, isWord) {
				continue
			}
			css := n.Data + "." + list[0]
			t := byCSS[css]
			if t == nil {
				t = &texts{css: css, name: fieldName(list[0])}
				byCSS[css] = t
				ordered = append(ordered, t)
			}
			t.all++
			if !seen[css] {
				seen[css] = true
				t.firsts = append(t.firsts, text)
			}
		}
	}
	return slices.DeleteFunc(ordered, func(t *texts) bool { return len(t.firsts)*2 < len(items) })
}

var (
	capital = regexp.MustCompile(`([a-z])([A-Z])`)
	year    = regexp.MustCompile(`\b(?:1[5-9]|20)\d\d\b`)
)

// typeOfTexts returns the common type of all strings, or "".
func typeOfTexts(t *texts) string {
	all := func(is func(s string) bool) bool {
		return !slices.ContainsFunc(t.firsts, func(s string) bool { return !is(s) })
	}
	switch {
	case all(func(s string) bool { return len(s) < 40 && money.MatchString(s) }):
		return "price"
	case all(isDate):
		return "date"
	case t.all*2 > len(t.firsts)*3:
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

// leaf reports whether an element contains text and no elements with classes.
func leaf(n *html.Node) bool {
	for child := range n.ChildNodes() {
		if child.Type != html.ElementNode {
			continue
		}
		switch child.Data {
		case "a", "b", "i", "em", "strong", "span", "br", "small", "sup", "sub", "img", "time", "svg", "del", "ins", "bdi":
			if child.Data != "a" && len(classes(child)) > 0 && extract.Text(child) != "" {
				return false
			}
		default:
			return false
		}
	}
	return true
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

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

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789., \t\n\f\r") == "" }
