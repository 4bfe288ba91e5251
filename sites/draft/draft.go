// Package draft writes a first definition of a site from one of its pages.
//
// It takes the elements with the most frequent content as records, their links as detail pages, and structured data, labels and
// classes as fields. The definition loads, and every field has a value on the source pages; a person must check the rest.
package draft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

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
	o.records = []*record{{name: "page", fields: []field{{name: "title", sources: []string{"page: title"}}}}}
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
	if looksLikeJSON(text) {
		if err := o.fromJSON(text); err != nil {
			return nil, err
		}
		return o.finish([]extract.Page{page})
	}
	doc, err := extract.Parse(bare, page)
	if err != nil {
		return nil, err
	}
	c := readContent(doc)
	o.next = c.findNext()
	pages := []extract.Page{page}
	if l := c.listing(); l != nil {
		detail := o.fromList(ctx, get, bare, c, l)
		return o.finish(append(pages, detail...))
	}
	r := &record{name: "page", fields: c.detailFields()}
	o.records = []*record{r}
	if o.next == "" {
		o.startAs = definition.KindDetail
		pages[0].Kind = definition.KindDetail
	} else {
		r.from = definition.KindListing
		o.note("the page has no list but links to a next page; each page is one record")
	}
	return o.finish(pages)
}

// listing returns the list of a listing page, or nil for a page about one item: its heading names the item of its structured data.
func (c *content) listing() *list {
	if _, named := c.structuredFields(); named {
		return nil
	}
	return c.findList()
}

// fromList outlines a listing and the page of its first link. It returns that page if it can be fetched.
func (o *outline) fromList(ctx context.Context, get Get, bare *definition.Definition, c *content, l *list) []extract.Page {
	some := l.items[:min(len(l.items), 50)]
	link, linked := mainLink(some)
	o.mustHave = l.each
	o.records = []*record{{name: "item", from: definition.KindListing, each: l.each, fields: c.itemFields(some, link, linked)}}
	if !linked {
		return nil
	}
	o.links = quote(strings.TrimSpace(l.each + " " + link))
	listed, err := definition.Parse("draft.yaml", o.yaml())
	if err != nil {
		o.links = ""
		return nil
	}
	res, err := extract.Run(listed, c.doc)
	if err != nil || len(res.Links) == 0 {
		o.links = ""
		return nil
	}
	page, err := get(ctx, res.Links[0].URL, definition.KindDetail)
	if err != nil {
		o.note("no detail pages: cannot fetch the target of the first link: %v", err)
		o.links = ""
		return nil
	}
	page.Kind = definition.KindDetail
	doc, err := extract.Parse(bare, page)
	if err != nil || doc.Root == nil {
		o.note("no detail pages: the target of the first link is not HTML")
		o.links = ""
		return nil
	}
	o.records = append(o.records, &record{name: "page", fields: readContent(doc).detailFields()})
	return []extract.Page{page}
}

// finish writes the definition and applies it to the pages. It removes fields without values and makes fields required that every
// record has.
func (o *outline) finish(pages []extract.Page) (*Draft, error) {
	for range 4 {
		def, err := definition.Parse("draft.yaml", o.yaml())
		if err != nil {
			return nil, fmt.Errorf("the guessed definition does not load: %w", err)
		}
		d := &Draft{Def: def, Notes: o.notes}
		found := map[string]sample.Field{}
		for _, p := range pages {
			v, err := sample.Of(def, p)
			if err != nil {
				d.Notes = append(d.Notes, fmt.Sprintf("%s: %v", p.URL, err))
			}
			d.Views = append(d.Views, v)
			o.setKeys(v)
			for _, f := range v.Fields {
				found[f.Name] = f
			}
		}
		if o.settle(found) {
			d.YAML = o.yaml() // now with examples
			return d, nil
		}
		if len(o.records) == 0 {
			break
		}
	}
	return nil, errors.New("no records found on the page; if scripts load its data, find the URL that they request and use it instead")
}

// siteName returns the host of a URL, with its port if that is not the default, as the name of a site.
func siteName(u *url.URL) string {
	name := strings.TrimPrefix(strings.ToLower(u.Host), "www.")
	return strings.Trim(strings.Join(strings.FieldsFunc(name, func(r rune) bool {
		return r >= utf8.RuneSelf || !isWord(r) && !strings.ContainsRune("._-", r)
	}), "-"), "-.")
}

func pathOf(u *url.URL) string {
	p := u.EscapedPath()
	if p == "" {
		p = "/"
	}
	if u.RawQuery != "" {
		p += "?" + u.RawQuery
	}
	return p
}

func looksLikeJSON(text []byte) bool {
	t := bytes.TrimSpace(text)
	return len(t) > 0 && (t[0] == '{' || t[0] == '[')
}
