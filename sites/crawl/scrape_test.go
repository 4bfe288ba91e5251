package crawl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
	"muster/sites/record"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/workqueue"
)

// ScrapeOptions are the options of a scrape.
type ScrapeOptions struct {
	Limit           int
	BaseURL, OutDir string
	CSV, Full       bool
	Sinks           []string
}

// newWorker returns a worker on rdb that does not run: a job is written when it ends.
func newWorker(t *testing.T, rdb redis.UniversalClient) *Worker {
	t.Helper()
	client := tasks.NewClient(rdb)
	t.Cleanup(func() { _ = client.Close() })
	return process(t, Config{Client: client})
}

// begin starts a job without a worker, so that a test can run its steps.
func begin(t *testing.T, s *Worker, id string, def *definition.Definition, o ScrapeOptions) *job {
	t.Helper()
	dir := o.OutDir
	if dir == "" {
		dir = s.cfg.OutDir
	}
	testutil.Ok(t, s.recorder.Allow(dir, o.Sinks))
	j := testutil.Must(s.handlers.begin(t.Context(), id, requestOf(t, def, dir, o)))(t)
	return j
}

// requestOf returns the request of a scrape with its records directory dir.
func requestOf(t *testing.T, def *definition.Definition, dir string, o ScrapeOptions) store.Request {
	t.Helper()
	home := testutil.Must(record.FolderName(dir))(t)
	return store.Request{Home: home, Site: def.Site, File: def.File(), YAML: string(def.YAML()), BaseURL: o.BaseURL, Limit: o.Limit, CSV: o.CSV, Full: o.Full, OutDir: dir, Sinks: o.Sinks}
}

// work runs a worker until the test ends.
func work(t *testing.T, client *tasks.Client, s *Worker) {
	t.Helper()
	mux := tasks.NewMux()
	s.Register(mux)
	w, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{Queues: map[string]int{store.Queue: 1}, Concurrency: 4, Grace: 5 * time.Second})
	testutil.Ok(t, err)
	t.Cleanup(func() { testutil.Ok(t, s.Close()) })
	testutil.Background(t, s.Run)
	testutil.Background(t, w.Run)
}

// again repeats a step, as the engine does, until it no longer returns later.
func again[T any](t *testing.T, step func() (T, error)) T {
	t.Helper()
	v := testutil.Must(until(t.Context(), step))(t)
	return v
}

// until is again without a testing.T.
func until[T any](ctx context.Context, step func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sitetest.Patience, errors.New("the step never ends"))
	defer cancel()
	for {
		v, err := step()
		l, ok := errors.AsType[later](err)
		if !ok {
			return v, err
		}
		select {
		case <-time.After(l.after):
		case <-ctx.Done():
			return v, context.Cause(ctx)
		}
	}
}

// run runs all steps of a job in this goroutine.
func run(t *testing.T, j *job) report.Summary {
	t.Helper()
	collect(t, j)
	crawl(t, j)
	return aggregate(t, j)
}

// collect queues the start pages of a job.
func collect(t *testing.T, j *job) {
	t.Helper()
	testutil.Ok(t, j.collect(t.Context()))
}

// crawl fetches all pages of a job with one crawler.
func crawl(t *testing.T, j *job) {
	t.Helper()
	testutil.Ok(t, crawlAs(t.Context(), j, "crawler"))
}

// crawlAs is crawl for a named crawler, without a testing.T.
func crawlAs(ctx context.Context, j *job, name string) error {
	_, err := until(ctx, func() (int, error) { return crawlOnce(ctx, j, name) })
	return err
}

// crawlOnce runs a crawler for a slice.
func crawlOnce(ctx context.Context, j *job, name string) (int, error) {
	return j.crawler.crawl(ctx, name, store.Crawler{Of: 1})
}

// aggregate closes a job.
func aggregate(t *testing.T, j *job) report.Summary {
	t.Helper()
	return again(t, func() (report.Summary, error) { return j.aggregate(t.Context(), nil) })
}

