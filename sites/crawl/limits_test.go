package crawl

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/sites/definition"
	"muster/sites/internal/sitetest"
	"muster/sites/report"
)

// A job that reaches max_records is complete, reports the limit, and marks no unseen records as gone.
func TestMaxRecords(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 4, 5)
	s := newWorker(t, redistest.New(t))
	if sum := run(t, begin(t, s, "all", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})); sum.Records != 40 || len(sum.Limits) != 0 {
		t.Fatalf("without limits: got %+v, want 40 records", sum)
	}
	sum := run(t, begin(t, s, "some", site.Definition(t, "limits: {max_records: 7}\n"), ScrapeOptions{BaseURL: site.URL}))
	if sum.Status != report.StatusComplete || sum.Records != 7 || sum.Extracted != 7 || sum.Changes.Gone != 0 || len(sum.Missing) != 0 {
		t.Errorf("got %+v, want COMPLETE with 7 records, none gone or missing", sum)
	}
	if len(sum.Limits) != 1 || !strings.Contains(sum.Text(), "limits.max_records (7) was reached; there may be more") || !sum.Health.Limited {
		t.Errorf("got limits %v, want max_records in this text:\n%s", sum.Limits, sum.Text())
	}
	if asked, _ := site.Counts("/page/4"); asked != 1 {
		t.Errorf("got %d requests for the last page, want 1: the second is beyond the limit", asked)
	}
	sum = run(t, begin(t, s, "limited", site.Definition(t, "limits: {max_records: 7}\n"), ScrapeOptions{BaseURL: site.URL, Limit: 4}))
	if sum.Status != report.StatusComplete || sum.Records != 4 || sum.Changes.Gone != 0 || fmt.Sprint(sum.Limits) != "[the limit of the scrape (4) was reached]" {
		t.Errorf("with a limit of the scrape: got %+v, want COMPLETE with 4 records", sum)
	}
}

// A job that reaches max_total_bytes starts no more pages.
func TestMaxTotalBytes(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 2, 10)
	s := newWorker(t, redistest.New(t))
	sum := run(t, begin(t, s, "j1", site.Definition(t, "limits: {max_total_bytes: 3KiB}\n"), ScrapeOptions{BaseURL: site.URL}))
	if sum.Status != report.StatusIncomplete || sum.Bytes < 3<<10 || sum.Skipped != 0 || sum.Pages > 12 || sum.Pages == 0 {
		t.Errorf("got %+v, want INCOMPLETE with 1 to 12 pages of at least 3 KiB", sum)
	}
	if want := fmt.Sprintf("limits.max_total_bytes (3072) was reached, with %d bytes: ", sum.Bytes); len(sum.Missing) != 1 || !strings.HasPrefix(sum.Missing[0], want) {
		t.Errorf("got missing %v, want one with %q", sum.Missing, want)
	}
}

// A page that is counted twice, as after a crash, counts once.
func TestBudgetCountsAPageOnce(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBudget(rdb, "j1", definition.Limits{MaxRecords: 5}, 0)
		for i, step := range []struct {
			page          string
			records, want int
			over          bool
		}{{"a", 3, 3, false}, {"a", 3, 3, false}, {"b", 4, 2, true}, {"b", 4, 2, true}, {"c", 1, 0, true}, {"a", 3, 3, true}} {
			got, err := b.grant(t.Context(), step.page, step.records, 10)
			if err != nil || got != step.want {
				t.Fatalf("step %d: got %d, %v; want %d", i, got, err, step.want)
			}
			if reached, err := b.reached(t.Context()); err != nil || (len(reached) > 0) != step.over {
				t.Fatalf("step %d: got %v, error %v, want any: %v", i, reached, err, step.over)
			}
		}
	})
}

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
