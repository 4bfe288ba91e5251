// Package draft writes a first definition of a site from one of its pages.
//
// It takes the elements with the most frequent content as records, their links as detail pages, and structured data, labels and
// classes as fields. The definition loads, and every field has a value on the source pages; a person must check the rest.
package draft

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/sample"
)

// Get fetches a page of a kind, like fetch.Client.Get.
type Get func(ctx context.Context, rawURL, kind string) (extract.Page, error)

// Draft is a guessed definition.
type Draft struct {
	YAML  []byte
	Def   *definition.Definition
	Views []sample.View // results on the source pages
	Notes []string      // hints to the user
}

// Bare returns a minimal definition of the site of a URL, which suffices to fetch the first page.
func Bare(u *url.URL) (*definition.Definition, error) {
	o := newOutline(u)
	o.records = []*record{{name: "page", fields: []field{{name: "title", source: "page: title"}}}}
	return definition.Parse("draft.yaml", o.yaml())
}

// Write fetches a page and at most one page that it links to, and writes the definition.
func Write(ctx context.Context, get Get, u *url.URL) (*Draft, error) {
	bare, err := Bare(u)
	if err != nil {
		return nil, err
	}
	page, err := get(ctx, u.String(), definition.KindListing)
	if err != nil {
		return nil, err
	}
	page.Kind = definition.KindListing
	o := newOutline(page.URL)
	text, _ := extract.Decode(page.Body, page.Header.Get("Content-Type"), nil)
	if text = bytes.TrimSpace(text); len(text) > 0 && (text[0] == '{' || text[0] == '[') {
		if err := o.fromJSON(text); err != nil {
			return nil, err
		}
		return o.finish(page)
	}
	doc, err := extract.Parse(bare, page)
	if err != nil {
		return nil, err
	}
	each, items := findList(doc)
	if each == "" || structuredFields(doc) != nil { // a page about one thing, even if elements repeat on it
		page.Kind, o.startAs = definition.KindDetail, definition.KindDetail
		o.records = []*record{{name: "page", fields: detailFields(doc)}}
		return o.finish(page)
	}
	link, linked := mainLink(items)
	o.mustHave, o.next = each, findNext(doc)
	o.records = []*record{{name: "item", from: definition.KindListing, each: each, fields: itemFields(items, link, linked)}}
	if linked {
		detail, err := o.fromLink(ctx, get, bare, doc, strings.TrimSpace(each+" "+link))
		if err == nil {
			return o.finish(page, detail)
		}
		o.links = ""
		o.notes = append(o.notes, fmt.Sprintf("no detail pages: cannot read the target of the first link: %v", err))
	}
	return o.finish(page)
}

// fromLink outlines and returns the page of the first link of a list.
func (o *outline) fromLink(ctx context.Context, get Get, bare *definition.Definition, doc *extract.Doc, links string) (extract.Page, error) {
	o.links = quote(links)
	def, err := definition.Parse("draft.yaml", o.yaml())
	if err != nil {
		return extract.Page{}, err
	}
	res, err := extract.Run(def, doc)
	if err == nil && len(res.Links) == 0 {
		err = errors.New("it is outside the site")
	}
	if err != nil {
		return extract.Page{}, err
	}
	page, err := get(ctx, res.Links[0].URL, definition.KindDetail)
	if err != nil {
		return page, err
	}
	page.Kind = definition.KindDetail
	detail, err := extract.Parse(bare, page)
	if err != nil {
		return page, err
	}
	if detail.Root == nil {
		return page, errors.New("it is not HTML")
	}
	o.records = append(o.records, &record{name: "page", fields: detailFields(detail)})
	return page, nil
}

// outline is an unfinished definition. Its strings are YAML.
type outline struct {
	site, base, start, startAs    string
	format, mustHave, next, links string // of listing
	records                       []*record
	notes                         []string
}

// record is a kind of record of an outline.
type record struct {
	name, from, each, eachJSON, key string
	fields                          []field
}

// field is a field of a record.
type field struct {
	name     string
	source   string // keys as YAML, without braces
	typ      string // "" for text
	required bool
	example  string
}

func newOutline(u *url.URL) *outline {
	name := strings.TrimPrefix(strings.ToLower(u.Host), "www.")
	words := strings.FieldsFunc(name, func(r rune) bool { return !strings.ContainsRune(letters+digits+"._-", r) })
	start := cmp.Or(u.EscapedPath(), "/")
	if u.RawQuery != "" {
		start += "?" + u.RawQuery
	}
	return &outline{site: strings.Trim(strings.Join(words, "-"), "-."), base: u.Scheme + "://" + u.Host, start: start, next: "{rel: next}"}
}

