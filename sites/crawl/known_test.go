package crawl

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/internal/sitetest"
	"muster/sites/report"
)

// stock is a site with lists and a sitemap of items with prices.
type stock struct {
	*httptest.Server
	items, perList int
	worker         *Worker
	out            string

	mu       sync.Mutex // guards the fields below
	prices   map[int]int
	hidden   int            // item that is not in the lists
	modified map[int]string // lastmod in the sitemap
	whole    int            // responses with an item
	same     int            // responses with the status 304
	lists    int            // other responses
	jobs     int
}

func newStock(t *testing.T, items, perList int) *stock {
	s := &stock{items: items, perList: perList, worker: newWorker(t, redistest.New(t)), out: t.TempDir(), prices: map[int]int{}, modified: map[int]string{}, hidden: -1}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// set changes the site, and forgets the counts.
func (s *stock) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole, s.same, s.lists = 0, 0, 0
	change()
}

func (s *stock) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	if !sitetest.Scan(r.URL.Path, "/item/%d", &n) {
		s.lists++
		if r.URL.Path == "/sitemap.xml" {
			fmt.Fprint(w, "<urlset>")
			for i, at := range s.modified {
				fmt.Fprintf(w, "<url><loc>/item/%d</loc><lastmod>%s</lastmod></url>", i, at)
			}
			fmt.Fprint(w, "</urlset>")
			return
		}
		_ = sitetest.Scan(r.URL.Path, "/list/%d", &n)
		for i := n * s.perList; i < (n+1)*s.perList; i++ {
			if i != s.hidden {
				fmt.Fprintf(w, "<li><a href=/item/%d>item</a><b>%d</b></li>", i, s.prices[i])
			}
		}
		if (n+1)*s.perList < s.items {
			fmt.Fprintf(w, "<a class=next href=/list/%d>next</a>", n+1)
		}
		return
	}
	etag := fmt.Sprintf(`"%d-%d"`, n, s.prices[n])
	w.Header().Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		s.same++
		w.WriteHeader(http.StatusNotModified)
		return
	}
	s.whole++
	fmt.Fprintf(w, "<h1>Item %d</h1><p class=price>%d</p><a class=more href='/item/%d?more'>more</a><i>%s</i>", n, s.prices[n], n, sitetest.Words)
}

const stockYAML = `site: stock
base_url: %s
start: [/list/0]
listing:
  next: a.next
  links: [{each: li, css: a, carry: {price: b}}]
records:
  item: {key: [name], fields: {name: {css: h1, required: true}, price: {css: .price, type: integer}, listed: [{carry: price}]}}
politeness: {delay: 0, robots: false, max_per_domain: 8}
`

// scrape changes the stock and scrapes it. It checks the responses (items, unchanged items, lists; a negative number is any) and the
// changes of records.
func (s *stock) scrape(t *testing.T, name, yaml string, o ScrapeOptions, change func(), want [3]int, changes report.Changes) report.Summary {
	t.Helper()
	s.set(change)
	s.jobs++
	o.OutDir = s.out
	j := begin(t, s.worker, fmt.Sprint("j", s.jobs), sitetest.Parse(t, []byte(yaml)), o)
	testutil.Must(s.worker.recorder.Write(t.Context(), j.run))(t)
	testutil.Ok(t, j.awaitKnown(t.Context()))
	sum := run(t, j)
	for i, got := range []int{s.whole, s.same, s.lists} {
		if want[i] >= 0 && got != want[i] {
			t.Errorf("%s: got %d items, %d unchanged items and %d lists, want %v", name, s.whole, s.same, s.lists, want)
			break
		}
	}
	changes.File = sum.Changes.File
	if sum.Changes != changes {
		t.Errorf("%s: got changes %+v, want %+v", name, sum.Changes, changes)
	}
	if sum.Health.Status != report.Healthy {
		t.Errorf("%s: got health %+v, want healthy", name, sum.Health)
	}
	return sum
}

