// Package sample saves pages with their extracted records next to a definition, and reports when the results of the definition
// change.
//
// A sample is two files in the directory that Dir returns: the fetched page, and a JSON file with its origin and the extracted
// data. Capture creates one from the live site, Test extracts all again, and Live shows one current page of each kind.
package sample

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
)

// A Sample is a page with its extracted data.
type Sample struct {
	URL         string            `json:"url"`
	BaseURL     string            `json:"base_url,omitempty"`  // of the scraped mirror
	Requested   string            `json:"requested,omitempty"` // if it was redirected to URL
	Post        definition.Post   `json:"post,omitzero"`       // body of a POST
	Kind        string            `json:"kind"`
	Carry       map[string]string `json:"carry,omitempty"` // from the link to the page
	ContentType string            `json:"content_type,omitempty"`
	LinkHeader  []string          `json:"link_header,omitempty"`
	FetchedAt   time.Time         `json:"fetched_at,omitzero"`
	Charset     string            `json:"charset,omitempty"`
	Records     []json.RawMessage `json:"records"`
	Invalid     []string          `json:"invalid,omitempty"` // problems of records that fail their checks
	Links       []string          `json:"links,omitempty"`   // kind and URL
	Next        string            `json:"next,omitempty"`
	Missing     []string          `json:"missing,omitempty"`  // fields without a value on the whole page
	Unparsed    []string          `json:"unparsed,omitempty"` // optional fields with unparsable text: number of records and an example
}

// A View is a Sample with details of the extraction.
type View struct {
	Sample
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

// Dir returns the directory of a definition's samples: shop.pages next to shop.yaml.
func Dir(def *definition.Definition) string {
	return strings.TrimSuffix(def.File(), filepath.Ext(def.File())) + ".pages"
}

// Of extracts a page. For a page that is blocked or lacks must_have it returns an error and a View of the extracted data.
func Of(def *definition.Definition, page extract.Page) (View, error) {
	v := View{Bytes: len(page.Body), Sample: Sample{
		URL: page.URL.String(), BaseURL: def.Rebased(), Kind: page.Kind, Records: []json.RawMessage{},
		ContentType: page.Header.Get("Content-Type"), LinkHeader: page.Header.Values("Link"), FetchedAt: page.FetchedAt.UTC().Truncate(time.Second), Post: page.Post, Carry: page.Carry,
	}}
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
	if !extract.MustHave(def, doc) {
		why := "no element matches must_have"
		if fetch.NeedsScript(doc) {
			why += "; the page probably requires JavaScript; see render in the definition"
		}
		return v, errors.New(why)
	}
	return v, nil
}

func (v *View) links(res extract.Result) {
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

// encodeJSON encodes a value as JSON without escaping < > &.
func encodeJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // values of fields always encode
	return bytes.TrimSpace(b.Bytes())
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
					field.First = encodeJSON(rec.Fields[i].Value)
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

// Save saves a page and its extracted data as a sample.
func Save(def *definition.Definition, dir, name string, page extract.Page) (View, error) {
	v, err := Of(def, page)
	if err != nil {
		return v, fmt.Errorf("read %s: %w", page.URL, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return v, fmt.Errorf("create the directory of samples: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".page"), page.Body, 0o644); err != nil {
		return v, fmt.Errorf("save page: %w", err)
	}
	return v, v.write(filepath.Join(dir, name+".json"))
}

func (s Sample) write(file string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode sample: %w", err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("save sample: %w", err)
	}
	return nil
}

// Capture fetches a page of a kind and saves it in a directory.
func Capture(ctx context.Context, client *fetch.Client, def *definition.Definition, rawURL, kind, dir, name string) (View, error) {
	page, err := client.Fetch(ctx, rawURL, kind, PostOf(def, rawURL, kind))
	if err != nil {
		return View{}, err
	}
	return Save(def, dir, name, page)
}

var notInName = regexp.MustCompile(`[^\pL\pN]+`)

// NameFor returns the name of the sample of a page with this kind and URL.
func NameFor(kind string, u *url.URL) string {
	words := strings.Trim(notInName.ReplaceAllString(u.Path+" "+u.RawQuery, "-"), "-")
	if rs := []rune(words); len(rs) > 60 {
		words = strings.Trim(string(rs[len(rs)-60:]), "-")
	}
	return strings.TrimSuffix(kind+"-"+words, "-")
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

// header returns the saved headers of a page.
func (s Sample) header() http.Header {
	h := http.Header{}
	if s.ContentType != "" {
		h.Set("Content-Type", s.ContentType)
	}
	for _, l := range s.LinkHeader {
		h.Add("Link", l)
	}
	return h
}