// finish applies the definition to the pages twice, to remove fields without values, and writes it with examples.
func (o *outline) finish(pages ...extract.Page) (*Draft, error) {
	d := &Draft{}
	for range 2 {
		var err error
		if d.Def, err = definition.Parse("draft.yaml", o.yaml()); err != nil {
			return nil, fmt.Errorf("the guessed definition does not load: %w", err)
		}
		d.Notes, d.Views = o.notes, nil
		for _, p := range pages {
			v, err := sample.Of(context.Background(), d.Def, p, nil)
			if err != nil {
				d.Notes = append(d.Notes, fmt.Sprintf("%s: %v", p.URL, err))
			}
			d.Views = append(d.Views, v)
		}
		for _, r := range o.records {
			r.settle(d.Views)
		}
		o.records = slices.DeleteFunc(o.records, func(r *record) bool { return len(r.fields) == 0 })
		if len(o.records) == 0 {
			return nil, errors.New("no records found on the page; if scripts load its data, find the URL that they request and use it instead")
		}
	}
	d.YAML = o.yaml()
	return d, nil
}

// settle removes fields without values and with the values of another field, adds examples to the others, and makes two required that every record has: the first one, and a price or a date. The
// first field with the name of an identifier becomes the key, if its values differ.
func (r *record) settle(views []sample.View) {
	found, values := map[string]sample.Field{}, map[string]map[string]bool{}
	records := 0
	for _, v := range views {
		for _, f := range v.Fields {
			found[f.Name] = f
		}
		for _, line := range v.Records {
			var rec map[string]json.RawMessage
			if json.Unmarshal(line, &rec) != nil || string(rec["_type"]) != strconv.Quote(r.name) {
				continue
			}
			records++
			for name, value := range rec {
				if values[name] == nil {
					values[name] = map[string]bool{}
				}
				values[name][string(value)] = true
			}
		}
	}
	examples := map[string]bool{}
	r.fields = slices.DeleteFunc(r.fields, func(f field) bool {
		in := found[r.name+"."+f.name]
		n, _ := in.Found()
		same := examples[string(in.First)]
		examples[string(in.First)] = true
		return n == 0 || same
	})
	required := 0
	for i := range r.fields {
		f := &r.fields[i]
		in := found[r.name+"."+f.name]
		f.example = string(in.First)
		n, of := in.Found()
		always := n == of && !strings.HasPrefix(f.source, "page:") // pages of any kind have these
		if f.required || always && (required == 0 || required == 1 && (f.typ == "price" || f.typ == "date")) {
			f.required = true
			required++
		}
		isID := slices.Contains([]string{"id", "sku", "upc", "ean", "isbn", "gtin13", "mpn", "uuid", "number"}, f.name) || strings.HasSuffix(f.name, "_id") || strings.HasSuffix(f.name, "_no")
		if isID && r.key == "" && records > 0 && len(values[f.name]) == records {
			r.key = f.name
		}
	}
}

// yaml writes the definition.
func (o *outline) yaml() []byte {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	put := func(indent, key, value string) {
		if value != "" {
			line("%s%s: %s", indent, key, value)
		}
	}
	line("# A first definition, guessed from a page. Review it: rename fields and delete")
	line("# unwanted ones. muster sites check --live FILE shows the extracted records.")
	line("# Records without a required field are dropped: their page may be a block page.")
	line("site: %s\nbase_url: %s\n", quote(o.site), quote(o.base))
	if o.startAs != "" {
		line("start:\n  - {url: %s, as: %s}", quote(o.start), o.startAs)
	} else {
		line("start: [%s]\n\nlisting:", quote(o.start))
		put("  ", "format", o.format)
		put("  ", "must_have", quote(o.mustHave))
		put("  ", "links", o.links)
		put("  ", "next", o.next)
	}
	line("\nrecords:")
	for _, r := range o.records {
		line("  %s:", r.name)
		put("    ", "from", r.from)
		put("    ", "each", quote(r.each))
		put("    ", "each_json", quote(r.eachJSON))
		if r.key != "" {
			line("    key: [%s]", r.key)
		}
		line("    fields:")
		for _, f := range r.fields {
			text := f.source
			if f.typ != "" {
				text += ", type: " + f.typ
			}
			if f.required {
				text += ", required: true"
			}
			example := []rune(strings.Join(strings.Fields(f.example), " "))
			line("      %s: {%s}  # %s", f.name, text, string(example[:min(len(example), 60)]))
		}
	}
	line("\npoliteness:\n  delay: 1s")
	return []byte(b.String())
}

const (
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits  = "0123456789"
)

// quote quotes a string for YAML, in flow and block style. "" remains "".
func quote(s string) string {
	plain := s == "" || strings.Trim(s[:1], letters) == "" && strings.Trim(s, letters+digits+"_.> -") == "" && !strings.HasSuffix(s, " ")
	if plain && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(s)) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}
