package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/sites"
	"muster/sites/definition"
	"muster/tasks"
)

const (
	sitemaps   = 20
	perSitemap = 50_000
)

// serveSitemaps serves a million URLs.
func serveSitemaps(w http.ResponseWriter, r *http.Request) {
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
}

func scanInt(s, format string, n *int) bool {
	_, err := fmt.Sscanf(s, format, n)
	return err == nil
}

// queued is the memory for a million queued pages: at most of the process, and of Redis for each page.
type queued struct{ megabytes, bytesPerURL float64 }

// queueMillion queues a million pages, and cancels the job.
func queueMillion(ctx context.Context, l *lab) (q queued, err error) {
	srv := httptest.NewServer(http.HandlerFunc(serveSitemaps))
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
		return queued{}, err
	}
	err = withSites(ctx, l, pagesAtOnce, []*definition.Definition{def}, func(s *sites.Service) error {
		before, err := l.info(ctx, "used_memory")
		if err != nil {
			return err
		}
		debug.FreeOSMemory()
		run, err := s.Send(ctx, def.Site, sites.ScrapeOptions{BaseURL: srv.URL})
		if err != nil {
			return err
		}
		for done := false; !done; {
			q.megabytes = max(q.megabytes, resident()/1e6)
			if done, err = isQueued(ctx, l, s, run.ID(), def.Site); err != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
		after, err := l.info(ctx, "used_memory")
		q.bytesPerURL = (after - before) / (sitemaps * perSitemap)
		return errors.Join(err, s.Cancel(ctx, run.ID()))
	})
	return q, err
}

// isQueued reports whether a job has queued all its pages and cut them into chunks.
func isQueued(ctx context.Context, l *lab, s *sites.Service, id, site string) (bool, error) {
	p, err := s.Progress(ctx, site, id)
	if err != nil {
		return false, err
	}
	if job, err := s.Job(ctx, id); err == nil && job.Over() {
		return false, fmt.Errorf("with %d pages queued the job is %s: %s", p.Total, job.Status, job.Error)
	}
	if ctx.Err() != nil {
		return false, fmt.Errorf("with %d pages queued: %w", p.Total, context.Cause(ctx))
	}
	chunks, _ := l.rdb.Get(ctx, "scrape_"+site+":"+id+":total_chunks").Int() // none before the first chunk
	return p.Total >= sitemaps*perSitemap && chunks > 0, nil
}

// itemSite starts a site with a list of pages, and calls fetched before it serves one.
func itemSite(name string, pages, atOnce int, fetched func()) (*httptest.Server, *definition.Definition, error) {
	filler := strings.Repeat("<p>some words of a page that no field reads</p>", 100)
	return startSite(name, atOnce, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/list" {
			for n := range pages {
				fmt.Fprintf(w, `<a href="/item/%d">item</a> `, n)
			}
			return
		}
		fetched()
		fmt.Fprintf(w, "<html><body><h1>%s</h1>%s</body></html>", r.URL.Path, filler)
	})
}

func startSite(name string, atOnce int, h http.HandlerFunc) (*httptest.Server, *definition.Definition, error) {
	srv := httptest.NewServer(h)
	def, err := definition.Parse(name+".yaml", fmt.Appendf(nil, `site: %s
base_url: %s
start: [/list]
listing: {links: a}
records: {item: {key: [name], fields: {name: {css: h1, required: true}}}}
politeness: {delay: 0, max_per_domain: %d, robots: false}
`, name, srv.URL, atOnce))
	if err != nil {
		srv.Close()
	}
	return srv, def, err
}

// scrapeMany scrapes four sites at once, with or without a fifth that answers each request with 429, and returns the
// pages per second of the four.
func scrapeMany(backoff bool) measureFunc {
	const busy, count, pages = "busy.example", 4, 1000
	return func(ctx context.Context, l *lab) (float64, error) {
		var defs []*definition.Definition
		for i := range count {
			srv, def, err := itemSite(fmt.Sprintf("site%d.example", i), pages, 4, func() {})
			if err != nil {
				return 0, err
			}
			defer srv.Close()
			defs = append(defs, def)
		}
		four := defs
		if backoff {
			srv, def, err := startSite(busy, 4, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			})
			if err != nil {
				return 0, err
			}
			defer srv.Close()
			defs = append(defs, def)
		}
		var took time.Duration
		err := withSites(ctx, l, pagesAtOnce*len(defs), defs, func(s *sites.Service) error {
			if backoff {
				if _, err := s.Send(ctx, busy, sites.ScrapeOptions{}); err != nil {
					return err
				}
			}
			began := time.Now()
			var g errgroup.Group
			for _, def := range four {
				g.Go(func() error {
					_, err := scrape(ctx, s, def.Site, pages)
					return err
				})
			}
			err := g.Wait()
			took = time.Since(began)
			return err
		})
		return count * pages / took.Seconds(), err
	}
}

// scrapeWithKills scrapes a site while the only worker process is killed again and again. It fails unless every record
// is there once. It returns the share of the pages in flight at the kills that were fetched twice.
func scrapeWithKills(ctx context.Context, l *lab) (share float64, err error) {
	const pages, kills = 2000, 20
	var fetched atomic.Int64
	srv, def, err := itemSite("killed.example", pages, pagesAtOnce, func() {
		fetched.Add(1)
		time.Sleep(5 * time.Millisecond) // else no page is in flight at a kill
	})
	if err != nil {
		return 0, err
	}
	defer srv.Close()
	client := tasks.NewClient(l.rdb)
	defer client.Close()
	err = withSites(ctx, l, 0, []*definition.Definition{def}, func(s *sites.Service) error {
		var files []string
		ended := make(chan error, 1)
		go func() {
			sum, err := scrape(ctx, s, def.Site, pages)
			files = sum.Files
			ended <- err
		}()
		workers, err := startChildren(ctx, l, childSite, 1)
		if err != nil {
			return err
		}
		defer workers.close()
		done := func() (int, error) {
			if len(ended) > 0 {
				return 0, errors.Join(errors.New("the scrape has ended"), <-ended)
			}
			return int(fetched.Load()), nil
		}
		expire := func(name string) error { return tasks.ExpireLeases(ctx, client, name) }
		if err := workers.killAll(ctx, kills, pages, done, expire); err != nil {
			return err
		}
		if err := <-ended; err != nil {
			return err
		}
		return checkRecords(files[0], pages)
	})
	return float64(fetched.Load()-pages) / (pagesAtOnce * kills), err
}

// checkRecords returns an error unless a file has one record of each page.
func checkRecords(file string, pages int) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	for n := range pages {
		if c := strings.Count(string(data), fmt.Sprintf(`"name":"/item/%d"`, n)); c != 1 {
			return fmt.Errorf("got %d records of item %d, want 1", c, n)
		}
	}
	return nil
}
