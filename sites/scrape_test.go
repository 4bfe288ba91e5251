package sites

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/catalog"
	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks"
)

// The keys of a job have its state: DISPATCHED until a worker runs, and PROCESSING as soon as the start pages are queued.
func TestScrapeOnWorkers(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 3, 20)
	site.Faults = map[string][]string{"/item/3": {"429"}, "/item/30": {"500"}, "/page/2": {"500", "hang"}, "/item/59": {"soft"}}
	rdb := redistest.New(t)
	s := configured(t, rdb, NewRegistry(site.Definition(t, "")), Config{})
	res := testutil.Must(s.Send(t.Context(), "shop.example", ScrapeOptions{BaseURL: site.URL}))(t)
	if !strings.HasPrefix(res.ID(), "scrape_shop_example_") {
		t.Errorf("got job id %s, want one of shop.example", res.ID())
	}
	key := func(name, want string) {
		t.Helper()
		var got string
		if !testutil.Becomes(func() bool {
			got, _ = rdb.Get(t.Context(), "scrape_shop.example:"+res.ID()+":"+name).Result()
			return got == want
		}) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	key("status", "DISPATCHED")
	work(t, s.cfg.Client, s)
	<-site.Hangs
	key("status", "PROCESSING")
	close(site.Hang)
	sum := testutil.Must(res.Wait(t.Context()))(t)
	site.IsWhole(t, sum)
	for name, want := range map[string]string{"total_urls": "63", "result_count": "120", "error_count": "0", "total_chunks": "3", "completed_chunks": "3", "status": "COMPLETE"} {
		key(name, want)
	}
	if p, err := s.Progress(t.Context(), "shop.example", res.ID()); err != nil || p.Done != 63 || p.Total != 63 {
		t.Errorf("got progress %+v, error %v, want 63 of 63 pages", p, err)
	}
}

// A worker waits for the writer of a job to load the known pages.
func TestScrapeSkipsKnownPages(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 20)
	s := configured(t, redistest.New(t), NewRegistry(site.Definition(t, "refetch: 7d\n")), Config{})
	work(t, s.cfg.Client, s)
	for range 2 {
		res := testutil.Must(s.Send(t.Context(), "shop.example", ScrapeOptions{BaseURL: site.URL}))(t)
		sum := testutil.Must(res.Wait(t.Context()))(t)
		site.IsWhole(t, sum)
	}
	for _, path := range []string{"/item/0", "/item/19"} {
		if asked, _ := site.Counts(path); asked != 1 {
			t.Errorf("%s: got %d requests, want 1", path, asked)
		}
	}
}

func TestHistoryOfARecord(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 3)
	s := configured(t, redistest.New(t), NewRegistry(site.Definition(t, "")), Config{})
	work(t, s.cfg.Client, s)
	for _, change := range []func(){func() {}, func() { site.Price(1, 777) }, func() { site.Hide(1) }} {
		change()
		res := testutil.Must(s.Send(t.Context(), "shop.example", ScrapeOptions{BaseURL: site.URL}))(t)
		testutil.Must(res.Wait(t.Context()))(t)
	}
	got := testutil.Must(s.History(t.Context(), "shop.example", site.URL+"/item/1?utm_source=list"))(t)
	if len(got) != 1 || got[0].Type != "item" || !got[0].Gone || got[0].Missed != 1 || got[0].First.IsZero() || got[0].Last.Before(got[0].First) {
		t.Fatalf("got %+v, want an item that is gone", got)
	}
	if c := got[0].Changes; len(c) != 1 || !strings.Contains(string(c[0].Fields["price"][0]), "1001.5") || !strings.Contains(string(c[0].Fields["price"][1]), "1777.5") {
		t.Errorf("got %+v, want the old and the new price", c)
	}
	if byKey, err := s.History(t.Context(), "shop.example", got[0].Key); err != nil || len(byKey) != 1 {
		t.Errorf("by key: got %+v, %v, want the same record", byKey, err)
	}
	if _, err := s.History(t.Context(), "shop.example", "none"); !errors.Is(err, ErrNoRecord) {
		t.Errorf("unknown key: got %v, want ErrNoRecord", err)
	}
	if _, err := s.History(t.Context(), "../shop.example", got[0].Key); !errors.As(err, new(*UnknownError)) {
		t.Errorf("unknown site: got %v, want an UnknownError", err)
	}
}