// Known pages are not fetched again, and their records remain.
func TestKnownPagesAreNotFetchedAgain(t *testing.T) {
	t.Parallel()
	const items = 300
	shop := newStock(t, items, 100)
	yaml := fmt.Sprintf(stockYAML, shop.URL)
	lines := func(sum report.Summary) []string {
		data := testutil.Must(os.ReadFile(sum.Files[0]))(t)
		return slices.Sorted(strings.Lines(string(data)))
	}
	week, asking := yaml+"refetch: 7d\n", yaml+"refetch: if-changed\n"
	first := shop.scrape(t, "first", week, ScrapeOptions{}, nothing, [3]int{items, 0, 3}, report.Changes{New: items})
	again := shop.scrape(t, "second", week, ScrapeOptions{}, nothing, [3]int{0, 0, 3}, report.Changes{Unchanged: items})
	if got, want := lines(again), lines(first); !slices.Equal(got, want) {
		t.Errorf("second: got records %v, want %v", got, want)
	}
	if again.Known != items || again.Pages != items+3 || again.Extracted != items || again.Status != report.StatusComplete || len(again.Health.Fields) != 3 {
		t.Errorf("second: got %+v, want %d known pages with the coverage of the fields", again, items)
	}
	shop.scrape(t, "a limit", week, ScrapeOptions{Limit: 150}, nothing, [3]int{0, 0, -1}, report.Changes{Unchanged: 150})
	shop.scrape(t, "another listing item", week, ScrapeOptions{}, func() { shop.prices[7] = 70 }, [3]int{1, 0, 3}, report.Changes{Changed: 1, Unchanged: items - 1})
	shop.scrape(t, "gone", week, ScrapeOptions{}, func() { shop.hidden = 5 }, [3]int{0, 0, 3}, report.Changes{Unchanged: items - 1, Gone: 1})
	shop.scrape(t, "back", week, ScrapeOptions{}, func() { shop.hidden = -1 }, [3]int{1, 0, 3}, report.Changes{New: 1, Unchanged: items - 1})
	shop.scrape(t, "full", week, ScrapeOptions{Full: true}, nothing, [3]int{items, 0, 3}, report.Changes{Unchanged: items})
	shop.scrape(t, "ETags", asking, ScrapeOptions{}, nothing, [3]int{0, items, 3}, report.Changes{Unchanged: items})
	other := strings.ReplaceAll(asking, "carry: price}]", "value: x}]")
	shop.scrape(t, "another definition", other, ScrapeOptions{}, nothing, [3]int{items, 0, 3}, report.Changes{Changed: items})
	other = strings.Replace(other, ", carry: {price: b}", "", 1)
	shop.scrape(t, "another ETag", other, ScrapeOptions{}, func() { shop.prices[9] = 90 }, [3]int{1, items - 1, 3}, report.Changes{Changed: 1, Unchanged: items - 1})
	testutil.Ok(t, os.Remove(filepath.Join(shop.out, "stock", "ledger", "item.ledger")))
	shop.scrape(t, "no ledger", other, ScrapeOptions{}, nothing, [3]int{items, 0, 3}, report.Changes{New: items})
}

// A lastmod in a sitemap saves the request for a page, or causes it.
func TestLastModifiedOfASitemap(t *testing.T) {
	t.Parallel()
	shop := newStock(t, 5, 5)
	yaml := strings.Replace(fmt.Sprintf(stockYAML, shop.URL), "start: [/list/0]", "start: [sitemap: /sitemap.xml]", 1)
	yaml = strings.NewReplacer(", carry: {price: b}", "", ", listed: [{carry: price}]", "").Replace(yaml)
	now := time.Now().Format(time.RFC3339)
	shop.modified = map[int]string{1: "2020-01-02", 2: "2020-01-02T03:04Z", 3: now, 4: "soon"}
	shop.scrape(t, "first", yaml+"refetch: if-changed\n", ScrapeOptions{}, nothing, [3]int{4, 0, 1}, report.Changes{New: 4})
	shop.scrape(t, "if-changed", yaml+"refetch: if-changed\n", ScrapeOptions{}, nothing, [3]int{0, 2, 1}, report.Changes{Unchanged: 4})
	shop.scrape(t, "7d", yaml+"refetch: 7d\n", ScrapeOptions{}, func() { shop.prices[3] = 30 }, [3]int{1, 0, 1}, report.Changes{Changed: 1, Unchanged: 3})
}

func nothing() {}
