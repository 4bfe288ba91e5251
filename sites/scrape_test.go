package sites

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
	"muster/sites/record"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// newService returns a service on rdb, as a process has it. It does not run: a job
// is written when it ends.
func newService(t *testing.T, rdb redis.UniversalClient) *Service {
	t.Helper()
	client := tasks.NewClient(rdb)
	s, err := NewService(Config{Client: client, OutDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), client.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// begin begins a job without a worker, so that a test can take its steps.
func begin(t *testing.T, s *Service, id string, def *definition.Definition, o ScrapeOptions) *job {
	t.Helper()
	dir := o.OutDir
	if dir == "" {
		dir = s.cfg.OutDir
	}
	home, err := record.FolderName(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.recorder.Allow(dir, o.Sinks); err != nil {
		t.Fatal(err)
	}
	j, err := s.handlers.begin(t.Context(), id, store.Request{Home: home, Site: def.Site, File: def.File(), YAML: string(def.YAML()), BaseURL: o.BaseURL, Limit: o.Limit, CSV: o.CSV, OutDir: dir, Sinks: o.Sinks})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// again calls a step as the engine does: until it does not ask for later.
func again[T any](t *testing.T, step func() (T, error)) T {
	t.Helper()
	v, err := until(t.Context(), step)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// until is again for where there is no test to fail.
func until[T any](ctx context.Context, step func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sitetest.Patience, errors.New("the step never ends"))
	defer cancel()
	for {
		v, err := step()
		l, ok := errors.AsType[later](err)
		if !ok {
			return v, err
		}
		if err := sleep(ctx, l.after); err != nil {
			return v, err
		}
	}
}

// run takes all steps of a job in this goroutine.
func run(t *testing.T, j *job) report.Summary {
	t.Helper()
	collect(t, j)
	crawl(t, j)
	return aggregate(t, j)
}

// collect queues the start pages of a job.
func collect(t *testing.T, j *job) {
	t.Helper()
	if err := j.collect(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// crawl fetches all pages of a job with one crawler.
func crawl(t *testing.T, j *job) {
	t.Helper()
	if err := crawlAs(t.Context(), j, "crawler"); err != nil {
		t.Fatal(err)
	}
}

// crawlAs is crawl without a test, for a named crawler.
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
		}
		s := newService(t, rdb)
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

func TestScrapeOnWorkers(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 3, 20)
	site.Faults = map[string][]string{"/item/3": {"429"}, "/item/30": {"500"}, "/page/2": {"500"}, "/item/59": {"soft"}}
	def := site.Definition(t, "")
	rdb := redistest.New(t)
	client := tasks.NewClient(rdb)
	t.Cleanup(func() { _ = client.Close() })
	s, err := NewService(Config{Client: client, OutDir: t.TempDir(), Registry: NewRegistry(def)})
	if err != nil {
		t.Fatal(err)
	}
	work(t, client, s)
	ctx, cancel := context.WithTimeout(t.Context(), sitetest.Patience)
	defer cancel()
	res, err := s.Send(ctx, "shop.example", ScrapeOptions{BaseURL: site.URL})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(res.ID(), "scrape_shop_example_") {
		t.Errorf("got job id %s, want one of shop.example", res.ID())
	}
	sum, err := res.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	site.IsWhole(t, sum)
	for name, want := range map[string]string{"total_urls": "63", "result_count": "120", "error_count": "0", "total_chunks": "3", "completed_chunks": "3", "status": "COMPLETE"} {
		key := "scrape_shop.example:" + res.ID() + ":" + name
		if got := waitKey(ctx, rdb, key, want); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	if p, err := s.Progress(ctx, "shop.example", res.ID()); err != nil || p.Done != 63 || p.Total != 63 {
		t.Errorf("got progress %+v, error %v, want 63 of 63 pages", p, err)
	}
}

// The status key is PROCESSING as soon as the start pages are queued.
func TestStatusKey(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 3, 20)
	site.Faults = map[string][]string{"/page/2": {"hang"}}
	rdb := redistest.New(t)
	client := tasks.NewClient(rdb)
	t.Cleanup(func() { _ = client.Close() })
	s, err := NewService(Config{Client: client, OutDir: t.TempDir(), Registry: NewRegistry(site.Definition(t, ""))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), sitetest.Patience)
	defer cancel()
	res, err := s.Send(ctx, "shop.example", ScrapeOptions{BaseURL: site.URL})
	if err != nil {
		t.Fatal(err)
	}
	status := func() string { return rdb.Get(ctx, "scrape_shop.example:"+res.ID()+":status").Val() }
	if got := status(); got != "DISPATCHED" {
		t.Errorf("sent, and no worker runs: got status %q, want DISPATCHED", got)
	}
	work(t, client, s)
	select {
	case <-site.Hangs:
	case <-ctx.Done():
		t.Fatal("got no request for the second listing page, want one")
	}
	if got := waitKey(ctx, rdb, "scrape_shop.example:"+res.ID()+":status", "PROCESSING"); got != "PROCESSING" {
		t.Errorf("a listing page is in flight: got status %q, want PROCESSING", got)
	}
	close(site.Hang)
	sum, err := res.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	site.IsWhole(t, sum)
	if got := waitKey(ctx, rdb, "scrape_shop.example:"+res.ID()+":status", "COMPLETE"); got != "COMPLETE" {
		t.Errorf("over: got status %q, want COMPLETE", got)
	}
}

// A site that gives no start page fails its job, with the reason, and no
// other site's.
func TestSitesFailAlone(t *testing.T) {
	t.Parallel()
	bad, good := sitetest.NewShop(t, 1, 5), sitetest.NewShop(t, 1, 5)
	bad.Faults["/"] = strings.Fields(strings.Repeat("500 ", 50))
	def := good.Definition(t, "")
	other, err := definition.Parse("other.yaml", []byte(strings.Replace(string(def.YAML()), "site: shop.example", "site: other.example", 1)))
	if err != nil {
		t.Fatal(err)
	}
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	s, err := NewService(Config{Client: client, OutDir: t.TempDir(), Registry: NewRegistry(def, other)})
	if err != nil {
		t.Fatal(err)
	}
	work(t, client, s)
	ctx, cancel := context.WithTimeout(t.Context(), sitetest.Patience)
	defer cancel()
	failing, err := s.Send(ctx, "other.example", ScrapeOptions{BaseURL: bad.URL})
	if err != nil {
		t.Fatal(err)
	}
	running, err := s.Send(ctx, "shop.example", ScrapeOptions{BaseURL: good.URL})
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := running.Wait(ctx); err != nil {
		t.Error(err)
	} else {
		good.IsWhole(t, sum)
	}
	if _, err := failing.Wait(ctx); err == nil || !strings.Contains(err.Error(), "no start page could be fetched") || !strings.Contains(err.Error(), "500") {
		t.Errorf("got %v, want the reason", err)
	}

	states, err := s.States(ctx)
	if err != nil || len(states) != 2 {
		t.Fatalf("got states %+v, error %v, want 2", states, err)
	}
	if st := states[0]; st.Site != "other.example" || st.Health != report.Critical || len(st.Alerts) != 1 || !strings.HasPrefix(st.Alerts[0], "the last job failed: no start page could be fetched") {
		t.Errorf("the site that failed: got %+v, want critical with the error of the job", st)
	}
	if st, runs, err := s.State(ctx, "shop.example"); err != nil || st.Health != report.Healthy || len(st.Alerts) != 0 || st.Job.Status != report.StatusComplete || len(runs) != 1 || runs[0].JobID != running.ID() {
		t.Errorf("the other site: got %+v, %+v, error %v, want healthy with one job", st, runs, err)
	}
	if _, _, err := s.State(ctx, "shop.exampel"); !errors.As(err, new(*UnknownError)) {
		t.Errorf("a site that does not exist: got error %v, want an UnknownError", err)
	}
}

// waitKey waits until a key has a value, and returns the last one it had.
func waitKey(ctx context.Context, rdb redis.UniversalClient, key, want string) string {
	got := ""
	for range 100 {
		if got, _ = rdb.Get(ctx, key).Result(); got == want || sleep(ctx, 20*time.Millisecond) != nil {
			break
		}
	}
	return got
}

// work runs a worker until the test ends.
func work(t *testing.T, client *tasks.Client, s *Service) {
	t.Helper()
	mux := tasks.NewMux()
	s.Register(mux)
	w, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{Queues: map[string]int{Queue: 1}, Concurrency: 4, Grace: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	testutil.Background(t, s.Run)
	testutil.Background(t, w.Run)
}

// A worker that is gone in the middle of a page, with its files open, costs this page a second request and nothing else.
func TestAbandonedWorker(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		site := sitetest.NewShop(t, 2, 20)
		site.Faults = map[string][]string{"/item/13": {"hang"}}
		out := t.TempDir()
		def, err := definition.Parse("shop.yaml", bytes.Replace(site.Definition(t, "").YAML(), []byte("max_per_domain: 2"), []byte("max_per_domain: 1"), 1))
		if err != nil {
			t.Fatal(err)
		}
		o := ScrapeOptions{BaseURL: site.URL, OutDir: out}

		first := begin(t, newService(t, rdb), "j1", def, o)
		collect(t, first)
		ctx, abandon := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_ = crawlAs(ctx, first, "crawler")
		}()
		testutil.Eventually(t, "the page that hangs is requested", func() bool {
			asked, _ := site.Counts("/item/13")
			return asked > 0
		})
		// It neither settles nor returns the page: its lease must be taken over.
		t.Cleanup(func() { abandon(); <-gone })

		second := begin(t, newService(t, rdb), "j1", def, o)
		crawl(t, second)
		site.IsWhole(t, aggregate(t, second))
		for i := range 40 {
			asked, given := site.Counts(fmt.Sprint("/item/", i))
			if i != 13 && (asked != 1 || given != 1) {
				t.Errorf("item %d was asked for %d times, want once", i, asked)
			}
		}
		for _, p := range []string{"/", "/page/2"} {
			if asked, _ := site.Counts(p); asked != 1 {
				t.Errorf("%s was asked for %d times, want once", p, asked)
			}
		}
	})
}

func TestLimit(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 5, 10)
	s := newService(t, redistest.New(t))
	sum := run(t, begin(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL, Limit: 4}))
	if sum.ByType["item"] != 4 || sum.ByType["teaser"] != 4 || sum.Pages != 5 {
		t.Errorf("got %+v, want 4 of each from 5 pages", sum)
	}
	if asked, _ := site.Counts("/page/2"); asked != 0 {
		t.Errorf("got %d requests for the second listing page, want 0: the first has enough", asked)
	}
}

