package draft

import (
	"encoding/json"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"muster/sites/extract"
)

// properties are the properties of schema.org that become fields: the path of the value, the name and the type of the field.
var properties = []struct{ path, name, typ string }{
	{"name", "title", ""}, {"headline", "title", ""}, {"title", "title", ""},
	{"offers.price", "price", "price"}, {"offers.lowPrice", "price", "price"}, {"price", "price", "price"}, {"offers.highPrice", "high_price", "price"},
	{"datePublished", "date", "date"}, {"datePosted", "date", "date"}, {"dateModified", "modified", "date"},
	{"author.name", "author", ""}, {"author", "author", ""}, {"brand.name", "brand", ""}, {"brand", "brand", ""},
	{"sku", "sku", ""}, {"gtin13", "gtin13", ""}, {"mpn", "mpn", ""}, {"isbn", "isbn", ""},
	{"offers.priceCurrency", "currency", ""}, {"offers.availability", "availability", ""}, {"aggregateRating.ratingValue", "rating", "number"}, {"aggregateRating.reviewCount", "reviews", "integer"},
	{"category", "category", ""}, {"keywords", "keywords", ""},
	{"description", "description", ""}, {"image", "image", "url"},
}

// structuredFields returns fields from the JSON-LD or microdata object of the page with the most known properties. named reports
// whether the page's heading names that object: then it is a detail page even if elements repeat on it.
func (c *content) structuredFields() (fields []field, named bool) {
	heading := c.heading()
	for _, source := range []struct {
		key     string
		objects []any
	}{{"jsonld", c.doc.Linked()}, {"microdata", c.doc.Microdata()}} {
		for _, o := range source.objects {
			obj, _ := o.(map[string]any)
			t := obj["@type"]
			if list, ok := t.([]any); ok && len(list) > 0 {
				t = list[0]
			}
			typ, _ := t.(string)
			if typ = typ[strings.LastIndexAny(typ, "/:")+1:]; typ == "" {
				continue
			}
			found, title := objectOf(obj, source.key+": ", typ)
			about := title != "" && strings.Contains(heading, title)
			if len(found) > 1 && (about && !named || about == named && len(found) > len(fields)) {
				fields, named = found, about
			}
		}
	}
	return fields, named
}

// objectOf returns fields for the properties of an object, and its title.
func objectOf(obj map[string]any, source, typ string) (fields []field, title string) {
	for _, p := range properties {
		v := textAt(obj, p.path)
		if v == "" || slices.ContainsFunc(fields, func(f field) bool { return f.name == p.name }) {
			continue
		}
		if p.name == "title" {
			title = extract.Fold(v)
		}
		fields = append(fields, field{name: p.name, sources: []string{source + quote(typ+"."+p.path)}, typ: p.typ, example: v})
	}
	return fields, title
}

// textAt returns the string or number at a path, or "".
func textAt(obj map[string]any, path string) string {
	head, rest, deeper := strings.Cut(path, ".")
	v := obj[head]
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	switch v := v.(type) {
	case map[string]any:
		if deeper {
			return textAt(v, rest)
		}
	case string:
		if !deeper {
			return strings.TrimSpace(v)
		}
	case json.Number:
		if !deeper {
			return v.String()
		}
	}
	return ""
}

// meta returns the content of a meta element, or "".
func (c *content) meta(name string) string {
	for _, m := range selectAll("meta[content]", c.doc.Root) {
		if value(m, "property") == name || value(m, "name") == name {
			return strings.TrimSpace(value(m, "content"))
		}
	}
	return ""
}

// detailFields guesses the fields of a page about one item.
func (c *content) detailFields() []field {
	fields, _ := c.structuredFields()
	title := field{name: "title"}
	if i := slices.IndexFunc(fields, func(f field) bool { return f.name == "title" }); i >= 0 {
		title = fields[i]
		fields = slices.Delete(fields, i, i+1)
	}
	used := map[string]bool{}
	for _, f := range fields {
		used[extract.Fold(f.example)] = true
	}
	matter := c.doc.Body()
	for _, css := range []string{"main", "article"} {
		if found := selectAll(css, c.doc.Root); len(found) == 1 {
			matter = found[0]
			break
		}
	}
	if h := c.heading(); h != "" {
		css := "h1"
		if firstText(css, []*html.Node{c.doc.Root}) != h {
			css = matter.Data + " h1"
		}
		used[h] = true
		title.sources = append(title.sources, "css: "+quote(css))
	}
	if c.meta("og:title") != "" {
		title.sources = append(title.sources, "meta: 'og:title'")
	}
	if len(title.sources) == 0 {
		title.sources = []string{"page: title"}
	}
	fields = append([]field{title}, fields...)
	fields = c.addClasses(fields, []*html.Node{matter}, used)
	for _, m := range []struct{ name, meta, typ string }{{"description", "description", ""}, {"description", "og:description", ""}, {"image", "og:image", "url"}} {
		if !hasField(fields, m.name) && c.meta(m.meta) != "" {
			fields = append(fields, field{name: m.name, sources: []string{"meta: " + quote(m.meta)}, typ: m.typ})
		}
	}
	for _, label := range labels(matter) {
		if len(fields) < 2*maxFields {
			fields = add(fields, field{name: fieldName(label), sources: []string{"label: " + quote(label)}})
		}
	}
	return add(fields, field{name: "url", sources: []string{"page: url"}, typ: "url"})
}

// labels returns the labels of values in tables of two columns and definition lists.
func labels(root *html.Node) []string {
	var out []string
	put := func(n *html.Node) {
		text := strings.TrimRight(extract.Text(n), " :")
		if text != "" && len(text) < 60 && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	for _, tr := range selectAll("tr", root) {
		cells := selectAll("th, td", tr)
		if len(cells) == 2 && cells[1].Data == "td" && extract.Text(cells[1]) != "" {
			put(cells[0])
		}
	}
	for _, dt := range selectAll("dt", root) {
		put(dt)
	}
	return out
}