func TestScrapeWithFaults(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		site := sitetest.NewShop(t, 3, 10)
		site.Faults = map[string][]string{
			"/": {"500"}, "/page/2": {"soft", "429"}, "/page/3": {"empty"},
			"/item/1": {"429"}, "/item/2": {"500", "500"}, "/item/3": {"soft"}, "/item/4": {"empty"}, "/item/5": {"cut"}, "/item/6": {"403"}, "/item/7": {"503", "429"},
			"/item/8": {"busy", "busy"}, // an error page with status 200 and without required fields
		}
		s := newWorker(t, rdb)
		sum := run(t, begin(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL}))
		site.IsWhole(t, sum)
		if sum.Status != report.StatusComplete || sum.Pages != 33 || sum.Errors != 0 || sum.ByClass[fetch.OK] != 33 {
			t.Errorf("got %+v, want COMPLETE with 33 pages", sum)
		}
		for i := range 30 {
			if _, given := site.Counts(fmt.Sprint("/item/", i)); given != 1 {
				t.Errorf("item %d was given %d times, want once", i, given)
			}
		}
	})
}

// A failed listing page makes the job incomplete, and the report names it.
func TestFailedListing(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 3, 5)
	site.Faults = map[string][]string{"/page/2": strings.Split(strings.Repeat("500 ", 50), " ")}
	s := newWorker(t, redistest.New(t))
	sum := run(t, begin(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL}))
	if sum.Status != report.StatusIncomplete || !strings.Contains(fmt.Sprint(sum.Missing), "/page/2 failed") || sum.ByType["item"] != 5 {
		t.Errorf("got %s, missing %v, records %v, want INCOMPLETE without /page/2, with 5 items", sum.Status, sum.Missing, sum.ByType)
	}
}

// Each sitemap has its own filter, including two entries of one sitemap and the sitemaps of an index.
func TestSitemap(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 2, 10)
	site.Faults["/items.xml"] = []string{"500"}
	def := sitetest.Parse(t, []byte(strings.Replace(string(site.Definition(t, "").YAML()), "start: [/]", `start: [{sitemap: /sitemap.xml, allow: '/item/0$'}, {sitemap: /sitemap.xml, allow: '/item/1$'}, {sitemap: /items.xml}]`, 1)))
	s := newWorker(t, redistest.New(t))
	sum := run(t, begin(t, s, "j1", def, ScrapeOptions{BaseURL: site.URL}))
	if sum.Status != report.StatusComplete || sum.ByType["item"] != 20 || sum.Pages != 25 {
		t.Errorf("got %+v, want COMPLETE with 25 pages and 20 items", sum)
	}
}

func TestMaxDuration(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 10)
	s := newWorker(t, redistest.New(t))
	j := begin(t, s, "j1", site.Definition(t, "limits: {max_duration: 1h}\n"), ScrapeOptions{BaseURL: site.URL})
	collect(t, j)
	site.Faults["/"] = []string{"hang"}
	fetching := make(chan error, 1)
	go func() { fetching <- crawlAs(t.Context(), j, "crawler") }()
	<-site.Hangs
	j.req.Began -= 2 * time.Hour.Milliseconds()
	close(site.Hang)
	testutil.Ok(t, <-fetching)
	sum := aggregate(t, j)
	if sum.Status != report.StatusIncomplete || sum.Pages != 1 || sum.Skipped+sum.Errors != 0 || fmt.Sprint(sum.Missing) != "[limits.max_duration (1h0m0s) was reached: 10 pages were not fetched]" {
		t.Errorf("got %+v, want INCOMPLETE with 1 page, without 10 for max_duration", sum)
	}
	if asked, _ := site.Counts("/item/0"); asked != 0 {
		t.Errorf("got %d requests for a page after limits.max_duration, want 0", asked)
	}
}

