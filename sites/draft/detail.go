package draft

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"muster/sites/extract"
)

// detailFields guesses the fields of a page about one thing. Headings that
// the listing page has too, if there is one, are the site's and not the thing's.
func detailFields(doc, listing *extract.Doc) []field {
	heading := ""
	for _, h := range selected("h1", doc.Root) {
		if text := extract.Text(h); listing == nil || !slices.ContainsFunc(selected("h1", listing.Root), func(n *html.Node) bool { return extract.Text(n) == text }) {
			heading = text
			break
		}
	}
	var fields []field
	title := field{name: "title"}
	structured := structuredFields(doc)
	if i := slices.IndexFunc(structured, func(f field) bool {
		return f.name == "name" || f.name == "headline" || f.name == "title"
	}); i >= 0 {
		title.sources = structured[i].sources
		structured = slices.Delete(structured, i, i+1)
	}
	if heading != "" {
		title.sources = append(title.sources, "css: h1")
	}
	if hasMeta(doc, "og:title") {
		title.sources = append(title.sources, "meta: 'og:title'")
	}
	if len(title.sources) == 0 {
		title.sources = []string{"page: title"}
	}
	fields = add(fields, title)
	for _, f := range structured {
		fields = add(fields, f)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(fields, func(f field) bool { return f.name == name })
	}
	if !has("description") {
		for _, m := range []string{"description", "og:description"} {
			if hasMeta(doc, m) {
				fields = add(fields, field{name: "description", sources: []string{"meta: " + quote(m)}})
				break
			}
		}
	}
	if !has("image") && hasMeta(doc, "og:image") {
		fields = add(fields, field{name: "image", sources: []string{"meta: 'og:image'"}, typ: "url"})
	}
	body := matter(doc)
	seen := map[string]bool{heading: true}
	classFields([]*html.Node{body}, func(f field, first string) {
		if seen[first] || len(fields) >= 2*maxFields || f.typ == "list" && len(first) < 3 || f.typ == "price" && has("price") {
			return
		}
		seen[first] = true
		if f.typ == "price" {
			f.name = "price"
		}
		fields = add(fields, f)
	})
	for _, label := range labels(body) {
		if len(fields) >= 2*maxFields {
			break
		}
		fields = add(fields, field{name: fieldName(label), sources: []string{"label: " + quote(label)}})
	}
	if !has("date") && len(selected("time[datetime]", body)) > 0 {
		fields = add(fields, field{name: "date", sources: []string{"css: 'time[datetime]', attr: datetime"}, typ: "date"})
	}
	return add(fields, field{name: "url", sources: []string{"page: url"}, typ: "url"})
}

// matter is the part of a page that is about its thing.
func matter(doc *extract.Doc) *html.Node {
	for _, css := range []string{"main", "article", "[role=main]", "#content", ".content", "body"} {
		if found := selected(css, doc.Root); len(found) == 1 && len(extract.Text(found[0])) > 50 {
			return found[0]
		}
	}
	return doc.Root
}

func hasMeta(doc *extract.Doc, name string) bool {
	for _, m := range selected("meta[content]", doc.Root) {
		if (value(m, "property") == name || value(m, "name") == name) && strings.TrimSpace(value(m, "content")) != "" {
			return true
		}
	}
	return false
}

// labels are the words that stand before values in tables and lists of
// definitions.
func labels(root *html.Node) []string {
	var out []string
	put := func(n *html.Node) {
		text := strings.TrimRight(extract.Text(n), " :")
		if text != "" && len(text) < 60 && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	for _, tr := range selected("tr", root) {
		cells := selected("th, td", tr)
		if len(cells) == 2 && cells[1].Data == "td" && extract.Text(cells[1]) != "" {
			put(cells[0])
		}
	}
	for _, dt := range selected("dt", root) {
		put(dt)
	}
	return out
}

// wanted are the properties of schema.org that are worth a field, and the
// types of their values.
var wanted = map[string]string{
	"name": "", "headline": "", "title": "", "description": "", "sku": "", "gtin13": "", "mpn": "", "isbn": "", "image": "url", "brand": "", "brand.name": "", "author": "", "author.name": "", "category": "", "articleSection": "",
	"offers.price": "price", "offers.lowPrice": "price", "offers.highPrice": "price", "offers.priceCurrency": "", "offers.availability": "", "price": "price", "aggregateRating.ratingValue": "number", "aggregateRating.reviewCount": "integer",
	"datePublished": "date", "dateModified": "date", "datePosted": "date", "startDate": "date", "endDate": "date", "validThrough": "date", "location.name": "", "hiringOrganization.name": "", "address.addressLocality": "", "telephone": "",
	"recipeYield": "", "totalTime": "", "keywords": "", "publisher.name": "",
}

// structuredFields makes fields of the page's JSON-LD and microdata.
func structuredFields(doc *extract.Doc) []field {
	for _, src := range []struct {
		key     string
		objects []any
	}{{"jsonld", doc.Linked()}, {"microdata", doc.Microdata()}} {
		var best []field
		for _, o := range src.objects {
			obj, ok := o.(map[string]any)
			typ := typeOf(obj)
			if !ok || typ == "" || slices.Contains([]string{"BreadcrumbList", "WebSite", "Organization", "WebPage", "ListItem", "ImageObject", "SearchAction", "SiteNavigationElement", "ItemList"}, typ) {
				continue
			}
			var fields []field
			for _, path := range slices.Sorted(maps.Keys(wanted)) {
				if scalarAt(obj, path) {
					name := fieldName(path)
					name = map[string]string{"offers_price": "price", "brand_name": "brand", "author_name": "author", "offers_price_currency": "currency", "offers_availability": "availability", "aggregate_rating_rating_value": "rating", "aggregate_rating_review_count": "reviews"}[name]
					if name == "" {
						name = fieldName(path)
					}
					fields = add(fields, field{name: name, sources: []string{src.key + ": " + quote(typ+"."+path)}, typ: wanted[path]})
				}
			}
			if len(fields) > len(best) {
				best = fields
			}
		}
		if len(best) > 1 {
			return best
		}
	}
	return nil
}

func typeOf(obj map[string]any) string {
	t := obj["@type"]
	if list, ok := t.([]any); ok && len(list) > 0 {
		t = list[0]
	}
	s, _ := t.(string)
	return s[strings.LastIndexAny(s, "/:")+1:]
}

// scalarAt tells whether a path leads to a text or a number.
func scalarAt(obj map[string]any, path string) bool {
	head, rest, deeper := strings.Cut(path, ".")
	v := obj[head]
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	if deeper {
		inner, ok := v.(map[string]any)
		return ok && scalarAt(inner, rest)
	}
	switch v := v.(type) {
	case string:
		return strings.TrimSpace(v) != ""
	case json.Number:
		return true
	}
	return false
}