// A site without a reachable start page fails its job with the reason, and no other job.
func TestSitesFailAlone(t *testing.T) {
	t.Parallel()
	bad, good := sitetest.NewShop(t, 1, 5), sitetest.NewShop(t, 1, 5)
	bad.Faults["/"] = strings.Fields(strings.Repeat("500 ", 50))
	def := good.Definition(t, "")
	other := sitetest.Parse(t, []byte(strings.Replace(string(def.YAML()), "site: shop.example", "site: other.example", 1)))
	s := configured(t, redistest.New(t), NewRegistry(def, other), Config{})
	work(t, s.cfg.Client, s)
	failing := testutil.Must(s.Send(t.Context(), "other.example", ScrapeOptions{BaseURL: bad.URL}))(t)
	running := testutil.Must(s.Send(t.Context(), "shop.example", ScrapeOptions{BaseURL: good.URL}))(t)
	if sum, err := running.Wait(t.Context()); err != nil {
		t.Error(err)
	} else {
		good.IsWhole(t, sum)
	}
	if _, err := failing.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "no start page could be fetched") || !strings.Contains(err.Error(), "500") {
		t.Errorf("got %v, want the reason", err)
	}

	states, err := s.States(t.Context())
	if err != nil || len(states) != 2 {
		t.Fatalf("got states %+v, error %v, want 2", states, err)
	}
	if st := states[0]; st.Site != "other.example" || st.Health != report.Critical || len(st.Alerts) != 1 || !strings.HasPrefix(st.Alerts[0], "last job failed: no start page could be fetched") {
		t.Errorf("the site that failed: got %+v, want critical with the error of the job", st)
	}
	if st, runs, err := s.State(t.Context(), "shop.example"); err != nil || st.Health != report.Healthy || len(st.Alerts) != 0 || st.Job.Status != report.StatusComplete || len(runs) != 1 || runs[0].JobID != running.ID() {
		t.Errorf("the other site: got %+v, %+v, error %v, want healthy with one job", st, runs, err)
	}
	if _, _, err := s.State(t.Context(), "shop.exampel"); !errors.As(err, new(*UnknownError)) {
		t.Errorf("a site that does not exist: got error %v, want an UnknownError", err)
	}
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	r := testutil.Must(LoadRegistry("", false))(t)
	if _, err := r.Definition("quote.toscrape.com"); err == nil || !strings.Contains(err.Error(), `did you mean "quotes.toscrape.com"`) {
		t.Errorf("got error %v, want one with the nearest name", err)
	}
	if _, err := LoadRegistry(t.TempDir()+"/none", true); err == nil {
		t.Error("a missing folder that must exist: got no error, want one")
	}
	testutil.Must(LoadRegistry(t.TempDir()+"/none", false))(t)
	dir := t.TempDir()
	for site, rest := range map[string]string{
		"quotes.toscrape.com": "startt: [/]\n", // it does not hide the shipped one
		"good":                "depends_on: [quotes.toscrape.com, books.toscrape.com]\n",
		"lost":                "depends_on: [nowhere]\n",
		"one":                 "depends_on: [two]\n",
		"two":                 "depends_on: [one]\n",
		"beside":              "depends_on: [one]\n",
	} {
		text := "site: " + site + "\nbase_url: http://shop.example\nstart: [/]\nrecords:\n  item: {from: listing, fields: {name: h1}}\n" + rest
		testutil.Ok(t, os.WriteFile(filepath.Join(dir, site+".yaml"), []byte(text), 0o600))
	}
	r = testutil.Must(LoadRegistry(dir, true))(t)
	for site, want := range map[string]string{
		"quotes.toscrape.com": "quotes.toscrape.com.yaml:6:1: unknown key \"startt\"",
		"lost":                `lost.yaml:6:13: depends_on: no site "nowhere"`,
		"one":                 "one → two → one",
		"two":                 "two → one → two",
	} {
		_, err := r.Definition(site)
		if !errors.As(err, new(*catalog.BrokenError)) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want a BrokenError with %q", site, err, want)
		}
	}
	if got := strings.Join(r.CustomNames(), " "); got != "beside good lost one quotes.toscrape.com two" {
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

func TestRegistryTakesMoreDefinitions(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	def := sitetest.Parse(t, []byte("site: new\nbase_url: http://shop.example\nstart: [/]\nrecords:\n  item: {from: listing, fields: {name: h1}}\n"))
	r.Add(def)
	if got, err := r.Definition("new"); err != nil || got != def {
		t.Errorf("got %v, %v, want the definition that was added", got, err)
	}
	r.Replace(NewRegistry())
	if _, err := r.Definition("new"); err == nil {
		t.Error("after Replace: got the definition that was added, want none")
	}
}

func TestSinksAreChecked(t *testing.T) {
	t.Parallel()
	s := newService(t, redistest.New(t))
	if _, err := s.Send(t.Context(), "books.toscrape.com", ScrapeOptions{Sinks: []string{"mysql://x"}}); err == nil {
		t.Error("Scrape with an invalid sink: got no error, want one")
	}
	if _, err := NewService(nil, Config{Client: s.cfg.Client, Sinks: []string{"mysql://x"}}); err == nil {
		t.Error("NewService with an invalid sink: got no error, want one")
	}
}

// newService returns a service on rdb that does not run.
func newService(t *testing.T, rdb redis.UniversalClient) *Service {
	t.Helper()
	return configured(t, rdb, nil, Config{})
}

// configured is newService with a configuration without a client and a directory.
func configured(t *testing.T, rdb redis.UniversalClient, registry *Registry, cfg Config) *Service {
	t.Helper()
	cfg.Client, cfg.OutDir = tasks.NewClient(rdb), t.TempDir()
	t.Cleanup(func() { _ = cfg.Client.Close() })
	s := testutil.Must(NewService(registry, cfg))(t)
	t.Cleanup(func() { testutil.Ok(t, s.Close()) })
	return s
}

// begin stores the request of a job that no worker has started.
func begin(t *testing.T, s *Service, id string, def *definition.Definition, o ScrapeOptions) store.Request {
	t.Helper()
	req, err := s.request(t.Context(), def, o)
	if err == nil {
		err = errors.Join(store.AddJob(t.Context(), s.cfg.Client.Redis(), id, req), store.Open(t.Context(), s.cfg.Client.Redis(), id))
	}
	testutil.Ok(t, err)
	return req
}

// scrape scrapes a site with a worker that runs until the test ends.
func scrape(t *testing.T, s *Service, id string, def *definition.Definition, o ScrapeOptions) report.Summary {
	t.Helper()
	work(t, s.cfg.Client, s)
	run := testutil.Must(store.Scrape(begin(t, s, id, def, o)).Send(t.Context(), s.cfg.Client, tasks.ID(id)))(t)
	sum := testutil.Must(run.Wait(t.Context()))(t)
	return sum
}

// work runs a worker until the test ends.
func work(t *testing.T, client *tasks.Client, s *Service) {
	t.Helper()
	mux := tasks.NewMux()
	s.Register(mux)
	w := testutil.Must(tasks.NewWorker(client, mux, tasks.WorkerConfig{Queues: map[string]int{Queue: 1}, Concurrency: 4, Grace: 5 * time.Second}))(t)
	t.Cleanup(func() { testutil.Ok(t, s.Close()) })
	testutil.Background(t, s.Run)
	testutil.Background(t, w.Run)
}
