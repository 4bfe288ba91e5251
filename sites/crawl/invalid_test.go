package crawl

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"muster/sites/fetch"
	"muster/sites/internal/sitetest"
	"muster/sites/report"
)

// A redirect loop between hosts ends at limits.redirects.
func TestRedirectLoopOverHosts(t *testing.T) {
	t.Parallel()
	var other *httptest.Server
	site := sitetest.NewMeasured(t, 0, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			fmt.Fprint(w, `<a href="/loop">loop</a><a href="/item">item</a>`)
		case "/loop":
			http.Redirect(w, r, other.URL+"/back", http.StatusFound)
		default:
			fmt.Fprint(w, "<h1>Item</h1>", sitetest.Words)
		}
	})
	other = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, site.URL+"/loop", http.StatusMovedPermanently)
	}))
	t.Cleanup(other.Close)
	sum := scrapeOn(t, 1, "site: loops\nbase_url: "+site.URL+"\nallow_addresses: [127.0.0.1]\nhosts: ["+strings.TrimPrefix(other.URL, "http://")+"]\nlimits: {redirects: 7}\nstart: [/]\nlisting: {links: a}\n"+sitetest.Impatient+sitetest.PageRecords)
	if _, requests, most := site.Counts(); sum.ByClass[fetch.Redirect] != 1 || sum.Records != 1 || sum.Errors != 1 || most > 5 || requests > 7 {
		t.Errorf("got %v, %d records, %d errors, %d requests, up to %d of a page; want one redirect error after 8 hops, and the other page", sum.ByClass, sum.Records, sum.Errors, requests, most)
	}
}

// Sitemaps of 50 MB, two indexes deep, are read up to limits.max_pages.
func TestLargeSitemaps(t *testing.T) {
	t.Parallel()
	const most = 60
	urls := 50_000
	if testing.Short() {
		urls = 5_000
	}
	var site *sitetest.Measured
	site = sitetest.NewMeasured(t, 0, func(w http.ResponseWriter, r *http.Request) {
		var n int
		switch {
		case r.URL.Path == "/index.xml" || sitetest.Scan(r.URL.Path, "/index/%d.xml", &n):
			to := "index/%d.xml"
			if n > 0 {
				to = "pages/%d.xml"
			}
			fmt.Fprint(w, "<sitemapindex>")
			for i := range 2 {
				fmt.Fprintf(w, "<sitemap><loc>%s/"+to+"</loc></sitemap>", site.URL, 2*n+i+1)
			}
			fmt.Fprint(w, "</sitemapindex>")
		case sitetest.Scan(r.URL.Path, "/pages/%d.xml", &n):
			fmt.Fprint(w, "<urlset>")
			entry := strings.Repeat(" ", 900)
			for i := range urls {
				fmt.Fprintf(w, "<url><loc>%s/item/%d/%d</loc><lastmod>2026-01-01</lastmod>%s</url>\n", site.URL, n, i, entry)
			}
			fmt.Fprint(w, "</urlset>")
		default:
			fmt.Fprintf(w, "<h1>%s</h1>%s", r.URL.Path, sitetest.Words)
		}
	})
	sum := scrapeOn(t, 1, fmt.Sprintf("site: maps\nbase_url: %s\nstart: [{sitemap: /index.xml}]\nlimits: {max_pages: %d, max_bytes: 60MiB}\n", site.URL, most)+sitetest.Impatient+sitetest.PageRecords)
	if _, requests, _ := site.Counts(); sum.Pages != most || requests != most || sum.Status != report.StatusIncomplete || len(sum.Missing) != 1 || !strings.Contains(sum.Missing[0], "limits.max_pages (60) was reached") {
		t.Errorf("got %d pages, %d requests, %s, %v; want %d, INCOMPLETE by max_pages", sum.Pages, requests, sum.Status, sum.Missing, most)
	}
}

