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
	sitePages    = 5000
	pagesAtOnce  = 8
	pagesPerList = 250
)

func siteRows() []row {
	return []row{
		// The yardstick fetches the same pages with as many connections and takes the same fields, in
		// memory: no Redis, no state, no files, no listing pages.
		{name: "sites.pages", unit: "pages/s", rounds: 3, bar: atLeast(0.5), measure: scrapeSite, yardstick: scrapeInMemory},
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

	client := tasks.NewClient(l.rdb)
	defer client.Close()
	s, err := sites.NewService(sites.Config{Client: client, Registry: sites.NewRegistry(def), OutDir: dir})
	if err != nil {
		return 0, err
	}
	mux := tasks.NewMux()
	s.Register(mux)
	ready := make(chan struct{})
	w, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{Queues: map[string]int{sites.Queue: 1}, Concurrency: pagesAtOnce, Ready: func() { close(ready) }})
	if err != nil {
		return 0, err
	}
	workCtx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(workCtx) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended, s.Close())
	}()
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		return 0, fmt.Errorf("worker: %w", err)
	}

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
