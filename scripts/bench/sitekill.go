package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"muster/sites"
	"muster/sites/definition"
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

// surviveKills scrapes a site with a worker process that is killed again and
// again, by a signal that nothing can catch. It fails unless every record is
// there once, and returns the share of the pages that could at worst be
// fetched twice, those on the way at each kill, that were.
func surviveKills(ctx context.Context, l *lab) (_ float64, err error) {
	var asked atomic.Int64
	filler := strings.Repeat("<p>some words of a page that nobody asked for</p>", 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/list" {
			for n := range killPages {
				fmt.Fprintf(w, `<a href="/item/%d">item</a> `, n)
			}
			return
		}
		asked.Add(1)
		time.Sleep(5 * time.Millisecond) // a page that takes no time is never on the way
		fmt.Fprintf(w, "<html><body><h1>%s</h1>%s</body></html>", r.URL.Path, filler)
	}))
	defer srv.Close()
	def, err := definition.Parse("killed.yaml", fmt.Appendf(nil, `site: killed.example
base_url: %s
start: [/list]
listing: {links: a}
records: {item: {key: [name], fields: {name: {css: h1, required: true}}}}
politeness: {delay: 0, max_per_domain: %d, robots: false}
`, srv.URL, pagesAtOnce))
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
	defer func() { err = errors.Join(err, s.Close()) }()
	s.StartWriting()
	run, err := s.Send(ctx, def.Site, sites.ScrapeOptions{})
	if err != nil {
		return 0, err
	}
	var sum sites.Summary
	ended := make(chan error, 1)
	go func() {
		var err error
		sum, err = run.Wait(ctx)
		ended <- err
	}()
	for kill := 0; ; kill++ {
		name := fmt.Sprint("killed", kill)
		var worker *exec.Cmd
		if worker, err = startChild(ctx, l, childSite, name); err != nil {
			return 0, err
		}
		// The kill comes somewhere in the share of the pages that is this worker's.
		until := int64(killPages*kill/kills) + rand.N[int64](killPages/kills)
		for kill < kills && asked.Load() < until && len(ended) == 0 {
			time.Sleep(time.Millisecond)
		}
		if kill == kills {
			err = <-ended
			killChild(worker)
			break
		}
		killChild(worker)
		if err := tasks.ExpireLeases(ctx, client, name); err != nil {
			return 0, err
		}
	}
	if err != nil {
		return 0, err
	}
	if sum.Records != killPages || sum.Errors > 0 || sum.Status != sites.StatusComplete {
		return 0, fmt.Errorf("after %d kills: %s with %d records and %d errors, want %d and none", kills, sum.Status, sum.Records, sum.Errors, killPages)
	}
	data, err := os.ReadFile(sum.Files[0])
	if err != nil {
		return 0, fmt.Errorf("read records: %w", err)
	}
	for n := range killPages {
		if c := strings.Count(string(data), fmt.Sprintf(`"name":"/item/%d"`, n)); c != 1 {
			return 0, fmt.Errorf("record %d is there %d times", n, c)
		}
	}
	return float64(asked.Load()-killPages) / (pagesAtOnce * kills), nil
}
