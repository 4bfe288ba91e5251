package crawl

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks"
)

// scrapeOn scrapes a site on workers of several processes with four slots each.
func scrapeOn(t *testing.T, processes int, yaml string, change ...func(*Config)) report.Summary {
	t.Helper()
	def := sitetest.Parse(t, []byte(yaml))
	rdb := redistest.New(t)
	var first *Worker
	for range processes {
		client := tasks.NewClient(rdb)
		t.Cleanup(func() { _ = client.Close() })
		cfg := Config{Client: client, OutDir: t.TempDir(), Logger: noLog}
		for _, f := range change {
			f(&cfg)
		}
		s := testutil.Must(New(cfg))(t)
		work(t, client, s)
		if first == nil {
			first = s
		}
	}
	run := testutil.Must(store.Scrape(requestOf(t, def, first.cfg.OutDir, ScrapeOptions{})).Send(t.Context(), first.cfg.Client))(t)
	sum := testutil.Must(run.Wait(t.Context()))(t)
	return sum
}

// tree serves the pages of a binary tree, which link to their children.
func tree(nodes int) func(w http.ResponseWriter, r *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		n := 1
		_, _ = fmt.Sscanf(r.URL.Path, "/p/%d", &n)
		fmt.Fprintf(w, "<html><h1>Page %d</h1><p>%s</p>", n, strings.Repeat("words ", 40))
		for _, child := range []int{2 * n, 2*n + 1} {
			if child <= nodes {
				fmt.Fprintf(w, `<a href="/p/%d">child</a>`, child)
			}
		}
	}
}

// Pages of every kind are in flight concurrently, and never more over all processes than the limit of the site and Config.MaxPages.
func TestPagesInFlight(t *testing.T) {
	t.Parallel()
	const perDomain, n = 6, 120
	starts := make([]string, n)
	for i := range starts {
		starts[i] = fmt.Sprintf("/p/%d", 1000+i)
	}
	for name, yaml := range map[string]string{
		"detail pages that lead to detail pages":   "start: [{url: /p/1, as: detail}]\ndetail: {links: [{css: a, as: detail}]}\n" + sitetest.PageRecords,
		"listing pages only":                       "start: [" + strings.Join(starts, ", ") + "]\nrecords: {page: {from: listing, key: [name], fields: {name: {css: h1, required: true}}}}\n",
		"listing pages that lead to listing pages": "start: [/p/1]\nlisting: {links: [{css: a, as: listing}]}\nrecords: {page: {from: listing, key: [name], fields: {name: {css: h1, required: true}}}}\n",
	} {
		for _, c := range []struct{ processes, atOnce, peak int }{{1, 0, perDomain}, {3, 0, perDomain}, {3, 4, 4}} {
			t.Run(fmt.Sprintf("%s, %d processes, %d at once", name, c.processes, c.atOnce), func(t *testing.T) {
				t.Parallel()
				site := sitetest.NewMeasured(t, 20*time.Millisecond, tree(n))
				sum := scrapeOn(t, c.processes, fmt.Sprintf("site: tree\nbase_url: %s\npoliteness: {delay: 0, robots: false, max_per_domain: %d}\n%s", site.URL, perDomain, yaml), func(cfg *Config) { cfg.MaxPages = c.atOnce })
				peak, requests, most := site.Counts()
				if sum.Records != n || sum.Status != report.StatusComplete || requests != n || most != 1 {
					t.Errorf("got %d records, %s, %d requests, up to %d of a page, want %d, COMPLETE, and one request each", sum.Records, sum.Status, requests, most, n)
				}
				if peak != c.peak {
					t.Errorf("got up to %d pages in flight, want %d", peak, c.peak)
				}
			})
		}
	}
}

// A hanging listing page does not stop the others.
func TestListingPageThatHangs(t *testing.T) {
	t.Parallel()
	const lists = 40
	hang, hanging := make(chan struct{}), make(chan struct{}, 10)
	site := sitetest.NewMeasured(t, time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/list/3" {
			hanging <- struct{}{}
			select {
			case <-hang:
			case <-r.Context().Done():
				return
			}
		}
		fmt.Fprintf(w, "<h1>%s</h1>%s", r.URL.Path, strings.Repeat("<p>words</p>", 40))
	})
	def := sitetest.Parse(t, fmt.Appendf(nil, "site: lists\nbase_url: %s\nstart: [{template: '/list/{n}', from: 1, to: %d}]\n"+
		"politeness: {delay: 0, robots: false, max_per_domain: 2}\nrecords: {page: {from: listing, key: [name], fields: {name: {css: h1, required: true}}}}\n", site.URL, lists))
	j := begin(t, newWorker(t, redistest.New(t)), "j", def, ScrapeOptions{})
	collect(t, j)
	ended := make(chan error, 1)
	go func() { ended <- crawlAs(t.Context(), j, "crawler") }()
	<-hanging
	testutil.Eventually(t, "all other listing pages are done", func() bool {
		stats, err := j.queue.Stats(t.Context())
		if err == nil && stats.Done < lists-1 && len(ended) == 0 { // its slice is over, and it waits for the page: another crawler continues
			_, _ = crawlOnce(t.Context(), j, "another")
		}
		return err == nil && stats.Done == lists-1
	})
	close(hang)
	testutil.Ok(t, <-ended)
	if sum := aggregate(t, j); sum.Records != lists {
		t.Errorf("got %d records, want %d", sum.Records, lists)
	}
}

