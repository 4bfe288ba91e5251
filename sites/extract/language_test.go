package extract

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"muster/internal/testutil"
	"muster/sites/definition"
)

const manyPrices = `records:
  item:
    each: li
    fields:
      price: {css: .price, type: price}
      date: {css: .date, type: date}
`

// A page may have thousands of prices and dates and no language. Searching the whole tree for each would take quadratic time.
func TestDocumentIsSearchedOnceForItsLanguage(t *testing.T) {
	t.Parallel()
	def := define(t, manyPrices)
	d := page(t, def, definition.KindDetail, "http://shop.example/p/1", "<html><body><ul><li><b class=price>5</b></ul>")
	_, err := Run(def, d)
	testutil.Ok(t, err)
	root := firstWith(d.Root, "html", "")
	root.Attr = append(root.Attr, html.Attribute{Key: "lang", Val: "de"}) // a second search would find it
	if got := d.Language(); got != "" {
		t.Errorf("got language %q after the first search found none, want none: the tree was searched again", got)
	}
}

func BenchmarkPricesAndDatesWithoutLanguage(b *testing.B) {
	def := define(b, manyPrices)
	at, err := url.Parse("http://shop.example/p")
	testutil.Ok(b, err)
	for _, items := range []int{1000, 8000} {
		item := "<li><b class=price>€ 1,234.50</b><i class=date>3 May 2024</i>" + strings.Repeat("<p>words</p>", 12) + "</li>"
		body := []byte("<html><body><ul>" + strings.Repeat(item, items) + "</ul>")
		b.Run(fmt.Sprint(items), func(b *testing.B) {
			for b.Loop() {
				d, err := Parse(def, Page{URL: at, Kind: definition.KindDetail, Header: http.Header{}, Body: body})
				testutil.Ok(b, err)
				if res, err := Run(def, d); err != nil || len(res.Records) != items {
					b.Fatalf("got %d records and error %v, want %d", len(res.Records), err, items)
				}
			}
		})
	}
}
