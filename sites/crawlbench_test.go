package sites

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"muster/sites/definition"
)

// BenchmarkCrawl scrapes 2,000 pages that take 10 ms each with eight in flight: detail pages of listing pages, and detail
// pages that lead to detail pages. The ideal is 2.5 s.
func BenchmarkCrawl(b *testing.B) {
	const pages, atOnce, perList = 2000, 8, 50
	const took = 10 * time.Millisecond
	for name, c := range map[string]struct {
		yaml string
		page func(w http.ResponseWriter, r *http.Request)
	}{
		"listing": {"start: [/list/0]\nlisting: {next: a.next, links: a.item}\n", func(w http.ResponseWriter, r *http.Request) {
			var list, item int
			if scan(r.URL.Path, "/list/%d", &list) {
				for i := range perList - 1 {
					fmt.Fprintf(w, `<a class=item href="/item/%d">item</a>`, list*perList+i)
				}
				if (list+1)*perList < pages {
					fmt.Fprintf(w, `<a class=next href="/list/%d">next</a>`, list+1)
				}
				return
			}
			_, _ = fmt.Sscanf(r.URL.Path, "/item/%d", &item)
			fmt.Fprintf(w, "<html><h1>Page %d</h1><p>some words about the item</p>", item)
		}},
		"detail": {"start: [{url: /p/1, as: detail}]\ndetail: {links: [{css: a, as: detail}]}\n", tree(pages)},
	} {
		b.Run(name, func(b *testing.B) {
			site := newMeasured(b, took, c.page)
			def, err := definition.Parse("bench.yaml", fmt.Appendf(nil, "site: bench\nbase_url: %s\npoliteness: {delay: 0, max_per_domain: %d, robots: false}\n%s%s", site.URL, atOnce, c.yaml, pageRecords))
			if err != nil {
				b.Fatal(err)
			}
			s, _ := startBench(b, def)
			for b.Loop() {
				run, err := s.Send(b.Context(), def.Site, ScrapeOptions{})
				if err != nil {
					b.Fatal(err)
				}
				if sum, err := run.Wait(b.Context()); err != nil || sum.Pages != pages {
					b.Fatalf("got %d pages, error %v, want %d", sum.Pages, err, pages)
				}
			}
			b.ReportMetric(float64(b.N)*float64(pages/atOnce)*took.Seconds()/b.Elapsed().Seconds(), "of-ideal")
		})
	}
}
