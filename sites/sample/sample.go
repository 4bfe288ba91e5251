// Package sample shows the records of pages by a definition: of a live site, of pages in a cache, and of single fields.
//
// Live follows a definition from its start pages, Of extracts one page, and Try one field.
package sample

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/sites/internal/lines"
)

// A View is a page with its extracted data.
type View struct {
	URL       string            `json:"url"`
	Requested string            `json:"requested,omitempty"` // if it was redirected to URL
	Kind      string            `json:"kind"`
	Charset   string            `json:"charset,omitempty"`
	Records   []json.RawMessage `json:"records"`
	Invalid   []string          `json:"invalid,omitempty"` // problems of records that fail their checks
	Links     []string          `json:"links,omitempty"`   // kind and URL
	Next      string            `json:"next,omitempty"`
	Missing   []string          `json:"missing,omitempty"`  // fields without a value on the whole page
	Unparsed  []string          `json:"unparsed,omitempty"` // optional fields with unparsable text: number of records and an example

	CharsetFrom string // origin of the charset
	Bytes       int
	Fields      []Field

	next *extract.Link // may be nil
	to   []extract.Link
}

// Field describes the values of a field of the records of a page.
type Field struct {
	Name  string         // record.field
	Hits  map[string]int // by alternative; see extract.Result
	First json.RawMessage
}

// Found returns the number of records with a value of the field and the number of records.
func (f Field) Found() (n, of int) {
	for by, hits := range f.Hits {
		of += hits
		if by != "none" {
			n += hits
		}
	}
	return n, of
}

// Of extracts a page. external is fetch.Client.Extract for definitions with an extractor. For a page that is blocked or lacks must_have it returns an error and a View of the extracted data.
func Of(ctx context.Context, def *definition.Definition, page extract.Page, external func(context.Context, *extract.Doc) (*extract.Doc, error)) (View, error) {
	v := View{Bytes: len(page.Body), URL: page.URL.String(), Kind: page.Kind, Records: []json.RawMessage{}}
	if page.Requested != v.URL {
		v.Requested = page.Requested
	}
	if page.Kind == definition.KindSitemap {
		for _, p := range def.StartPages() {
			if page.Start == 0 && p.Kind == page.Kind && p.URL == page.Requested {
				page.Start = p.Start
			}
		}
		res, err := extract.Sitemap(def, page)
		v.links(res)
		if err == nil && res.Broken != "" {
			err = errors.New(res.Broken)
		}
		return v, err
	}
	doc, err := extract.Parse(def, page)
	if err != nil {
		return v, err
	}
	v.Charset, v.CharsetFrom = doc.Charset.Name, doc.Charset.From
	if err := fetch.Inspect(def, doc); err != nil {
		return v, err
	}
	if def.Extractor.Handles(page.Kind) && extract.MustHave(def, doc) {
		if doc, err = external(ctx, doc); err != nil {
			return v, err
		}
	}
	res, err := extract.Run(def, doc)
	if err != nil {
		return v, err
	}
	v.links(res)
	for i := range res.Records {
		line, err := res.Records[i].JSON()
		if err != nil {
			return v, err
		}
		v.Records = append(v.Records, line)
	}
	for _, r := range res.Invalid {
		v.Invalid = append(v.Invalid, r.Type+": "+strings.Join(r.Problems, "; "))
	}
	v.fields(def, res)
	v.setUnparsed(res)
	return v, fetch.CheckMustHave(def, doc)
}

func (v *View) links(res extract.Result) {
	res.Links = slices.DeleteFunc(res.Links, func(l extract.Link) bool { return l.Kind == definition.KindFile })
	v.to = res.Links
	for _, l := range res.Links {
		v.Links = append(v.Links, l.Kind+" "+l.URL)
	}
	if res.Next != nil {
		v.next, v.Next = res.Next, res.Next.URL
		if !res.Next.Post.IsZero() {
			v.Next += " by POST of " + res.Next.Post.Text
		}
	}
}

// fields sets the fields of a view, in the order of the definition.
func (v *View) fields(def *definition.Definition, res extract.Result) {
	for _, r := range def.RecordsFrom(v.Kind) {
		for _, f := range r.Fields {
			name := r.Name + "." + f.Name
			hits := res.Hits[name]
			if len(hits) == 0 {
				continue // the page has no record of this kind
			}
			field := Field{Name: name, Hits: hits}
			for _, rec := range append(slices.Clone(res.Records), res.Invalid...) {
				i := slices.IndexFunc(rec.Fields, func(x extract.Value) bool { return x.Name == f.Name })
				if rec.Type == r.Name && i >= 0 {
					field.First, _ = lines.JSON(rec.Fields[i].Value) // values of fields always encode
					break
				}
			}
			if len(hits) == 1 && hits["none"] > 0 {
				v.Missing = append(v.Missing, name)
			}
			v.Fields = append(v.Fields, field)
		}
	}
	slices.Sort(v.Missing)
}

