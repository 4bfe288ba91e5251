// Package sample saves pages beside a definition with what they yield, and
// tells when the definition comes to yield something else.
//
// A sample is two files in the folder that Dir names: the page as it came,
// and a JSON file with where it came from and what was taken from it. Capture
// makes one from the live site, Test reads them all again, and Live shows what
// one page of each kind yields now.
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

// Sample is a page and what it yields.
type Sample struct {
	URL         string            `json:"url"`
	BaseURL     string            `json:"base_url,omitempty"`  // of the copy of the site that it comes from
	Requested   string            `json:"requested,omitempty"` // when a redirect led to URL
	Kind        string            `json:"kind"`
	ContentType string            `json:"content_type,omitempty"`
	LinkHeader  []string          `json:"link_header,omitempty"`
	FetchedAt   time.Time         `json:"fetched_at,omitzero"`
	Charset     string            `json:"charset,omitempty"`
	Records     []json.RawMessage `json:"records"`
	Invalid     []string          `json:"invalid,omitempty"` // problems of records that do not pass their checks
	Links       []string          `json:"links,omitempty"`   // kind and URL
	Next        string            `json:"next,omitempty"`
	Missing     []string          `json:"missing,omitempty"`  // fields without a value on the whole page
	Unparsed    []string          `json:"unparsed,omitempty"` // optional fields whose text cannot be read: in how many records, and an example
}

// View is what a page yields, in full: a Sample, and how it came about.
type View struct {
	Sample
	CharsetFrom string // how the charset was decided
	Bytes       int
	Fields      []Field
}

// Field is how a field of the records of a page was found.
type Field struct {
	Name  string         // record.field
	Hits  map[string]int // how often which alternative gave the value; see extract.Result
	First json.RawMessage
}

// Found is how many records have a value of the field, and how many there are.
func (f Field) Found() (n, of int) {
	for by, hits := range f.Hits {
		of += hits
		if by != "none" {
			n += hits
		}
	}
	return n, of
}

// Dir is the folder of a definition's samples: shop.pages beside shop.yaml.
func Dir(def *definition.Definition) string {
	return strings.TrimSuffix(def.File(), filepath.Ext(def.File())) + ".pages"
}

// Of reads a page. A page that is blocked, or that lacks must_have, is an
// error; the View has what is known of it all the same.
func Of(def *definition.Definition, page extract.Page) (View, error) {
	v := View{Bytes: len(page.Body), Sample: Sample{
		URL: page.URL.String(), BaseURL: def.Rebased(), Kind: page.Kind, Records: []json.RawMessage{},
		ContentType: page.Header.Get("Content-Type"), LinkHeader: page.Header.Values("Link"), FetchedAt: page.FetchedAt.UTC().Truncate(time.Second),
	}}
	if page.Requested != v.URL {
		v.Requested = page.Requested
	}
	if page.Kind == definition.KindSitemap {
		res, err := extract.Sitemap(def, page)
		v.links(res)
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
	v.unparsed(res)
	if !extract.MustHave(def, doc) {
		why := "the page has none of must_have"
		if fetch.NeedsScript(doc) {
			why += "; it seems to need JavaScript, which is not run; see render in the definition"
		}
		return v, errors.New(why)
	}
	return v, nil
}

func (v *View) links(res extract.Result) {
	for _, l := range res.Links {
		v.Links = append(v.Links, l.Kind+" "+l.URL)
	}
	if res.Next != nil {
		v.Next = res.Next.URL
	}
}

// encoded is a value as the records have it, with < > & as they are.
func encoded(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // what a field holds can be encoded
	return bytes.TrimSpace(b.Bytes())
}

// fields books what is known of the fields, in the order of the definition.
func (v *View) fields(def *definition.Definition, res extract.Result) {
	for _, r := range def.RecordsFrom(v.Kind) {
		for _, f := range r.Fields {
			name := r.Name + "." + f.Name
			hits := res.Hits[name]
			if len(hits) == 0 {
				continue // no record of this kind on the page
			}
			field := Field{Name: name, Hits: hits}
			for _, rec := range append(slices.Clone(res.Records), res.Invalid...) {
				i := slices.IndexFunc(rec.Fields, func(x extract.Value) bool { return x.Name == f.Name })
				if rec.Type == r.Name && i >= 0 {
					field.First = encoded(rec.Fields[i].Value)
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

// unparsed lists the fields whose text was left out.
func (v *View) unparsed(res extract.Result) {
	for _, name := range slices.Sorted(maps.Keys(res.Faults)) {
		f := res.Faults[name]
		if f.Unparsed == 0 {
			continue
		}
		_, of := Field{Hits: res.Hits[name]}.Found()
		v.Unparsed = append(v.Unparsed, fmt.Sprintf("%s in %d of %d: %s", name, f.Unparsed, of, f.Example))
	}
}

// Save writes a page and what it yields as the sample of a name.
func Save(def *definition.Definition, dir, name string, page extract.Page) (View, error) {
	v, err := Of(def, page)
	if err != nil {
		return v, fmt.Errorf("read %s: %w", page.URL, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return v, fmt.Errorf("make the folder of samples: %w", err)
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

// Capture fetches a page of a kind and saves it in a folder.
func Capture(ctx context.Context, client *fetch.Client, def *definition.Definition, rawURL, kind, dir, name string) (View, error) {
	page, err := client.Get(ctx, rawURL, kind)
	if err != nil {
		return View{}, err
	}
	return Save(def, dir, name, page)
}

var notInName = regexp.MustCompile(`[^\pL\pN]+`)

// NameFor makes the name of a sample of a page's kind and URL.
func NameFor(kind string, u *url.URL) string {
	words := strings.Trim(notInName.ReplaceAllString(u.Path+" "+u.RawQuery, "-"), "-")
	if rs := []rune(words); len(rs) > 60 {
		words = strings.Trim(string(rs[len(rs)-60:]), "-")
	}
	return strings.TrimSuffix(kind+"-"+words, "-")
}

// KindOf is what kind of page a URL most likely is: that of the start page
// with this URL, else a detail page.
func KindOf(def *definition.Definition, u *url.URL) string {
	for _, p := range def.StartPages() {
		start, err := url.Parse(p.URL)
		if err == nil && def.Canonical(start) == def.Canonical(u) {
			return p.Kind
		}
	}
	return definition.KindDetail
}

// header is what of a page's head was saved.
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