// Pages that cannot be fetched are reported with their class, and do not stop
// others.
func TestFailures(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 10)
	forever := func(f string) []string { return strings.Split(strings.Repeat(f+" ", 50), " ") }
	site.Faults = map[string][]string{"/item/1": forever("500"), "/item/2": forever("404"), "/item/3": forever("soft"), "/item/4": forever("empty")}
	s := newService(t, redistest.New(t))
	sum := run(t, begin(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL}))
	if sum.Status != report.StatusComplete || sum.Errors != 3 || sum.Skipped != 1 || sum.ByType["item"] != 6 {
		t.Errorf("got %+v, want COMPLETE with 6 items, 3 errors and 1 skipped page", sum)
	}
	for class, want := range map[fetch.Class]int{fetch.Server: 1, fetch.Gone: 1, fetch.SoftBlock: 1, fetch.Empty: 1, fetch.OK: 7} {
		if sum.ByClass[class] != want {
			t.Errorf("%s: got %d pages, want %d", class, sum.ByClass[class], want)
		}
	}
	data, err := os.ReadFile(sum.Failed)
	if err != nil || strings.Count(string(data), "\n") != 3 || !strings.Contains(string(data), `/item/1`) {
		t.Errorf("failed.jsonl: got %s, error %v, want 3 lines, with /item/1", data, err)
	}
	if asked, _ := site.Counts("/item/1"); asked != 4 {
		t.Errorf("a page with 500 was asked for %d times, want 1 and 3 retries", asked)
	}
	if asked, _ := site.Counts("/item/2"); asked != 1 {
		t.Errorf("a page with 404 was asked for %d times, want once", asked)
	}
}

