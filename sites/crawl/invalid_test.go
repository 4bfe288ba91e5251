package crawl

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"muster/sites/internal/sitetest"
	"muster/sites/report"
)

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
