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
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
)

// Sample is a page and what it yields.
type Sample struct {
	URL         string            `json:"url"`
	Kind        string            `json:"kind"`
	ContentType string            `json:"content_type,omitempty"`
	Charset     string            `json:"charset,omitempty"`
	Records     []json.RawMessage `json:"records"`
	Invalid     []string          `json:"invalid,omitempty"` // problems of records that do not pass their checks
	Links       []string          `json:"links,omitempty"`
	Next        string            `json:"next,omitempty"`
	Missing     []string          `json:"missing,omitempty"` // fields without a value on the whole page
}

// Dir is the folder of a definition's samples: shop.pages beside shop.yaml.
func Dir(def *definition.Definition) string {
	return strings.TrimSuffix(def.File(), filepath.Ext(def.File())) + ".pages"
}

// Of reads a page.
func Of(def *definition.Definition, page extract.Page) (Sample, error) {
	s := Sample{URL: page.URL.String(), Kind: page.Kind, ContentType: page.Header.Get("Content-Type"), Records: []json.RawMessage{}}
	doc, err := extract.Parse(def, page)
	if err != nil {
		return s, err
	}
	s.Charset = doc.Charset.Name
	if err := fetch.Inspect(def, doc); err != nil {
		return s, err
	}
	res, err := extract.Run(def, doc)
	if err != nil {
		return s, err
	}
	if !extract.MustHave(def, doc) {
		return s, errors.New("the page has none of must_have")
	}
	for i := range res.Records {
		line, err := res.Records[i].JSON()
		if err != nil {
			return s, err
		}
		s.Records = append(s.Records, line)
	}
	for _, r := range res.Invalid {
		s.Invalid = append(s.Invalid, r.Type+": "+strings.Join(r.Problems, "; "))
	}
	for _, l := range res.Links {
		s.Links = append(s.Links, l.Kind+" "+l.URL)
	}
	if res.Next != nil {
		s.Next = res.Next.URL
	}
	for field, hits := range res.Hits {
		if len(hits) == 1 && hits["none"] > 0 {
			s.Missing = append(s.Missing, field)
		}
	}
	slices.Sort(s.Missing)
	return s, nil
}

// Save writes a page and what it yields as the sample of a name.
func Save(def *definition.Definition, dir, name string, page extract.Page) (Sample, error) {
	s, err := Of(def, page)
	if err != nil {
		return s, fmt.Errorf("read %s: %w", page.URL, err)
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return s, fmt.Errorf("encode sample: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return s, fmt.Errorf("make the folder of samples: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".page"), page.Body, 0o644); err != nil {
		return s, fmt.Errorf("save page: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".json"), append(text, '\n'), 0o644); err != nil {
		return s, fmt.Errorf("save sample: %w", err)
	}
	return s, nil
}

// Capture fetches a page of a kind and saves it.
func Capture(ctx context.Context, client *fetch.Client, def *definition.Definition, rawURL, kind, name string) (Sample, error) {
	page, err := client.Get(ctx, rawURL, kind)
	if err != nil {
		return Sample{}, err
	}
	return Save(def, Dir(def), name, page)
}

// Difference is a sample that the definition reads otherwise now.
type Difference struct {
	Name string
	What string
}

// Test reads the samples in a folder again and returns how many there are
// and which differ. A folder without samples is an error: it proves nothing.
func Test(def *definition.Definition, dir string) (tested int, diffs []Difference, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return 0, nil, fmt.Errorf("list samples: %w", err)
	}
	if len(files) == 0 {
		return 0, nil, fmt.Errorf("no samples in %s; capture some first", dir)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".json")
		what, err := again(def, strings.TrimSuffix(f, ".json"))
		if err != nil {
			return tested, diffs, fmt.Errorf("sample %s: %w", name, err)
		}
		tested++
		for _, w := range what {
			diffs = append(diffs, Difference{name, w})
		}
	}
	return tested, diffs, nil
}

// again reads one sample and tells what is other than it was.
func again(def *definition.Definition, path string) ([]string, error) {
	text, err := os.ReadFile(path + ".json")
	if err != nil {
		return nil, err
	}
	var want Sample
	if err := json.Unmarshal(text, &want); err != nil {
		return nil, err
	}
	body, err := os.ReadFile(path + ".page")
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(want.URL)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	if want.ContentType != "" {
		header.Set("Content-Type", want.ContentType)
	}
	got, err := Of(def, extract.Page{URL: u, Requested: want.URL, Kind: want.Kind, Status: http.StatusOK, Header: header, Body: body})
	if err != nil {
		return []string{"the page is refused: " + err.Error()}, nil
	}
	return compare(want, got), nil
}

func compare(want, got Sample) []string {
	var diffs []string
	if len(want.Records) != len(got.Records) {
		diffs = append(diffs, fmt.Sprintf("%d records, want %d", len(got.Records), len(want.Records)))
	}
	for i := range min(len(want.Records), len(got.Records)) {
		diffs = append(diffs, fields(i, want.Records[i], got.Records[i])...)
	}
	for _, c := range []struct {
		what      string
		want, got any
	}{{"next", want.Next, got.Next}, {"links", want.Links, got.Links}, {"charset", want.Charset, got.Charset}, {"invalid", want.Invalid, got.Invalid}} {
		if w, g := fmt.Sprint(c.want), fmt.Sprint(c.got); w != g {
			diffs = append(diffs, fmt.Sprintf("%s is %s, want %s", c.what, g, w))
		}
	}
	return diffs
}

// fields tells the fields in which two records differ.
func fields(i int, want, got json.RawMessage) []string {
	var w, g map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(want, &w), json.Unmarshal(got, &g)); err != nil {
		return []string{fmt.Sprintf("record %d cannot be read: %v", i, err)}
	}
	names := map[string]bool{}
	for n := range w {
		names[n] = true
	}
	for n := range g {
		names[n] = true
	}
	var diffs []string
	for n := range names {
		if !bytes.Equal(compact(w[n]), compact(g[n])) {
			diffs = append(diffs, fmt.Sprintf("record %d: %s is %s, want %s", i, n, shown(g[n]), shown(w[n])))
		}
	}
	slices.Sort(diffs)
	return diffs
}

func compact(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

func shown(raw json.RawMessage) string {
	if raw == nil {
		return "missing"
	}
	return string(compact(raw))
}

// Live fetches a start page and one page of each other kind that it leads to,
// and returns what they yield. It stops at the first page that cannot be had.
func Live(ctx context.Context, client *fetch.Client, def *definition.Definition) ([]Sample, error) {
	var samples []Sample
	starts := def.StartPages()
	seen := map[string]bool{}
	for _, p := range starts {
		if p.Kind == definition.KindSitemap || seen[p.Kind] {
			continue
		}
		front := []extract.Link{{URL: p.URL, Kind: p.Kind}}
		for len(front) > 0 {
			l := front[0]
			front = front[1:]
			if seen[l.Kind] {
				continue
			}
			seen[l.Kind] = true
			page, err := client.Get(ctx, l.URL, l.Kind)
			if err != nil {
				return samples, fmt.Errorf("%s page %s: %w", l.Kind, l.URL, err)
			}
			s, err := Of(def, page)
			if err != nil {
				return samples, fmt.Errorf("%s page %s: %w", l.Kind, l.URL, err)
			}
			samples = append(samples, s)
			for _, ref := range s.Links {
				kind, at, _ := strings.Cut(ref, " ")
				front = append(front, extract.Link{URL: at, Kind: kind})
			}
		}
	}
	return samples, nil
}