// A listing page that fails makes the job incomplete, and says so.
func TestFailedListing(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 3, 5)
	site.Faults = map[string][]string{"/page/2": strings.Split(strings.Repeat("500 ", 50), " ")}
	s := newService(t, redistest.New(t))
	sum := run(t, begin(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL}))
	if sum.Status != report.StatusIncomplete || !strings.Contains(fmt.Sprint(sum.Missing), "/page/2 could not be fetched") || sum.ByType["item"] != 5 {
		t.Errorf("got %s, missing %v, records %v, want INCOMPLETE without /page/2, with 5 items", sum.Status, sum.Missing, sum.ByType)
	}
	site.Faults["/"] = site.Faults["/page/2"]
	j := begin(t, s, "j2", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	collect(t, j)
	crawl(t, j)
	if _, err := j.aggregate(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "no start page could be fetched") {
		t.Errorf("got error %v, want that no start page could be fetched", err)
	}
}

func TestNoURLs(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 0)
	s := newService(t, redistest.New(t))
	sum := run(t, begin(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL}))
	if sum.Status != report.StatusComplete || sum.Records != 0 || sum.Pages != 1 {
		t.Errorf("got %+v, want COMPLETE with one page and no records", sum)
	}
}

// An endless calendar ends at max_pages, visibly.
func TestEndlessListing(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, _ = fmt.Sscanf(r.URL.Path, "/page/%d", &n)
		fmt.Fprintf(w, `<ul class=items><li class=item><a href="/item/%d">a</a></ul><a class=next href="/page/%d">next</a>`, n, n+1)
	})
	site := sitetest.NewShop(t, 1, 1)
	site.Config.Handler = mux
	s := newService(t, redistest.New(t))
	sum := run(t, begin(t, s, "j1", site.Definition(t, "limits: {max_pages: 20}\n"), ScrapeOptions{BaseURL: site.URL}))
	if sum.Status != report.StatusIncomplete || sum.Pages+sum.Errors != 20 || !strings.Contains(fmt.Sprint(sum.Missing), "limits.max_pages (20) was reached: ") {
		t.Errorf("got %d pages, %s, missing %v, want 20, INCOMPLETE, max_pages", sum.Pages+sum.Errors, sum.Status, sum.Missing)
	}
}

