package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/sites"
	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
	sitereport "muster/sites/report"
	"muster/tasks"
)

const (
	sitePages    = 10_000
	pagesAtOnce  = 8
	pagesPerList = 250
)

func siteQueues() map[string]int { return map[string]int{sites.Queue: 1} }

// registerSites returns a service whose handlers mux has. The caller closes it.
func registerSites(c *tasks.Client, mux *tasks.Mux, dir string, defs ...*definition.Definition) (*sites.Service, error) {
	s, err := sites.NewService(sites.Config{Client: c, Registry: sites.NewRegistry(defs...), OutDir: dir})
	if err != nil {
		return nil, err
	}
	s.Register(mux)
	return s, nil
}

// withSites calls use with a service that writes records, and a worker of so many slots for it: none for 0.
func withSites(ctx context.Context, l *lab, slots int, defs []*definition.Definition, use func(s *sites.Service) error) error {
	client := tasks.NewClient(l.rdb)
	defer client.Close()
	return withWriter(ctx, client, defs, func(mux *tasks.Mux, s *sites.Service) error {
		if slots == 0 {
			return use(s)
		}
		_, end, err := startWorker(ctx, client, mux, tasks.WorkerConfig{Queues: siteQueues(), Concurrency: slots})
		if err != nil {
			return err
		}
		return errors.Join(use(s), end())
	})
}

// withWriter calls use with a service that writes records, and the handlers that a worker for it needs.
func withWriter(ctx context.Context, client *tasks.Client, defs []*definition.Definition, use func(*tasks.Mux, *sites.Service) error) (err error) {
	dir, err := os.MkdirTemp("", "muster-bench-sites-")
	if err != nil {
		return fmt.Errorf("make a folder for records: %w", err)
	}
	defer os.RemoveAll(dir)
	mux := tasks.NewMux()
	s, err := registerSites(client, mux, dir, defs...)
	if err != nil {
		return err
	}
	defer s.Close()
	writing, stop := context.WithCancel(ctx)
	written := make(chan error, 1)
	go func() { written <- s.Run(writing) }()
	defer func() { stop(); err = errors.Join(err, <-written) }()
	return use(mux, s)
}

// scrape scrapes a site, and returns an error unless it yields so many records.
func scrape(ctx context.Context, s *sites.Service, site string, records int) (sitereport.Summary, error) {
	run, err := s.Send(ctx, site, sites.ScrapeOptions{})
	if err != nil {
		return sitereport.Summary{}, err
	}
	sum, err := run.Wait(ctx)
	if err == nil && (sum.Records != records || sum.Errors > 0 || sum.Status != sitereport.StatusComplete) {
		err = fmt.Errorf("scrape %s: got status %s, %d records and %d errors, want %d records and no error", site, sum.Status, sum.Records, sum.Errors, records)
	}
	return sum, err
}

const benchDefinition = `site: bench.example
base_url: %s
start: [/list/0]
listing: {next: a.next, links: .item a}
records:
  item:
    key: [sku]
    fields:
      sku: {css: '[data-sku]', attr: data-sku, required: true}
      name: {css: h1.name, required: true}
      price: {css: .price, type: price, locale: en}
      stock: {css: .stock, type: integer}
      rating: {css: .rating, attr: data-rating, type: number}
      tags: {css: .tags li, type: list}
      seller: [.seller b, .shop]
      text: .description p
politeness: {delay: 0, max_per_domain: %d, robots: false}
`

// benchSite has sitePages pages of about 30 kB and the lists that lead to them.
func benchSite() (*httptest.Server, *definition.Definition, error) {
	filler := strings.Repeat(`<div class="row"><span class="cell">some words of a page that no field reads</span><a href="/x">more</a></div>`, 260)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind, num, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		n, _ := strconv.Atoi(num)
		if kind == "list" {
			fmt.Fprint(w, "<html><body>")
			for i := n * pagesPerList; i < (n+1)*pagesPerList; i++ {
				fmt.Fprintf(w, `<p class=item><a href="/item/%d">item</a></p>`, i)
			}
			if (n+1)*pagesPerList < sitePages {
				fmt.Fprintf(w, `<a class=next href="/list/%d">next</a>`, n+1)
			}
			return
		}
		fmt.Fprintf(w, `<html><head><title>Item %d</title></head><body>%s<div data-sku="S%d"><h1 class=name>Item %d</h1><p class=price>£%d.99</p><p class=stock>%d left</p>
<i class=rating data-rating="4.5"></i><ul class=tags><li>a<li>b</ul><p class=shop>Shop</p><div class=description><p>text of the item</p></div></div></body></html>`, n, filler, n, n, n, n)
	}))
	def, err := defineBenchSite(srv.URL)
	if err != nil {
		srv.Close()
	}
	return srv, def, err
}

func defineBenchSite(url string) (*definition.Definition, error) {
	return definition.Parse("bench.yaml", fmt.Appendf(nil, benchDefinition, url, pagesAtOnce))
}

// scrapeSite scrapes the site as an operator does: listing pages, every page an item with a durable
// state, records to JSONL.
func scrapeSite(ctx context.Context, l *lab) (float64, error) {
	srv, def, err := benchSite()
	if err != nil {
		return 0, err
	}
	defer srv.Close()
	var took time.Duration
	err = withSites(ctx, l, pagesAtOnce, []*definition.Definition{def}, func(s *sites.Service) error {
		began := time.Now()
		_, err := scrape(ctx, s, def.Site, sitePages)
		took = time.Since(began)
		return err
	})
	return sitePages / took.Seconds(), err
}

// scrapeInMemory fetches the pages and extracts their records, and stores nothing.
func scrapeInMemory(ctx context.Context, _ *lab) (float64, error) {
	srv, def, err := benchSite()
	if err != nil {
		return 0, err
	}
	defer srv.Close()
	client := fetch.NewClient(fetch.Config{Definition: def})
	began := time.Now()
	var records atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(pagesAtOnce)
	for i := range sitePages {
		g.Go(func() error {
			page, err := client.Get(ctx, fmt.Sprintf("%s/item/%d", srv.URL, i), definition.KindDetail)
			if err != nil {
				return err
			}
			doc, err := extract.Parse(def, page)
			if err != nil {
				return err
			}
			res, err := extract.Run(def, doc)
			records.Add(int64(len(res.Records)))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	if records.Load() != sitePages {
		return 0, fmt.Errorf("got %d records, want %d", records.Load(), sitePages)
	}
	return sitePages / time.Since(began).Seconds(), nil
}
