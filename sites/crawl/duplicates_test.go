package crawl

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"muster/sites/fetch"
	"muster/sites/internal/sitetest"
	"muster/sites/report"
	"muster/tasks/redistest"
)

// newSame returns a site of 12 items. Items 0 to 2 have distinct pages; the others share one body, in which {item} is the number.
func newSame(t *testing.T, body string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		var item int
		switch {
		case r.URL.Path == "/":
			for i := range 12 {
				_, _ = fmt.Fprintf(w, "<a class=to href=/item/%d>item</a>", i)
			}
		case !sitetest.Scan(r.URL.Path, "/item/%d", &item):
			http.NotFound(w, r)
		case item < 3:
			_, _ = fmt.Fprintf(w, "<h1>Item %d</h1><img src=/i%d.png>", item, item)
		default:
			_, _ = fmt.Fprint(w, strings.ReplaceAll(body, "{item}", fmt.Sprint(item)))
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func scrapeSame(t *testing.T, body, records string) report.Summary {
	t.Helper()
	def := sitetest.Parse(t, []byte("site: same\nbase_url: "+newSame(t, body).URL+"\nstart: [/]\nlisting: {links: a.to}\npoliteness: {delay: 0, robots: false}\nretries: {attempts: 0}\n"+records))
	return run(t, begin(t, newWorker(t, redistest.New(t)), "j", def, ScrapeOptions{}))
}

// A page with markup but without text is empty.
func TestEmptyPages(t *testing.T) {
	t.Parallel()
	sum := scrapeSame(t, `<html><head><title>x</title></head><body><div> </div><script>1</script></body></html>`, "records: {item: {from: listing, each: a, fields: {name: a}}}\n")
	if got := sum.ByClass[fetch.Empty]; got != 9 {
		t.Errorf("got %d empty pages, want 9: %v", got, sum.ByClass)
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