// A calendar whose months link to the next for ever ends at limits.max_depth, which counts next pages, and the job says so.
func TestEndlessCalendar(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var month int
		_, _ = fmt.Sscanf(r.URL.Path, "/month/%d", &month)
		asked.Add(1)
		fmt.Fprintf(w, "<p>Nothing happens in month %d of the calendar.</p><a class=next href=/month/%d>next</a>", month, month+1)
		if month < 3 {
			fmt.Fprintf(w, "<b>event %d</b>", month)
		}
	}))
	t.Cleanup(srv.Close)
	def, err := definition.Parse("calendar.yaml", []byte("site: calendar.example\nbase_url: "+srv.URL+"\nstart: [/month/0]\nlisting: {next: a.next}\nlimits: {max_depth: 30}\nrecords: {event: {from: listing, each: b, fields: {name: {take: text}}}}\npoliteness: {delay: 0, robots: false}\n"))
	if err != nil {
		t.Fatal(err)
	}
	sum := run(t, begin(t, newService(t, redistest.New(t)), "scrape_calendar_example_1", def, ScrapeOptions{}))
	if sum.Records != 3 || asked.Load() != 31 || sum.Status != report.StatusIncomplete || fmt.Sprint(sum.Missing) != "[limits.max_depth (30) was reached: 1 page was not fetched]" {
		t.Errorf("got %+v after %d pages, want 3 records, 31 pages, and the limit", sum, asked.Load())
	}
}

// A job that could not have some pages is resumed when the site has healed:
// only those pages are asked for, and the files become whole.
func TestResume(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 2, 10)
	broken := strings.Fields(strings.Repeat("500 ", 4))
	site.Faults = map[string][]string{"/item/3": broken, "/page/2": broken}
	s := newService(t, redistest.New(t))
	def := site.Definition(t, "")
	first := run(t, begin(t, s, "j1", def, ScrapeOptions{BaseURL: site.URL}))
	if first.Status != report.StatusIncomplete || first.ByType["item"] != 9 {
		t.Fatalf("the first job: got %+v, want INCOMPLETE with 9 items", first)
	}
	req, err := store.ReadRequest(t.Context(), s.cfg.Client.Redis(), "j1")
	if err != nil {
		t.Fatal(err)
	}
	req.Resume = "j1"
	j, err := s.handlers.begin(t.Context(), "j2", req)
	if err != nil {
		t.Fatal(err)
	}
	sum := run(t, j)
	site.IsWhole(t, sum)
	if sum.Status != report.StatusComplete || sum.JobID != "j2" || sum.Files[0] != first.Files[0] {
		t.Errorf("the job that resumes: got %+v, want j2, COMPLETE, with the files %v", sum, first.Files)
	}
	for i := range 20 {
		if _, given := site.Counts(fmt.Sprint("/item/", i)); given != 1 {
			t.Errorf("item %d was given %d times, want once", i, given)
		}
	}
	if _, err := s.Resume(t.Context(), "none"); !errors.Is(err, store.ErrNoJob) {
		t.Errorf("got %v, want ErrNoJob", err)
	}
}

