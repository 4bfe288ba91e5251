package draft

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"golang.org/x/net/html"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/sample"
)

// enough is the minimum share of matching labels of testdata/pages.
const enough = 0.85

// label has a person's annotations of a page of testdata/pages.
type label struct {
	Page, URL, Kind string
	Items           struct {
		CSS   string
		Count int
	}
	Link, Next string
	Fields     map[string]string

	body []byte
}

// Drafts agree with a person's annotations: whether a page is a list, its items and their pages, the next page, and some values.
func TestDraftAgreesWithLabelledPages(t *testing.T) {
	t.Parallel()
	right, all := map[string]int{}, map[string]int{}
	for _, l := range labelledPages(t) {
		for property, problem := range l.compare(t) {
			what, _, _ := strings.Cut(property, " ")
			for _, sum := range []string{what, "all"} {
				all[sum]++
				if problem == "" {
					right[sum]++
				}
			}
			if problem != "" {
				t.Logf("%s: %s: %s", l.Page, property, problem)
			}
		}
	}
	for _, what := range []string{"kind", "items", "links", "next", "field", "all"} {
		share := float64(right[what]) / float64(all[what])
		t.Logf("%-6s %3d of %3d, %.0f %%", what, right[what], all[what], 100*share)
		if share < enough {
			t.Errorf("%s: got %d of %d labels right, want %.0f %%", what, right[what], all[what], 100*enough)
		}
	}
}

func labelledPages(t *testing.T) []label {
	t.Helper()
	text, err := os.ReadFile("testdata/pages/labels.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var labels []label
	if err := yaml.Unmarshal(text, &labels); err != nil {
		t.Fatal(err)
	}
	for i := range labels {
		if labels[i].body, err = os.ReadFile(filepath.Join("testdata/pages", labels[i].Page+".html")); err != nil {
			t.Fatal(err)
		}
	}
	return labels
}

// get serves the page, and a page with a heading at every other URL.
func (l label) get(_ context.Context, rawURL, kind string) (extract.Page, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return extract.Page{}, err
	}
	body := l.body
	if rawURL != l.URL {
		body = []byte("<main><h1>A separate page</h1><p>It has some words about one thing and nothing else.</p></main>")
	}
	return extract.Page{URL: u, Requested: rawURL, Kind: kind, Status: http.StatusOK, Header: http.Header{}, Body: body, FetchedAt: time.Now()}, nil
}

// compare drafts a definition and returns for each label the difference of the extracted value, or "".
func (l label) compare(t *testing.T) map[string]string {
	t.Helper()
	u, err := url.Parse(l.URL)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Write(t.Context(), l.get, u)
	if err != nil {
		t.Logf("%s: %v", l.Page, err)
		d = &Draft{Def: &definition.Definition{}, Views: make([]sample.View, 1)}
	}
	root, err := html.Parse(bytes.NewReader(l.body))
	if err != nil {
		t.Fatal(err)
	}
	view := d.Views[0]
	each, got := "", []*html.Node(nil)
	for _, r := range d.Def.Records {
		if !r.Each.IsZero() {
			each, got = r.Name, r.Each.All(root)
		}
	}
	out := map[string]string{}
	kind := definition.KindDetail
	if each != "" {
		kind = definition.KindListing
	}
	out["kind"] = differ(kind, l.Kind)
	items := selectAll(l.Items.CSS, root)
	if l.Kind == definition.KindListing {
		if len(items) != l.Items.Count {
			t.Fatalf("%s: the label's selector finds %d items, want %d", l.Page, len(items), l.Items.Count)
		}
		out["items"] = differItems(got, items, len(view.Records))
	}
	if l.Link != "" {
		out["links"] = differ(strings.Join(view.Links, " "), strings.Join(linksOf(u, items, l.Link), " "))
	}
	out["next"] = differ(sorted(view.Next), sorted(l.Next))
	for name, want := range l.Fields {
		out["field "+name] = "no field is " + want
		if len(view.Records) > 0 && holds(t, view.Records[0], name, want) {
			out["field "+name] = ""
		}
	}
	return out
}

func differ(got, want string) string {
	if got == want {
		return ""
	}
	return fmt.Sprintf("got %q, want %q", got, want)
}

// differItems compares elements in order. An element and its only relevant descendant are the same item.
func differItems(got, want []*html.Node, records int) string {
	if len(got) != len(want) || records != len(want) {
		return fmt.Sprintf("got %d elements and %d records, want %d", len(got), records, len(want))
	}
	for i, n := range got {
		if !inside(n, want[i]) && !inside(want[i], n) {
			return fmt.Sprintf("element %d is another", i)
		}
	}
	return ""
}

func inside(n, outer *html.Node) bool {
	for ; n != nil; n = n.Parent {
		if n == outer {
			return true
		}
	}
	return false
}

// linksOf returns the first links of each item, like a sample.
func linksOf(base *url.URL, items []*html.Node, css string) []string {
	var out []string
	for _, n := range items {
		for _, a := range selectAll(css, n)[:1] {
			u, err := base.Parse(value(a, "href"))
			if err == nil && !slices.Contains(out, "detail "+u.String()) {
				out = append(out, "detail "+u.String())
			}
		}
	}
	return out
}

// sorted returns a URL with its query in order.
func sorted(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.RawQuery == "" {
		return rawURL
	}
	u.RawQuery = u.Query().Encode()
	return u.String()
}

// holds reports whether a field of a record has the value of a label.
func holds(t *testing.T, record json.RawMessage, name, want string) bool {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(record, &fields); err != nil {
		t.Fatal(err)
	}
	for _, v := range fields {
		if price, ok := v.(map[string]any); ok && name == "price" && fmt.Sprint(price["amount"]) == want {
			return true
		}
		if s, ok := v.(string); ok && (s == want || name == "date" && strings.HasPrefix(s, want)) {
			return true
		}
	}
	return false
}
