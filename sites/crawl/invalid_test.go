package crawl

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"muster/sites/internal/sitetest"
	"muster/sites/report"
)

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