// setUnparsed sets the fields whose text could not be parsed.
func (v *View) setUnparsed(res extract.Result) {
	for _, name := range slices.Sorted(maps.Keys(res.Faults)) {
		f := res.Faults[name]
		if f.Unparsed == 0 {
			continue
		}
		_, of := Field{Hits: res.Hits[name]}.Found()
		v.Unparsed = append(v.Unparsed, fmt.Sprintf("%s in %d of %d: %s", name, f.Unparsed, of, f.Example))
	}
}

// PostOf returns the request body for a URL and kind: the body of the first start page with this URL, or the zero Post.
func PostOf(def *definition.Definition, rawURL, kind string) definition.Post {
	for _, p := range def.StartPages() {
		if p.Kind == kind && p.URL == rawURL {
			return p.Post
		}
	}
	return definition.Post{}
}

// KindOf guesses the kind of the page at a URL: the kind of the start page with this URL, or detail.
func KindOf(def *definition.Definition, u *url.URL) string {
	for _, p := range def.StartPages() {
		start, err := url.Parse(p.URL)
		if err == nil && def.Canonical(start) == def.Canonical(u) {
			return p.Kind
		}
	}
	return definition.KindDetail
}

const (
	maxTries = 3  // attempts per kind and depth until a page succeeds
	maxLive  = 25 // maximum number of pages
)

// Live follows the definition from its start pages, through sitemaps and listing pages at any depth, until it has fetched the
// second page of a listing, and a record of each kind of page that has records. It calls show with each page or its error,
// continues after errors, and returns the first one, or that a kind of page has yielded no record.
func Live(ctx context.Context, client *fetch.Client, def *definition.Definition, show func(View, error)) error {
	l := live{client: client, def: def, show: show, tries: map[string]int{}, wanted: map[string]bool{}}
	for _, r := range def.Records {
		l.wanted[r.From] = true
	}
	for _, p := range def.StartPages() {
		l.visit(ctx, extract.Link{URL: p.URL, Kind: p.Kind, Post: p.Post, Start: p.Start}, p.Kind, 0)
	}
	if l.first == nil && len(l.wanted) > 0 {
		kinds := strings.Join(slices.Sorted(maps.Keys(l.wanted)), " or ")
		return fmt.Errorf("no %s page yielded a record; look at the links and the fields", kinds)
	}
	return l.first
}

type live struct {
	client *fetch.Client
	def    *definition.Definition
	show   func(View, error)
	tries  map[string]int  // attempts by sort and depth; maxTries after a success
	wanted map[string]bool // kinds of page that still lack a record
	pages  int
	first  error
}

// render fetches a page again with its JavaScript.
func (l *live) render(ctx context.Context, plain extract.Page) (View, error) {
	page, err := l.client.Render(ctx, plain)
	if err != nil {
		return View{URL: plain.Requested, Kind: plain.Kind}, err
	}
	page.Start, page.Carry, page.N = plain.Start, plain.Carry, plain.N
	v, err := Of(ctx, l.def, page, l.client.Extract)
	l.client.Learn(ctx, page.Kind, err == nil && len(v.Records)+len(v.to) > 0)
	return v, err
}

// visit fetches a page and its links, unless there were enough pages of its sort, which is its kind or "next".
func (l *live) visit(ctx context.Context, to extract.Link, sort string, depth int) {
	level := fmt.Sprint(sort, " ", depth)
	found := depth > 0 && sort != "next" && len(l.wanted) == 0
	if found || l.tries[level] >= maxTries || l.pages >= maxLive || ctx.Err() != nil {
		return
	}
	l.tries[level]++
	l.pages++
	v := View{URL: to.URL, Kind: to.Kind}
	page, err := l.client.Fetch(ctx, to.URL, to.Kind, to.Post)
	if err == nil {
		page.Start, page.Carry = to.Start, to.Carry
		if sort == "next" {
			page.N = 1 // the second numbered page
		}
		v, err = Of(ctx, l.def, page, l.client.Extract)
		if (err != nil || len(v.Records)+len(v.to) == 0) && l.client.CanRender(page) {
			v, err = l.render(ctx, page)
		}
	}
	l.show(v, err)
	if err != nil {
		if l.first == nil {
			l.first = fmt.Errorf("%s page %s: %w", to.Kind, to.URL, err)
		}
		return
	}
	if len(v.Records) > 0 {
		delete(l.wanted, to.Kind)
	}
	if len(v.Records) > 0 || to.Kind != definition.KindDetail {
		l.tries[level] = maxTries
	}
	if v.next != nil && sort != "next" {
		l.visit(ctx, *v.next, "next", 0)
	}
	for _, link := range v.to {
		link.Start = to.Start
		l.visit(ctx, link, link.Kind, depth+1)
	}
}