// Each sitemap has its own filter, also two entries of the same sitemap and the sitemaps of an index.
func TestSitemap(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 2, 10)
	site.Faults["/items.xml"] = []string{"500"}
	def, err := definition.Parse("s.yaml", []byte(strings.Replace(string(site.Definition(t, "").YAML()), "start: [/]", `start: [{sitemap: /sitemap.xml, allow: '/item/0$'}, {sitemap: /sitemap.xml, allow: '/item/1$'}, {sitemap: /items.xml}]`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	s := newService(t, redistest.New(t))
	sum := run(t, begin(t, s, "j1", def, ScrapeOptions{BaseURL: site.URL}))
	if sum.Status != report.StatusComplete || sum.ByType["item"] != 20 || sum.Pages != 25 {
		t.Errorf("got %+v, want COMPLETE with 25 pages and 20 items", sum)
	}
}

func TestCSV(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 3)
	s := newService(t, redistest.New(t))
	sum := run(t, begin(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL, CSV: true}))
	if len(sum.Files) != 4 || !strings.HasSuffix(sum.Files[2], "item.csv") {
		t.Fatalf("got files %v, want 4, of which the third is item.csv", sum.Files)
	}
	data, err := os.ReadFile(sum.Files[2])
	if err != nil || !strings.HasPrefix(string(data), "_key,_url,name,price.amount,price.currency\r\n") || strings.Count(string(data), "\r\n") != 4 {
		t.Errorf("got %q, error %v, want a header and 3 records", data, err)
	}
}

func TestMaxDuration(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 10)
	s := newService(t, redistest.New(t))
	j := begin(t, s, "j1", site.Definition(t, "limits: {max_duration: 1h}\n"), ScrapeOptions{BaseURL: site.URL})
	collect(t, j)
	site.Faults["/"] = []string{"hang"}
	fetching := make(chan error, 1)
	go func() { fetching <- crawlAs(t.Context(), j, "crawler") }()
	<-site.Hangs
	j.req.Began -= 2 * time.Hour.Milliseconds()
	close(site.Hang)
	if err := <-fetching; err != nil {
		t.Fatal(err)
	}
	sum := aggregate(t, j)
	if sum.Status != report.StatusIncomplete || sum.Pages != 1 || sum.Skipped+sum.Errors != 0 || fmt.Sprint(sum.Missing) != "[limits.max_duration (1h0m0s) was reached: 10 pages were not fetched]" {
		t.Errorf("got %+v, want INCOMPLETE with 1 page, without 10 for max_duration", sum)
	}
	if asked, _ := site.Counts("/item/0"); asked != 0 {
		t.Errorf("got %d requests for a page after limits.max_duration, want 0", asked)
	}
}