// Infinite sites stop at their limits: a calendar with links to the next and the previous month, and listing pages with new links
// in each response.
func TestSitesWithoutAnEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		page    func(w http.ResponseWriter, n, request int)
		limit   string
		pages   int
		problem string
	}{
		"calendar": {func(w http.ResponseWriter, n, _ int) {
			fmt.Fprintf(w, `<a class=next href="/list/%d">next</a><a class=to href="/list/%d">previous</a>`, n+1, n-1)
		}, "max_depth: 20", 41, "limits.max_depth (20) was reached: 2 pages were not fetched"},
		"random links": {func(w http.ResponseWriter, n, request int) {
			for i := range 10 {
				fmt.Fprintf(w, `<a class=to href="/list/%d">list</a>`, 1000*request+i)
			}
			fmt.Fprintf(w, `<a class=next href="/list/%d?at=%d">next</a>`, n, request)
		}, "max_pages: 80", 80, "limits.max_pages (80) was reached"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var site *sitetest.Measured
			site = sitetest.NewMeasured(t, 0, func(w http.ResponseWriter, r *http.Request) {
				n := 0
				_, _ = fmt.Sscanf(r.URL.Path, "/list/%d", &n)
				fmt.Fprintf(w, "<h1>%d</h1>%s", n, sitetest.Words)
				_, requests, _ := site.Counts()
				c.page(w, n, requests)
			})
			sum := scrapeOn(t, 1, "site: endless\nbase_url: "+site.URL+"\nstart: [/list/0]\nlimits: {"+c.limit+"}\nlisting: {next: a.next, links: [{css: a.to, as: listing}]}\n"+sitetest.Impatient+
				"records: {month: {from: listing, fields: {n: {css: h1, required: true}}}}\n")
			if _, requests, most := site.Counts(); requests != c.pages || most != 1 || sum.Status != report.StatusIncomplete || !strings.Contains(fmt.Sprint(sum.Missing), c.problem) {
				t.Errorf("got %d requests, up to %d of a page, %s, %v; want %d, 1, INCOMPLETE, %q", requests, most, sum.Status, sum.Missing, c.pages, c.problem)
			}
		})
	}
}

// Links that differ in the order of parameters, the fragment, escapes or the case of the host lead to one page; links that differ
// in the case of the path lead to several.
func TestSpellingsOfALink(t *testing.T) {
	t.Parallel()
	var site *sitetest.Measured
	site = sitetest.NewMeasured(t, 0, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			fmt.Fprintf(w, "<h1>%s</h1>%s", r.URL.RequestURI(), sitetest.Words)
			return
		}
		host := strings.TrimPrefix(site.URL, "http://")
		for _, to := range []string{
			"/item?a=1&b=2", "/item?b=2&a=1", "/item?a=1&b=2#top", "/item?a=1&b=2&utm_source=mail", "/%69tem?a=1&b=2", "/x/../item?a=1&b=2",
			"HTTP://" + strings.ToUpper(host) + "/item?a=1&b=2", "?", "#", "/Item?a=1&b=2", "/item?A=1&b=2",
		} {
			fmt.Fprintf(w, `<a href="%s">item</a>`, to)
		}
	})
	sum := scrapeOn(t, 1, "site: spellings\nbase_url: "+site.URL+"\nstart: [/]\nlisting: {links: 'a[href*=tem]'}\n"+sitetest.Impatient+sitetest.PageRecords)
	if _, requests, _ := site.Counts(); sum.Records != 3 || requests != 4 || sum.Status != report.StatusComplete {
		t.Errorf("got %d records and %d requests, %s, want 3 and 4", sum.Records, requests, sum.Status)
	}
}

// Pages that change their kind between requests fail or yield their current content, and do not affect others.
func TestPagesThatChangeTheirKind(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string]int{}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.Path]++
		first := asked[r.URL.Path] == 1
		mu.Unlock()
		if n := 9; first && sitetest.Scan(r.URL.Path, "/item/%d", &n) && n < 4 { // fewer pages than open the breaker of the site
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		switch r.URL.Path {
		case "/":
			for i := range 8 {
				fmt.Fprintf(w, `<a class=item href="/item/%d">item</a>`, i)
			}
			fmt.Fprint(w, `<a class=next href="/more">next</a>`)
		case "/item/0": // a picture
			w.Header().Set("Content-Type", "image/png")
			_, _ = w.Write(bytes.Repeat([]byte("\x89PNG\r\n\x1a\n"), 100))
		case "/item/1": // the listing page
			http.Redirect(w, r, "/", http.StatusFound)
		case "/item/2": // JSON
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"name": "item 2", "words": ["and", "others"]}`)
		case "/item/3": // a sitemap
			w.Header().Set("Content-Type", "application/xml")
			fmt.Fprint(w, "<urlset><url><loc>/item/9</loc></url></urlset>")
		case "/more": // a detail page
			fmt.Fprint(w, "<h1>Not a list</h1>", sitetest.Words)
		default:
			fmt.Fprintf(w, "<h1>%s</h1>%s", r.URL.Path, sitetest.Words)
		}
	}))
	t.Cleanup(site.Close)
	sum := scrapeOn(t, 1, "site: kinds\nbase_url: "+site.URL+"\nstart: [/]\nlisting: {links: a.item, next: a.next}\n"+sitetest.Impatient+sitetest.PageRecords)
	want := map[fetch.Class]int{fetch.OK: 6, fetch.BadType: 1, fetch.Validate: 3}
	if sum.Records != 4 || fmt.Sprint(sum.ByClass) != fmt.Sprint(want) {
		t.Errorf("got %d records and %v, want 4 and %v: %+v", sum.Records, sum.ByClass, want, sum.Samples)
	}
}