// A listing page with the same links as an earlier one is a trap. The report names it unless its next page was found elsewhere.
func TestRepeatedListing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		links   func(page int) []int
		next    func(page int) string // "" for none
		pages   int
		missing string
	}{
		"new links on each page": {
			func(page int) []int { return []int{2 * page, 2*page + 1} },
			func(page int) string { return fmt.Sprint("/list/", page+1) }, 12 + 22, "[limits.max_depth (11) was reached: 3 pages were not fetched]",
		},
		"the same links in another order": {
			func(page int) []int {
				if page%2 == 0 {
					return []int{1, 2}
				}
				return []int{2, 1}
			},
			func(page int) string { return fmt.Sprint("/list/", page+1) }, 4, "[listing page %[1]s/list/1 has the same links as %[1]s/list/0, so its next page was not fetched]",
		},
		"pages without links": {
			func(int) []int { return nil },
			func(page int) string { return fmt.Sprint("/list/", page+1) }, 12, "[limits.max_depth (11) was reached: 1 page was not fetched]",
		},
		"the first page at two addresses": {
			func(page int) []int {
				if page < 2 {
					return []int{0, 1}
				}
				return []int{2, 3}
			},
			func(page int) string { return []string{"/list/2", "/list/2", ""}[page] }, 3 + 4, "[]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := sitetest.NewMeasured(t, 0, func(w http.ResponseWriter, r *http.Request) {
				var page int
				fmt.Fprintf(w, "<h1>%s</h1>%s", r.URL.Path, strings.Repeat("<p>words</p>", 40))
				if !sitetest.Scan(r.URL.Path, "/list/%d", &page) {
					return
				}
				for _, i := range c.links(page) {
					fmt.Fprintf(w, `<a class=item href="/item/%d">item</a>`, i)
				}
				if to := c.next(page); to != "" {
					fmt.Fprintf(w, `<a class=next href="%s">next</a>`, to)
				}
			})
			start := "start: [/list/0]\n"
			if name == "the first page at two addresses" {
				start = "start: [/list/0, /list/1]\n"
			}
			sum := scrapeOn(t, 1, "site: lists\nbase_url: "+site.URL+"\nlimits: {max_depth: 11}\npoliteness: {delay: 0, robots: false}\nlisting: {next: a.next, links: a.item}\n"+start+sitetest.PageRecords)
			want := c.missing
			if strings.Contains(want, "%") {
				want = fmt.Sprintf(want, site.URL)
			}
			if _, requests, _ := site.Counts(); requests != c.pages || fmt.Sprint(sum.Missing) != want {
				t.Errorf("got %d requests, %s; want %d, %s", requests, fmt.Sprint(sum.Missing), c.pages, want)
			}
		})
	}
}

// A waiting page uses at most 600 bytes in Redis.
func TestMemoryOfWaitingPages(t *testing.T) {
	t.Parallel()
	const pages = 20_000
	srv := redistest.Server(t)
	rdb := srv.Client()
	site := sitetest.NewShop(t, 1, 1)
	j := begin(t, newWorker(t, rdb), "j", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	used := func() (n int64) {
		info := testutil.Must(rdb.InfoMap(t.Context(), "memory").Result())(t)
		_, _ = fmt.Sscan(info["Memory"]["used_memory_dataset"], &n)
		return n
	}
	before := used()
	urls := make([]string, pages)
	for i := range urls {
		urls[i] = fmt.Sprintf("https://www.shop.example/catalogue/lamps/a-lamp-of-some-kind-%06d", i)
	}
	enqueue(t, j, urls...)
	if each := (used() - before) / pages; each > 600 {
		t.Errorf("got %d bytes per page, want at most 600", each)
	} else {
		t.Logf("%d bytes per page", each)
	}
}
