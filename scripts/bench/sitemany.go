package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/sites"
	"muster/sites/definition"
)

const (
	sitemaps   = 20
	perSitemap = 50_000
)

// million queues a million pages, and returns what the process held at most,
// in bytes, and what Redis holds for each page.
func million(ctx context.Context, l *lab) (process, perURL float64, err error) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		switch {
		case r.URL.Path == "/sitemap.xml":
			fmt.Fprint(w, "<sitemapindex>")
			for i := range sitemaps {
				fmt.Fprintf(w, "<sitemap><loc>http://million.example/sitemap/%d.xml</loc></sitemap>", i)
			}
			fmt.Fprint(w, "</sitemapindex>")
		case scanInt(r.URL.Path, "/sitemap/%d.xml", &n):
			fmt.Fprint(w, "<urlset>")
			for i := range perSitemap {
				fmt.Fprintf(w, "<url><loc>http://million.example/catalogue/items/item-number-%d</loc></url>", n*perSitemap+i)
			}
			fmt.Fprint(w, "</urlset>")
		default:
			fmt.Fprintf(w, "<html><body><h1>%s</h1></body></html>", r.URL.Path) // a few, until the job is canceled
		}
	}))
	defer srv.Close()
	defer srv.CloseClientConnections()
	def, err := definition.Parse("million.yaml", []byte(`site: million.example
base_url: http://million.example
start: [{sitemap: /sitemap.xml}]
records: {item: {fields: {name: h1}}}
limits: {max_pages: 2000000}
politeness: {delay: 0, max_per_domain: 1, robots: false}
`))
	if err != nil {
		return 0, 0, err
	}
	dir, err := os.MkdirTemp("", "muster-bench-sites-")
	if err != nil {
		return 0, 0, fmt.Errorf("make a folder for records: %w", err)
	}
	defer os.RemoveAll(dir)
	s, end, err := siteService(ctx, l, dir, def)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	before, err := l.memory(ctx)
	if err != nil {
		return 0, 0, err
	}
	debug.FreeOSMemory()
	run, err := s.Send(ctx, def.Site, sites.ScrapeOptions{BaseURL: srv.URL})
	if err != nil {
		return 0, 0, err
	}
	for ctx.Err() == nil {
		process = max(process, held())
		p, err := s.Progress(ctx, def.Site, run.ID())
		if err != nil {
			return 0, 0, err
		}
		if all, _ := l.rdb.Get(ctx, "scrape_"+def.Site+":"+run.ID()+":total_chunks").Result(); p.Total >= sitemaps*perSitemap && all != "" && all != "0" {
			break
		}
		if job, err := s.Job(ctx, run.ID()); err == nil && job.Over() {
			return 0, 0, fmt.Errorf("with %d pages queued the job is %s: %s", p.Total, job.Status, job.Error)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return 0, 0, fmt.Errorf("with %d pages queued: %w", p.Total, context.Cause(ctx))
		}
	}
	after, err := l.memory(ctx)
	if err != nil {
		return 0, 0, err
	}
	return process, (after - before) / (sitemaps * perSitemap), errors.Join(ctx.Err(), s.Cancel(ctx, run.ID()))
}

func scanInt(s, format string, n *int) bool {
	_, err := fmt.Sscanf(s, format, n)
	return err == nil
}

// held is what this process has from the system, in bytes.
func held() float64 {
	m := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(m)
	return float64(m[0].Value.Uint64() - m[1].Value.Uint64())
}

// memory is what Redis uses, in bytes.
func (l *lab) memory(ctx context.Context) (float64, error) {
	text, err := l.rdb.Info(ctx, "memory").Result()
	if err != nil {
		return 0, fmt.Errorf("memory of Redis: %w", err)
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
			return strconv.ParseFloat(v, 64)
		}
	}
	return 0, errors.New("no used_memory in what Redis tells")
}

func queueMillion(ctx context.Context, l *lab) (float64, error) {
	process, _, err := million(ctx, l)
	return process / 1e6, err
}

func millionInRedis(ctx context.Context, l *lab) (float64, error) {
	_, perURL, err := million(ctx, l)
	return perURL, err
}

const (
	manySites = 4
	manyPages = 1000
)

// scrapeMany scrapes four sites at once, with or without a fifth that always
// asks to come back later, and returns the pages per second of the four.
func scrapeMany(ctx context.Context, l *lab, backoff bool) (_ float64, err error) {
	var defs []*definition.Definition
	var servers []*httptest.Server
	defer func() {
		for _, srv := range servers {
			srv.Close()
		}
	}()
	add := func(name string, h http.HandlerFunc) error {
		srv := httptest.NewServer(h)
		servers = append(servers, srv)
		def, err := definition.Parse(name+".yaml", fmt.Appendf(nil, `site: %s
base_url: %s
start: [/list]
listing: {links: a}
records: {item: {fields: {name: {css: h1, required: true}}}}
politeness: {delay: 0, max_per_domain: 4, robots: false}
`, name, srv.URL))
		defs = append(defs, def)
		return err
	}
	filler := strings.Repeat("<p>some words of a page that nobody asked for</p>", 100)
	for i := range manySites {
		if err := add(fmt.Sprintf("site%d.example", i), func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/list" {
				for n := range manyPages {
					fmt.Fprintf(w, `<a href="/item/%d">item</a> `, n)
				}
				return
			}
			fmt.Fprintf(w, "<html><body><h1>%s</h1>%s</body></html>", r.URL.Path, filler)
		}); err != nil {
			return 0, err
		}
	}
	if backoff {
		if err := add("busy.example", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}); err != nil {
			return 0, err
		}
	}
	dir, err := os.MkdirTemp("", "muster-bench-sites-")
	if err != nil {
		return 0, fmt.Errorf("make a folder for records: %w", err)
	}
	defer os.RemoveAll(dir)
	s, end, err := siteService(ctx, l, dir, defs...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	if backoff {
		if _, err := s.Send(ctx, "busy.example", sites.ScrapeOptions{}); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	var g errgroup.Group
	var mu sync.Mutex
	records := 0
	for i := range manySites {
		g.Go(func() error {
			run, err := s.Send(ctx, fmt.Sprintf("site%d.example", i), sites.ScrapeOptions{})
			if err != nil {
				return err
			}
			sum, err := run.Wait(ctx)
			mu.Lock()
			records += sum.Records
			mu.Unlock()
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	if records != manySites*manyPages {
		return 0, fmt.Errorf("scraped %d records, want %d", records, manySites*manyPages)
	}
	return manySites * manyPages / time.Since(began).Seconds(), nil
}

func besideBackoff(ctx context.Context, l *lab) (float64, error)  { return scrapeMany(ctx, l, true) }
func withoutBackoff(ctx context.Context, l *lab) (float64, error) { return scrapeMany(ctx, l, false) }
