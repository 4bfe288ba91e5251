package extract

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/sites/definition"
)

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
			res, err := Run(def, doc)
			testutil.Ok(t, err)
			records := []object{}
			for _, r := range res.Records {
				records = append(records, r.Fields)
			}
			var links []string
			for _, l := range res.Links {
				links = append(links, l.URL)
			}
			got, err := json.Marshal(records)
			testutil.Ok(t, err)
			if string(got) != c.want || !slices.Equal(links, c.links) {
				t.Errorf("got %s %v, want %s %v", got, links, c.want, c.links)
			}
		})
	}
}