func TestProgressCountsPagesInChunks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		perDomain        int
		pages            workqueue.Stats
		total, completed int64
	}{
		{2, workqueue.Stats{Total: 50, Queued: 50}, 2, 0},
		{2, workqueue.Stats{Total: 51, Queued: 20, Done: 31}, 3, 1},
		{2, workqueue.Stats{Total: 51, Done: 50, Error: 1}, 3, 3},
		{4, workqueue.Stats{Total: 81, InProgress: 1, Done: 40, Skipped: 39, Error: 1}, 3, 2},
		{4, workqueue.Stats{}, 0, 0},
	} {
		def := &definition.Definition{Politeness: definition.Politeness{MaxPerDomain: c.perDomain}}
		if total, completed := chunks(def, c.pages); total != c.total || completed != c.completed {
			t.Errorf("%d at once, %+v: got %d of %d chunks, want %d of %d", c.perDomain, c.pages, completed, total, c.completed, c.total)
		}
	}
}

// Of a sitemap's URLs only those within the scope of the site are fetched; the others are counted. A sitemap that breaks off makes
// the job INCOMPLETE.
func TestSitemapOfAnotherHost(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/sitemap.xml", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "<urlset>")
		for i := range 50_000 {
			fmt.Fprintf(w, "<url><loc>http://127.0.0.2:1/item/%d</loc></url>", i)
		}
		fmt.Fprint(w, "<url><loc>http://shop.example/item/0</loc></url><url><loc>http://shop.example/item/0;jsessionid=7?utm_source=x</loc></url><url><loc>/item/1\x01</loc></url></urlset>")
	})
	mux.HandleFunc("/item/0", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "<h1 class=name>Item</h1><p class=price>1 €</p>%s", strings.Repeat("<p>words about the item</p>", 20))
	})
	site := sitetest.NewShop(t, 1, 1)
	site.Config.Handler = mux
	def := sitetest.Parse(t, []byte(strings.Replace(string(site.Definition(t, "").YAML()), "start: [/]", "start: [{sitemap: /sitemap.xml}]", 1)))
	sum := run(t, begin(t, newWorker(t, redistest.New(t)), "j1", def, ScrapeOptions{BaseURL: site.URL}))
	if sum.Pages != 2 || sum.Errors != 0 || sum.ByType["item"] != 1 || sum.Outside != 50_000 {
		t.Errorf("got %+v, want 2 pages, 1 item and 50,000 URLs outside the site", sum)
	}
	want := fmt.Sprintf("[sitemap %s/sitemap.xml was not read completely: the sitemap ends after 50002 entries: XML syntax error on line 1: illegal character code U+0001]", site.URL)
	if sum.Status != report.StatusIncomplete || fmt.Sprint(sum.Missing) != want {
		t.Errorf("got %s, missing %s, want INCOMPLETE, %s", sum.Status, sum.Missing, want)
	}
}

// A second scrape with a cache sends no requests for pages and yields the same records. Pages that failed are not in the cache.
func TestCachedPagesAreNotFetchedAgain(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 2, 3)
	site.Faults = map[string][]string{"/item/1": {"soft"}, "/item/2": {"empty"}}
	s := process(t, Config{Fetch: fetch.Config{Cache: t.TempDir()}})
	def := site.Definition(t, "")
	site.IsWhole(t, run(t, begin(t, s, "j1", def, ScrapeOptions{BaseURL: site.URL})))
	pages := site.Sum()
	sum := run(t, begin(t, s, "j2", def, ScrapeOptions{BaseURL: site.URL}))
	site.IsWhole(t, sum)
	if site.Sum() != pages || sum.Changes.Unchanged != 12 {
		t.Errorf("got %d more requests and %+v, want none, and 12 unchanged records", site.Sum()-pages, sum.Changes)
	}
	damaged := filepath.Join(s.cfg.Fetch.Cache, def.Site, "x")
	err := os.WriteFile(damaged, []byte("{\n"), 0o600)
	if err == nil {
		err = fetch.CachedPages(s.cfg.Fetch.Cache, def.Site, func(extract.Page) error { return nil })
	}
	if err == nil || !strings.Contains(err.Error(), damaged) {
		t.Errorf("got %v, want an error that names %s", err, damaged)
	}
}
