package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"muster/sites"
	"muster/sites/definition"
	sitereport "muster/sites/report"
	"muster/tasks"
)

const (
	killPages = 2000
	kills     = 20
)

// siteWorker is the child process of surviveKills.
func siteWorker(ctx context.Context, c *tasks.Client, name string, ready func()) error {
	s, err := sites.NewService(sites.Config{Client: c, Registry: sites.NewRegistry(), OutDir: os.TempDir()})
	if err != nil {
		return err
	}
	defer s.Close()
	mux := tasks.NewMux()
	s.Register(mux)
	w, err := tasks.NewWorker(c, mux, tasks.WorkerConfig{Name: name, Queues: map[string]int{sites.Queue: 1}, Concurrency: pagesAtOnce, Ready: ready})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// surviveKills scrapes a site with a worker process that is killed again and again, by a signal that cannot be caught.
// It fails unless every record is there once. It returns the share of the pages being fetched at the kills that were
// fetched twice: 1 would be all of them.
func surviveKills(ctx context.Context, l *lab) (_ float64, err error) {
	var asked atomic.Int64
	srv := httptest.NewServer(killedSite(&asked))
	defer srv.Close()
	def, err := killedDefinition(srv.URL)
	if err != nil {
		return 0, err
	}
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
	writing, stop := context.WithCancel(ctx)
	written := make(chan error, 1)
	go func() { written <- s.Run(writing) }()
	defer func() { stop(); err = errors.Join(err, <-written, s.Close()) }()
	run, err := s.Send(ctx, def.Site, sites.ScrapeOptions{})
	if err != nil {
		return 0, err
	}
	var sum sitereport.Summary
	ended := make(chan error, 1)
	go func() {
		var err error
		sum, err = run.Wait(ctx)
		ended <- err
	}()
	if err := killSiteWorkers(ctx, l, client, &asked, ended); err != nil {
		return 0, err
	}
	if err := checkRecords(sum); err != nil {
		return 0, err
	}
	return float64(asked.Load()-killPages) / (pagesAtOnce * kills), nil
}

// killedSite serves a list of items, and counts in asked how often one is fetched.
func killedSite(asked *atomic.Int64) http.Handler {
	filler := strings.Repeat("<p>some words of a page that nobody asked for</p>", 100)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/list" {
			for n := range killPages {
				fmt.Fprintf(w, `<a href="/item/%d">item</a> `, n)
			}
			return
		}
		asked.Add(1)
		time.Sleep(5 * time.Millisecond) // else no page is being fetched at a kill
		fmt.Fprintf(w, "<html><body><h1>%s</h1>%s</body></html>", r.URL.Path, filler)
	})
}

func killedDefinition(url string) (*definition.Definition, error) {
	return definition.Parse("killed.yaml", fmt.Appendf(nil, `site: killed.example
base_url: %s
start: [/list]
listing: {links: a}
records: {item: {key: [name], fields: {name: {css: h1, required: true}}}}
politeness: {delay: 0, max_per_domain: %d, robots: false}
`, url, pagesAtOnce))
}

// killSiteWorkers starts and kills one worker after the other, and lets the last one run until the scrape has ended.
// It returns what ended says.
func killSiteWorkers(ctx context.Context, l *lab, client *tasks.Client, asked *atomic.Int64, ended <-chan error) error {
	for kill := range kills {
		name := fmt.Sprint("killed", kill)
		worker, err := startChild(ctx, l, childSite, name)
		if err != nil {
			return err
		}
		// The kill comes somewhere in the share of the pages that is this worker's.
		until := int64(killPages*kill/kills) + rand.N[int64](killPages/kills)
		for asked.Load() < until && len(ended) == 0 {
			time.Sleep(time.Millisecond)
		}
		killChild(worker)
		if err := tasks.ExpireLeases(ctx, client, name); err != nil {
			return err
		}
	}
	worker, err := startChild(ctx, l, childSite, fmt.Sprint("killed", kills))
	if err != nil {
		return err
	}
	defer killChild(worker)
	return <-ended
}

// checkRecords returns an error unless each item has one record.
func checkRecords(sum sitereport.Summary) error {
	if sum.Records != killPages || sum.Errors > 0 || sum.Status != sitereport.StatusComplete {
		return fmt.Errorf("after %d kills: got status %s, %d records and %d errors, want %d records and no error",
			kills, sum.Status, sum.Records, sum.Errors, killPages)
	}
	data, err := os.ReadFile(sum.Files[0])
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	for n := range killPages {
		if c := strings.Count(string(data), fmt.Sprintf(`"name":"/item/%d"`, n)); c != 1 {
			return fmt.Errorf("got %d records of item %d, want 1", c, n)
		}
	}
	return nil
}
