package crawl

import (
	"fmt"
	"net/http"
	"testing"

	"muster/sites/fetch"
	"muster/sites/internal/sitetest"
)

// A page with markup but without text is empty.
func TestEmptyPages(t *testing.T) {
	t.Parallel()
	site := sitetest.NewMeasured(t, 0, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			fmt.Fprint(w, "<a href=/item/1>item</a><a href=/item/2>item</a>")
			return
		}
		fmt.Fprint(w, `<html><head><title>x</title></head><body><div> </div><script>1</script></body></html>`)
	})
	sum := scrapeOn(t, 1, "site: empty\nbase_url: "+site.URL+"\nstart: [/]\nlisting: {links: a}\n"+sitetest.Impatient+"records: {item: {from: listing, each: a, fields: {name: a}}}\n")
	if got := sum.ByClass[fetch.Empty]; got != 2 {
		t.Errorf("got %d empty pages, want 2: %v", got, sum.ByClass)
	}
}

// A page whose canonical URL is another page of the job yields the record of that page. A canonical URL of a listing page, of a
// page outside the job or of another host is ignored; alternates in other languages are separate pages.
func TestCanonicalPagesCountOnce(t *testing.T) {
	t.Parallel()
	canonical := map[string]string{
		"/item/1": "/item/1", "/item/1?color=red": "/item/1", "/item/2?from=home": "/item/2#top", "/item/3": "/", "/item/4": "/item/99",
		"/en/item/5": "/en/item/5", "/de/item/5": "/de/item/5", "/item/6": "http://other.example/item/1", "/item/2": "",
	}
	site := sitetest.NewMeasured(t, 0, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			for path := range canonical {
				fmt.Fprintf(w, `<a href="%s">item</a>`, path)
			}
			return
		}
		fmt.Fprintf(w, `<head><link rel="canonical" href="%s"><link rel="alternate" hreflang="de" href="/de/item/5"></head><h1>Item</h1><p>%s</p>`, canonical[r.URL.RequestURI()], r.URL.RequestURI())
	})
	sum := scrapeOn(t, 1, "site: copies\nbase_url: "+site.URL+"\nstart: [/]\nlisting: {links: a}\n"+sitetest.Impatient+"records: {item: {fields: {name: h1, path: p}}}\n")
	if sum.Pages != 10 || sum.Records != 7 || sum.Duplicates != 2 {
		t.Errorf("got %d pages, %d records, %d copies; want 10, 7, 2: %+v", sum.Pages, sum.Records, sum.Duplicates, sum)
	}
}
