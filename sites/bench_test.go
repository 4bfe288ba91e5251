package sites

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/tasks"
)

// BenchmarkScrape scrapes 1,000 pages of 30 kB, with one record each, over eight connections, and compares that with fetching and
// extracting the same pages in memory.
func BenchmarkScrape(b *testing.B) {
	const pages, atOnce = 1000, 8
	filler := strings.Repeat(`<div class="row"><span class="cell">words that no field reads</span><a href="/x">more</a></div>`, 300)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/list" {
			for n := range pages {
				fmt.Fprintf(w, `<p class=item><a href="/item/%d">item</a></p>`, n)
			}
			return
		}
		fmt.Fprintf(w, `<html><body>%s<h1 class=name>%s</h1><p class=price>£7.99</p><p class=stock>3 left</p></body></html>`, filler, r.URL.Path)
	}))
	defer site.Close()
	def, err := definition.Parse("bench.yaml", fmt.Appendf(nil, `site: bench.example
base_url: %s
start: [/list]
listing: {links: .item a}
records: {item: {key: [name], fields: {name: {css: h1.name, required: true}, price: {css: .price, type: price, locale: en}, stock: {css: .stock, type: integer}}}}
politeness: {delay: 0, max_per_domain: %d, robots: false}
`, site.URL, atOnce))
	testutil.Ok(b, err)
	s, client := startBench(b, def)
	redistest.Measured(b, client.Redis(), func() {
		for range b.N {
			run := testutil.Must(s.Send(b.Context(), def.Site, ScrapeOptions{}))(b)
			if sum, err := run.Wait(b.Context()); err != nil || sum.Records != pages {
				b.Fatalf("got %d records, error %v, want %d", sum.Records, err, pages)
			}
		}
	})
	b.ReportMetric(float64(pages*b.N)/b.Elapsed().Seconds(), "pages/s")
	fetcher := fetch.NewClient(fetch.Config{Definition: def})
	redistest.Baseline(b, "memory", func() {
		var all errgroup.Group
		all.SetLimit(atOnce)
		for i := range pages * b.N {
			all.Go(func() error {
				page, err := fetcher.Get(b.Context(), fmt.Sprintf("%s/item/%d", site.URL, i%pages), definition.KindDetail)
				if err != nil {
					return err
				}
				doc, err := extract.Parse(def, page)
				if err != nil {
					return err
				}
				_, err = extract.Run(def, doc)
				return err
			})
		}
		testutil.Ok(b, all.Wait())
	})
}

// startBench starts a service of a site and a worker on a dedicated Redis until the benchmark ends.
func startBench(b *testing.B, def *definition.Definition) (*Service, *tasks.Client) {
	b.Helper()
	client := tasks.NewClient(redistest.Server(b).Client())
	s := testutil.Must(NewService(NewRegistry(def), Config{Client: client, OutDir: b.TempDir(), Logger: noLog}))(b)
	b.Cleanup(func() { _ = s.Close() })
	mux := tasks.NewMux()
	s.Register(mux)
	worker := testutil.Must(tasks.StartWorker(b.Context(), client, mux, tasks.WorkerConfig{Queues: map[string]int{Queue: 1}, Concurrency: 8}))(b)
	b.Cleanup(func() { _ = worker.Stop() })
	testutil.Background(b, s.Run)
	return s, client
}