func TestChunks(t *testing.T) {
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

func TestRegistry(t *testing.T) {
	t.Parallel()
	r, err := LoadRegistry("", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Definition("quote.toscrape.com"); err == nil || !strings.Contains(err.Error(), `did you mean "quotes.toscrape.com"`) {
		t.Errorf("got error %v, want one with the nearest name", err)
	}
	if _, err := LoadRegistry(t.TempDir()+"/none", true); err == nil {
		t.Error("a missing folder that must exist: got no error, want one")
	}
	if _, err := LoadRegistry(t.TempDir()+"/none", false); err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	for site, rest := range map[string]string{
		"quotes.toscrape.com": "startt: [/]\n", // it does not stand for the shipped one
		"good":                "depends_on: [quotes.toscrape.com, books.toscrape.com]\n",
		"lost":                "depends_on: [nowhere]\n",
		"one":                 "depends_on: [two]\n",
		"two":                 "depends_on: [one]\n",
		"beside":              "depends_on: [one]\n",
	} {
		text := "site: " + site + "\nbase_url: http://shop.example\nstart: [/]\nrecords:\n  item: {from: listing, fields: {name: h1}}\n" + rest
		if err := os.WriteFile(filepath.Join(dir, site+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r, err = LoadRegistry(dir, true); err != nil {
		t.Fatal(err)
	}
	for site, want := range map[string]string{
		"quotes.toscrape.com": "quotes.toscrape.com.yaml:6:1: unknown key \"startt\"",
		"lost":                `lost.yaml:6:13: depends_on: no site "nowhere"`,
		"one":                 "one → two → one",
		"two":                 "two → one → two",
	} {
		_, err := r.Definition(site)
		if !errors.As(err, new(*definition.BrokenError)) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want a BrokenError that says %q", site, err, want)
		}
	}
	if got := strings.Join(r.Own(), " "); got != "beside good lost one quotes.toscrape.com two" {
		t.Errorf("got own sites %s, want beside good lost one quotes.toscrape.com two", got)
	}
	if got, err := r.Order("good", "beside"); err != nil || strings.Join(got, " ") != "quotes.toscrape.com books.toscrape.com good one beside" {
		t.Errorf("got %v, error %v, want quotes.toscrape.com books.toscrape.com good one beside", got, err)
	}

	a := &definition.Definition{Site: "a", DependsOn: []string{"b"}}
	b := &definition.Definition{Site: "b", DependsOn: []string{"c"}}
	c := &definition.Definition{Site: "c"}
	if got, err := NewRegistry(a, b, c).Order("a"); err != nil || strings.Join(got, "") != "cba" {
		t.Errorf("got %v, error %v, want c b a", got, err)
	}
	c.DependsOn = []string{"a"}
	if _, err := NewRegistry(a, b, c).Order("a"); err == nil || !strings.Contains(err.Error(), "a → b → c → a") {
		t.Errorf("got %v, want the circle", err)
	}
}

// A sitemap may name what it likes; only what belongs to the site is fetched.
func TestSitemapOfAnotherHost(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/sitemap.xml", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "<urlset>")
		for i := range 50_000 {
			fmt.Fprintf(w, "<url><loc>http://127.0.0.2:1/item/%d</loc></url>", i)
		}
		fmt.Fprint(w, "<url><loc>http://shop.example/item/0</loc></url><url><loc>http://shop.example/item/0;jsessionid=7?utm_source=x</loc></url></urlset>")
	})
	mux.HandleFunc("/item/0", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "<h1 class=name>Item</h1><p class=price>1 €</p>%s", strings.Repeat("<p>words about the item</p>", 20))
	})
	site := sitetest.NewShop(t, 1, 1)
	site.Config.Handler = mux
	def, err := definition.Parse("s.yaml", []byte(strings.Replace(string(site.Definition(t, "").YAML()), "start: [/]", "start: [{sitemap: /sitemap.xml}]", 1)))
	if err != nil {
		t.Fatal(err)
	}
	sum := run(t, begin(t, newService(t, redistest.New(t)), "j1", def, ScrapeOptions{BaseURL: site.URL}))
	if sum.Pages != 2 || sum.Errors != 0 || sum.ByType["item"] != 1 {
		t.Errorf("got %+v, want 2 pages and 1 item", sum)
	}
}

// Pages that redirect for ever, or to another host, are errors of their own.
func TestRedirects(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			fmt.Fprint(w, `<ul class=items><li class=item><a href="/item/loop">a</a></li><li class=item><a href="/item/away">b</a></li></ul>`+strings.Repeat("words ", 50))
		case "/item/loop":
			http.Redirect(w, r, "/item/loop", http.StatusFound)
		case "/item/away":
			http.Redirect(w, r, "http://127.0.0.2:1/", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	})
	site := sitetest.NewShop(t, 1, 1)
	site.Config.Handler = mux
	sum := run(t, begin(t, newService(t, redistest.New(t)), "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL}))
	if sum.Errors != 2 || sum.ByClass[fetch.Redirect] != 2 {
		t.Errorf("got %d errors, classes %v, want 2 of class %s", sum.Errors, sum.ByClass, fetch.Redirect)
	}
}

func TestRegistryTakesMoreDefinitions(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	def, err := definition.Parse("new.yaml", []byte("site: new\nbase_url: http://shop.example\nstart: [/]\nrecords:\n  item: {from: listing, fields: {name: h1}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	r.Add(def)
	if got, err := r.Definition("new"); err != nil || got != def {
		t.Errorf("got %v, %v, want the definition that was added", got, err)
	}
	r.Replace(NewRegistry())
	if _, err := r.Definition("new"); err == nil {
		t.Error("after Replace: got the definition that was added, want none")
	}
}
