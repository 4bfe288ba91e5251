package crawl

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"muster/sites/internal/sitetest"
	"muster/sites/report"
)

// A site stops at its limits, which count pages of each kind: a calendar with links to the next and the previous month, listing pages
// with new links in each response, and a page with many links. The report has the number of remaining pages.
func TestSitesWithoutAnEnd(t *testing.T) {
	t.Parallel()
	const lists = "start: [/list/0]\nlisting: {next: a.next, links: [{css: a.to, as: listing}]}\nrecords: {month: {from: listing, fields: {n: {css: h1, required: true}}}}\n"
	many := func(w http.ResponseWriter, _, _ int) {
		for i := range 200 {
			fmt.Fprintf(w, `<a href="/item/%d">item</a>`, i)
		}
	}
	for name, c := range map[string]struct {
		page        func(w http.ResponseWriter, n, request int)
		limit, rest string
		pages       int
		problem     string
	}{
		"calendar": {func(w http.ResponseWriter, n, _ int) {
			fmt.Fprintf(w, `<a class=next href="/list/%d">next</a><a class=to href="/list/%d">previous</a>`, n+1, n-1)
		}, "max_depth: 20", lists, 41, "limits.max_depth (20) was reached: 2 pages were not fetched"},
		"random links": {func(w http.ResponseWriter, n, request int) {
			for i := range 10 {
				fmt.Fprintf(w, `<a class=to href="/list/%d">list</a>`, 1000*request+i)
			}
			fmt.Fprintf(w, `<a class=next href="/list/%d?at=%d">next</a>`, n, request)
		}, "max_pages: 80", lists, 80, "limits.max_pages (80) was reached"},
		"links of a detail page":  {many, "max_pages: 50", "start: [{url: /, as: detail}]\ndetail: {links: [{css: a, as: detail}]}\n" + sitetest.PageRecords, 50, "limits.max_pages (50) was reached: 151 pages were not fetched"},
		"links of a listing page": {many, "max_pages: 50", "start: [/]\nlisting: {links: a}\n" + sitetest.PageRecords, 50, "limits.max_pages (50) was reached: 151 pages were not fetched"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var site *sitetest.Measured
			site = sitetest.NewMeasured(t, 0, func(w http.ResponseWriter, r *http.Request) {
				n := 0
				_, _ = fmt.Sscanf(r.URL.Path, "/list/%d", &n)
				fmt.Fprintf(w, "<h1>%s</h1>%s", r.URL.Path, sitetest.Words)
				_, requests, _ := site.Counts()
				c.page(w, n, requests)
			})
			sum := scrapeOn(t, 1, "site: endless\nbase_url: "+site.URL+"\nlimits: {"+c.limit+"}\n"+sitetest.Impatient+c.rest)
			if _, requests, most := site.Counts(); requests != c.pages || sum.Pages != c.pages || most != 1 || sum.Status != report.StatusIncomplete || !strings.Contains(fmt.Sprint(sum.Missing), c.problem) || !strings.Contains(sum.Text(), c.problem) {
				t.Errorf("got %d requests, up to %d of a page, %s, %v; want %d, 1, INCOMPLETE, %q", requests, most, sum.Status, sum.Missing, c.pages, c.problem)
			}
		})
	}
}
