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
	"muster/tasks"
)

const (
	sitePages    = 10_000
	pagesAtOnce  = 8
	pagesPerList = 250
)

func siteRows() []row {
	return []row{
		// The yardstick fetches the same pages with as many connections and takes the same fields, in
		// memory: no Redis, no state, no files, no listing pages.
		{name: "sites.pages", unit: "pages/s", rounds: 3, bar: atLeast(0.5), measure: scrapeSite, yardstick: scrapeInMemory},
		// The peers scrape the site from its first list on, with as many connections and the same fields:
		// colly in memory, Scrapy to JSON lines.
		{name: "sites.pages_of_colly", unit: "pages/s", rounds: 3, bar: atLeast(0.5), measure: scrapeSite, yardstick: scrapeWithColly},
		{name: "sites.pages_of_scrapy", unit: "pages/s", rounds: 1, bar: atLeast(3), measure: scrapeSite, yardstick: scrapeWithScrapy},
		// What the process holds, the site included, while a million pages are queued.
		{name: "sites.queued_memory", unit: "MB", rounds: 1, bar: atMost(300), measure: queueMillion},
		{name: "sites.queued_redis", unit: "bytes/URL", rounds: 1, bar: reported, measure: millionInRedis},
		// Pages fetched twice, of those that were on the way when a worker process was killed, 20 times in
		// 2,000 pages. A record that is lost or there twice is an error.
		{name: "sites.kills", unit: "share", rounds: 1, bar: atMost(1), measure: surviveKills},
		// Four sites, beside a fifth that answers 429, and alone.
		{name: "sites.beside_backoff", unit: "pages/s", rounds: 3, bar: atLeast(0.95), measure: besideBackoff, yardstick: withoutBackoff},
	}
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
	filler := strings.Repeat(`<div class="row"><span class="cell">some words of a page that nobody asked for</span><a href="/x">more</a></div>`, 260)
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
	def, err := definition.Parse("bench.yaml", fmt.Appendf(nil, benchDefinition, srv.URL, pagesAtOnce))
	if err != nil {
		srv.Close()
	}
	return srv, def, err
}

// scrapeSite scrapes the site as an operator does: listing pages, every page an item with a durable
// state, records to JSONL.
func scrapeSite(ctx context.Context, l *lab) (_ float64, err error) {
	srv, def, err := benchSite()
	if err != nil {
		return 0, err
	}
	defer srv.Close()
	dir, err := os.MkdirTemp("", "muster-bench-sites-")
	if err != nil {
		return 0, fmt.Errorf("make a folder for records: %w", err)
	}
	defer os.RemoveAll(dir)

	s, end, err := siteService(ctx, l, dir, def)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	began := time.Now()
	run, err := s.Send(ctx, def.Site, sites.ScrapeOptions{})
	if err != nil {
		return 0, err
	}
	sum, err := run.Wait(ctx)
	if err != nil {
		return 0, err
	}
	took := time.Since(began)
	if sum.Records != sitePages || sum.Errors > 0 {
		return 0, fmt.Errorf("scraped %d records with %d errors, want %d and none", sum.Records, sum.Errors, sitePages)
	}
	return sitePages / took.Seconds(), nil
}

// siteService is a service with a worker, until end.
func siteService(ctx context.Context, l *lab, dir string, defs ...*definition.Definition) (_ *sites.Service, end func() error, err error) {
	client := tasks.NewClient(l.rdb)
	s, err := sites.NewService(sites.Config{Client: client, Registry: sites.NewRegistry(defs...), OutDir: dir})
	if err != nil {
		return nil, nil, err
	}
	mux := tasks.NewMux()
	s.Register(mux)
	ready := make(chan struct{})
	w, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{Queues: map[string]int{sites.Queue: 1}, Concurrency: pagesAtOnce * len(defs), Ready: func() { close(ready) }})
	if err != nil {
		return nil, nil, err
	}
	workCtx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(workCtx) }()
	written := make(chan error, 1)
	go func() { written <- s.Run(workCtx) }()
	end = func() error {
		stop()
		return errors.Join(<-ended, <-written, s.Close(), client.Close())
	}
	select {
	case <-ready:
		return s, end, nil
	case err := <-ended:
		ended <- nil
		return nil, nil, errors.Join(fmt.Errorf("worker: %w", err), end())
	}
}

// scrapeInMemory fetches and reads the pages and keeps nothing.
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
		return 0, fmt.Errorf("read %d records, want %d", records.Load(), sitePages)
	}
	return sitePages / time.Since(began).Seconds(), nil
}
