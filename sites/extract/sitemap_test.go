package extract

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/sites/definition"
)

func TestSitemap(t *testing.T) {
	t.Parallel()
	def := define(t, "limits: {max_bytes: 1MB}\nrecords: {r: {fields: {v: b}}}\n")
	zip := func(s string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(s))
		_ = z.Close()
		return b.String()
	}
	const urls = `<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="http://x/image"><url><loc> http://shop.example/a?x=1&amp;y=2 </loc><image:image><image:loc>http://shop.example/i.png</image:loc></image:image></url><url><loc>http://other.example/b</loc></url><url><loc>/c</loc></url><url><loc>http://shop.example/c</loc></url></urlset>`
	xml := func(locs ...string) string {
		return "<urlset><url><loc>" + strings.Join(locs, "</loc></url><url><loc>") + "</loc></url></urlset>"
	}
	const outside = "http://other.example/x"
	for name, c := range map[string]struct {
		body, want, broken string
		outside            int
	}{
		"urls":                     {urls, "detail http://shop.example/a?x=1&y=2, detail http://shop.example/c", "", 1},
		"gzip":                     {zip(urls), "detail http://shop.example/a?x=1&y=2, detail http://shop.example/c", "", 1},
		"gzip twice":               {zip(zip(xml("/a"))) + "junk", "detail http://shop.example/a", "", 0},
		"gzip and zeros":           {zip(xml("/a")) + strings.Repeat("\x00", 500), "detail http://shop.example/a", "", 0},
		"gzip in two members":      {zip(xml("/a")[:12]) + zip(xml("/a")[12:]), "detail http://shop.example/a", "", 0},
		"index":                    {`<sitemapindex><sitemap><loc>http://shop.example/s1.xml.gz</loc></sitemap></sitemapindex>`, "sitemap http://shop.example/s1.xml.gz", "", 0},
		"text":                     {"http://shop.example/a\r\nhttp://shop.example/b\n# no\n/c", "detail http://shop.example/a, detail http://shop.example/b, detail http://shop.example/c", "", 0},
		"text with CR only":        {"http://shop.example/a\rhttp://shop.example/b\r", "detail http://shop.example/a, detail http://shop.example/b", "", 0},
		"text in UTF-16":           {string(encode(t, "utf-16le", "\uFEFFhttp://shop.example/é\n")), "detail http://shop.example/%C3%A9", "", 0},
		"XML in UTF-16":            {string(encode(t, "utf-16be", "\uFEFF"+`<?xml version="1.0" encoding="UTF-16"?>`+xml("/é"))), "detail http://shop.example/%C3%A9", "", 0},
		"XML in latin-1":           {string(encode(t, "windows-1252", `<?xml version="1.0" encoding="ISO-8859-1"?>`+xml("/é", "?q=é"))), "detail http://shop.example/%C3%A9, detail http://shop.example/sitemap.xml?q=%E9", "", 0},
		"cut":                      {urls[:len(urls)-30], "detail http://shop.example/a?x=1&y=2, detail http://shop.example/c", "the sitemap ends after 3 entries: XML syntax error on line 1: unexpected EOF", 1},
		"cut between entries":      {urls[:strings.LastIndex(urls, "<url>")], "detail http://shop.example/a?x=1&y=2, detail http://shop.example/c", "the sitemap ends after 3 entries: XML syntax error on line 1: unexpected EOF", 1},
		"control character":        {xml("/a", "/b\x01", "/c"), "detail http://shop.example/a", "the sitemap ends after 1 entries: XML syntax error on line 1: illegal character code U+0001", 0},
		"invalid byte":             {xml("/é", "/b", "/c\xff"), "detail http://shop.example/%C3%A9, detail http://shop.example/b, detail http://shop.example/c%EF%BF%BD", "", 0},
		"comment and CDATA in loc": {xml("http://shop.example/<!-- c -->p5", "<![CDATA[/p?a=1&b]]>=2"), "detail http://shop.example/p5, detail http://shop.example/p?a=1&b=2", "", 0},
		"login and fragment":       {xml("http://u:p@shop.example/a#b", "/a"), "detail http://shop.example/a", "", 0},
		"other host":               {xml(slices.Repeat([]string{outside}, 5_000)...), "", "", 1},
		"other scheme":             {xml("ftp://shop.example/x", outside, "/a"), "detail http://shop.example/a", "", 2},
		"empty set":                {"<urlset></urlset>", "", "", 0},
	} {
		u, _ := url.Parse("http://shop.example/sitemap.xml")
		res, err := Sitemap(def, Page{URL: u, Body: []byte(c.body)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, l := range res.Links {
			got = append(got, l.Kind+" "+l.URL)
		}
		if g := strings.Join(got, ", "); g != c.want || res.Broken != c.broken || res.Outside != c.outside {
			t.Errorf("%s: got %s, %q, %d outside, want %s, %q, %d", name, g, res.Broken, res.Outside, c.want, c.broken, c.outside)
		}
	}
	two := define(t, "records: {r: {fields: {v: b}}}\n")
	two.Start = []definition.Start{{Sitemap: "/a.xml", Allow: definition.Pattern{Regexp: regexp.MustCompile("/a")}}, {Sitemap: "/b.xml"}}
	u, _ := url.Parse("http://shop.example/sitemap.xml")
	for start, want := range map[int]int{0: 2, 1: 1, 2: 2, 3: 2, -1: 2} {
		if res, err := Sitemap(two, Page{URL: u, Start: start, Body: []byte(urls)}); err != nil || len(res.Links) != want {
			t.Errorf("of start %d: got %d links, %v, want %d", start, len(res.Links), err, want)
		}
	}
	for name, body := range map[string]string{"HTML": "<html><body>no</body></html>", "broken gzip": "\x1f\x8b\x00", "bomb": zip(strings.Repeat(" ", 2<<20)), "deep": strings.Repeat("<a>", 1000), "gzip three times": zip(zip(zip(urls))), "text without URLs": "Not found", "cut at the head": urls[:60]} {
		if res, err := Sitemap(def, Page{URL: u, Body: []byte(body)}); err == nil {
			t.Errorf("%s: got no error and %d links, want an error", name, len(res.Links))
		}
	}
}

func TestXML(t *testing.T) {
	t.Parallel()
	const fields = `
listing: {links: item > link}
records:
  r:
    from: listing
    each: item, a\:entry, product
    fields:
      title: [title, a\:title, name]
      link: {css: link, type: url}
      date: {css: pubDate, type: date}
      by: dc\:creator
      text: {css: description, type: html}
      media: media\:content::attr(url)
      id: {attr: id}
      price: {css: Price, type: price, locale: de}
`
	for _, c := range []struct {
		name, typ, body, want string
		links                 []string
	}{
		{"a feed", "application/rss+xml", "<?xml version='1.0'?><?xml-stylesheet href='x'?>\n<rss xmlns:dc='d' xmlns:media='m'><channel><title>Feed</title><link>/</link>" +
			"<item><title>A &amp; B</title><link>http://shop.example/1</link><pubDate>Sun, 03 May 2026 14:05:00 GMT</pubDate><dc:creator>Ann</dc:creator><description><![CDATA[<p>Hi <b>you</b></p>]]></description><media:content url='/a.jpg'/></item>" +
			"<item><title><![CDATA[C & D]]></title><link>/2</link><description>&lt;p&gt;x&lt;/p&gt;</description></item></channel></rss>",
			`[{"title":"A \u0026 B","link":"http://shop.example/1","date":"2026-05-03T14:05:00Z","by":"Ann","text":"\u003cp\u003eHi \u003cb\u003eyou\u003c/b\u003e\u003c/p\u003e","media":"/a.jpg"},{"title":"C \u0026 D","link":"http://shop.example/2","text":"\u003cp\u003ex\u003c/p\u003e"}]`,
			[]string{"http://shop.example/1", "http://shop.example/2"}},
		{"a feed with prefixes, declared as text", "text/plain", "<a:feed xmlns:a='http://www.w3.org/2005/Atom'><a:entry id=7><a:title>T</a:title></a:entry></a:feed>", `[{"title":"T","id":"7"}]`, nil},
		{"an API", "text/xml", "<r><product id='7'><Name>Lamp</Name><Price>1.234,50 €</Price><table/></product><product><Name>N&nbsp;\x01x & y</Name></products>",
			`[{"title":"Lamp","id":"7","price":{"amount":1234.5,"currency":"EUR"}},{"title":"N x \u0026 y"}]`, nil},
		{"HTML declared as XML", "text/xml", "<!doctype html><p><div><product><name>N<br></product>", `[{"title":"N"}]`, nil},
		{"XHTML", "application/xml", "<?xml version='1.0'?><html xmlns='x'><body><br><product><name>N</name></product>", `[{"title":"N"}]`, nil},
		{"deep XML", "text/xml", "<r>" + strings.Repeat("<a>", 5000) + "<product><name>N</name></product>", `[{"title":"N"}]`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			def := define(t, fields)
			u, _ := url.Parse("http://shop.example/feed")
			doc, err := Parse(def, Page{URL: u, Kind: definition.KindListing, Status: 200, Header: http.Header{"Content-Type": {c.typ}}, Body: []byte(c.body)})
			testutil.Ok(t, err)
			res := testutil.Must(Run(def, doc))(t)
			records := []object{}
			for _, r := range res.Records {
				records = append(records, r.Fields)
			}
			var links []string
			for _, l := range res.Links {
				links = append(links, l.URL)
			}
			got := testutil.Must(json.Marshal(records))(t)
			if string(got) != c.want || !slices.Equal(links, c.links) {
				t.Errorf("got %s %v, want %s %v", got, links, c.want, c.links)
			}
		})
	}
}
