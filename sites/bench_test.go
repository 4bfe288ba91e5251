package sites

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
)

// BenchmarkPage reads one page of 30 kB with 8 fields, as a scrape does once
// the page is there.
func BenchmarkPage(b *testing.B) {
	def, err := definition.Parse("b.yaml", []byte(`site: b
base_url: http://b.example
start: [/]
records:
  item:
    key: [sku]
    fields:
      sku: {css: '[data-sku]', attr: data-sku, required: true}
      name: {css: h1.name, required: true}
      price: {css: .price, type: price, locale: en}
      stock: {css: .stock, type: integer}
      rating: {css: .rating, attr: data-rating, type: number}
      tags: {css: .tags li, type: list}
      seller: [.seller b, .shop]
      text: .description p
`))
	if err != nil {
		b.Fatal(err)
	}
	body := []byte(fmt.Sprintf(`<html><head><title>Item</title></head><body>%s<div data-sku="S1"><h1 class=name>Item</h1><p class=price>£1.99</p><p class=stock>1 left</p>
<i class=rating data-rating="4.5"></i><ul class=tags><li>a<li>b</ul><p class=shop>Shop</p><div class=description><p>text</p></div></div></body></html>`,
		strings.Repeat(`<div class="row"><span class="cell">some words of a page that nobody asked for</span><a href="/x">more</a></div>`, 260)))
	u, err := url.Parse("http://b.example/item/1")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		doc, err := extract.Parse(def, extract.Page{URL: u, Requested: u.String(), Kind: definition.KindDetail, Header: http.Header{}, Body: body})
		if err != nil {
			b.Fatal(err)
		}
		if err := fetch.Inspect(def, doc); err != nil {
			b.Fatal(err)
		}
		if res, err := extract.Run(def, doc); err != nil || len(res.Records) != 1 {
			b.Fatal(res, err)
		}
	}
}
