package extract

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/sites/definition"
)

// bounded are hostile documents in formats other than HTML.
var bounded = map[string]struct{ typ, head, part, tail string }{
	"XML, nested":                 {"text/xml", "<?xml version='1.0'?><r>", "<a>", ""},
	"XML, ends without beginning": {"text/xml", "<?xml version='1.0'?><r>" + strings.Repeat("<b>", 390), "</a>", ""},
	"XML, text in pieces":         {"text/xml", "<?xml version='1.0'?><r><product><name>", "x<!---->", "</name></product></r>"},
	"XML, sections":               {"text/xml", "<?xml version='1.0'?><r>", "<![CDATA[x]]>", "</r>"},
	"XML, attributes":             {"text/xml", "<?xml version='1.0'?><r ", "a='x' ", "/>"},
	"XML, entities": {"text/xml", "<?xml version='1.0'?><!DOCTYPE r [<!ENTITY a 'xxxxxxxxxx'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;'><!ENTITY c '&b;&b;&b;&b;&b;&b;'>]><r>",
		"&c;", "</r>"},
	"XML, flat":      {"text/xml", "<?xml version='1.0'?><r>", "<p><name>x</name></p>", "</r>"},
	"JSON, arrays":   {"application/json", "", "[", ""},
	"JSON, closed":   {"application/json", strings.Repeat("[", 9000), "1,", "1" + strings.Repeat("]", 9000)},
	"JSON, objects":  {"application/json", "", `{"a":`, ""},
	"JSON, flat":     {"application/json", "[", `{"a":1},`, "{}]"},
	"JSON, a number": {"application/json", "[", "1", "]"},
	"JSON, escapes":  {"application/json", `{"a":"`, `\u0041`, `"}`},
	"CSV":            {"text/csv", "a,b\n", `"x,",y` + "\n", ""},
}

const boundedSize = 1 << 20

// most is the maximum of allocated bytes per byte of a document.
const most = 700

// The memory for a hostile document is proportional to its size. Not parallel: the test measures the memory of the whole process.
func TestMemoryForHostileDocumentsIsBoundedByTheirSize(t *testing.T) {
	page := define(t, everyWay)
	feed := define(t, "listing: {links: [item > link, product a]}\nrecords: {r: {from: listing, each: product, fields: {a: name, b: {css: name, type: html}, c: {css: '//name'}}}}\n")
	api := define(t, "listing: {format: json, links: [{json: '[*].url'}], next: {json: '[0].next'}}\nrecords: {r: {from: listing, each_json: '[*]', fields: {a: {json: a}, b: {json: 'a.a[*]'}}}}\n")
	for name, b := range bounded {
		body := []byte(b.head + strings.Repeat(b.part, boundedSize/len(b.part)) + b.tail)
		for as, def := range map[string]*definition.Definition{"a page": page, "a feed": feed, "an API": api} {
			costs(t, name+" as "+as, func() {
				u := testutil.Must(url.Parse("http://shop.example/p"))(t)
				d, err := Parse(def, Page{URL: u, Kind: definition.KindListing, Status: 200, Header: http.Header{"Content-Type": {b.typ}}, Body: body, FetchedAt: fetchedAt})
				if err == nil {
					_, _ = Run(def, d)
					MustHave(def, d)
				}
			})
		}
		costs(t, name+" as a sitemap", func() { sitemapOf(t, page, body) })
	}
	sitemaps := map[string]string{
		"nested":       "<urlset>" + strings.Repeat("<url>", boundedSize/5),
		"many alike":   "<urlset>" + strings.Repeat("<url><loc>/a</loc></url>", boundedSize/24),
		"loc in parts": "<urlset><url><loc>" + strings.Repeat("/a<!---->", boundedSize/9) + "</loc></url>",
		"lines":        strings.Repeat("http://shop.example/a\n", boundedSize/22),
	}
	for name, text := range sitemaps {
		costs(t, "sitemap, "+name, func() { sitemapOf(t, page, []byte(text)) })
	}
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 200 {
		_, _ = z.Write([]byte(strings.Repeat(" ", 1<<20)))
	}
	_ = z.Close()
	costs(t, "sitemap, a bomb in gzip", func() { sitemapOf(t, page, bomb.Bytes()) })
}

func sitemapOf(t testing.TB, def *definition.Definition, body []byte) {
	t.Helper()
	u := testutil.Must(url.Parse("http://shop.example/sitemap.xml"))(t)
	_, _ = Sitemap(def, Page{URL: u, Kind: definition.KindSitemap, Status: 200, Header: http.Header{}, Body: body})
}

// costs fails the test if do allocates much more than boundedSize.
func costs(t *testing.T, name string, do func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / boundedSize; got > most {
		t.Errorf("%s: got %d bytes allocated for each, want at most %d", name, got, most)
	} else if testing.Verbose() {
		t.Logf("%s: %d", name, got)
	}
}

func FuzzXMLAndJSON(f *testing.F) {
	for _, b := range bounded {
		f.Add([]byte(b.head+b.part+b.part+b.tail), b.typ)
	}
	def := define(f, "listing: {links: [item > link]}\nrecords: {r: {from: listing, each: product, fields: {a: name, b: {css: name, type: html}}}}\n")
	api := define(f, "listing: {format: json, links: [{json: '[*].url'}], next: {json: '[0].next'}}\nrecords: {r: {from: listing, each_json: '[*]', fields: {a: {json: a}, b: {json: 'a.a[*]'}}}}\n")
	f.Fuzz(func(t *testing.T, body []byte, typ string) {
		u := testutil.Must(url.Parse("http://shop.example/p"))(t)
		for _, def := range []*definition.Definition{def, api} {
			d, err := Parse(def, Page{URL: u, Kind: definition.KindListing, Status: 200, Header: http.Header{"Content-Type": {typ}}, Body: body, FetchedAt: fetchedAt})
			if err == nil {
				_, _ = Run(def, d)
			}
		}
		sitemapOf(t, def, body)
	})
}
