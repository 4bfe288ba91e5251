package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/orchestrator/api/client"
	"muster/sites"
	"muster/sites/definition"
	"muster/sites/report"
	"muster/tasks"
)

// scraped returns a config on a Redis where a site was scraped, with one page in four failed.
func scraped(t *testing.T) Config {
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/list":
			for i := range 4 {
				fmt.Fprintf(w, `<a href="/item/%d">The item number %d</a>`, i, i)
			}
		case "/item/0":
			http.Error(w, "no", http.StatusTeapot)
		default:
			fmt.Fprintf(w, `<h1>The thing of %s</h1><p>Some words on %s</p>`, r.URL.Path, r.URL.Path)
		}
	}))
	t.Cleanup(site.Close)
	def := testutil.Must(definition.Parse("shop.example.yaml", []byte(`
site: shop.example
base_url: `+site.URL+`
start: [/list]
listing: {links: a}
records: {item: {fields: {name: h1, price: .price}}}
politeness: {delay: 0s, robots: false}
retries: {attempts: 1}
`)))(t)
	client := tasks.NewClient(redistest.New(t))
	s := testutil.Must(sites.NewService(sites.NewRegistry(def), sites.Config{Client: client, OutDir: t.TempDir()}))(t)
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), client.Close()); err != nil {
			t.Error(err)
		}
	})
	mux := tasks.NewMux()
	s.Register(mux)
	worker := testutil.Must(tasks.NewWorker(client, mux, tasks.WorkerConfig{Queues: map[string]int{sites.Queue: 1}, Concurrency: 4}))(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	testutil.Must(s.Send(ctx, "shop.example", sites.ScrapeOptions{}))(t)
	testutil.Eventually(t, "the job is over", func() bool {
		jobs, err := s.Jobs(ctx, "", 10)
		return err == nil && len(jobs) == 1 && jobs[0].Over()
	})
	stop()
	testutil.Ok(t, <-ended)
	return Config{Client: client, Sites: s}
}

// getJSON decodes the response to a GET of path.
func getJSON(t *testing.T, h http.Handler, path string, into any) {
	t.Helper()
	w := ask(t, h, "GET", path)
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%s: got %d %s, want 200 and JSON", path, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func TestSitesOfTheAPI(t *testing.T) {
	t.Parallel()
	h := handler(t, scraped(t))
	var all struct{ Data []sites.State }
	var shop Site
	getJSON(t, h, "/v1/sites", &all)
	getJSON(t, h, "/v1/sites/shop.example?limit=1", &shop)
	if len(all.Data) != 1 || all.Data[0].Health != report.Critical || all.Data[0].Job.Summary != nil || len(shop.Jobs) != 1 {
		t.Fatalf("got %+v and %d jobs, want a critical site without a summary, and a job", all.Data, len(shop.Jobs))
	}
	fields := shop.Fields
	if len(fields) != 2 || fields[0].Field != "item.name" || fields[0].Found != 1 || fields[1].Found != 0 || len(shop.Runs) != 1 {
		t.Errorf("got fields %+v, %d runs; want item.name in all records, a second in none, 1 run", fields, len(shop.Runs))
	}
	if alerts := strings.Join(shop.Alerts, "; "); !strings.Contains(alerts, "errors: 20 %") {
		t.Errorf("got alerts %q, want the share of errors", alerts)
	}
	var got sites.Job
	getJSON(t, h, "/v1/scrapes/"+shop.Jobs[0].ID, &got)
	if got.Summary == nil || got.Summary.Records != 3 || got.Summary.Errors != 1 {
		t.Errorf("got %+v, want a summary of 3 records and 1 error", got)
	}
}

func TestSitesThatAreNotThere(t *testing.T) {
	t.Parallel()
	cfg := setup(t)
	s := testutil.Must(sites.NewService(nil, sites.Config{Client: cfg.Client, OutDir: t.TempDir()}))(t)
	defer s.Close()
	cfg.Sites = s
	h := handler(t, cfg)
	for path, c := range map[string]struct {
		code int
		says string
	}{
		"/v1/sites/quotes.toscrape.con":           {404, `did you mean \"quotes.toscrape.com\"?`},
		"/v1/sites/quotes.toscrape.com?limit=0":   {400, "query.limit"},
		"/v1/sites/quotes.toscrape.com?limit=501": {400, "query.limit"},
		"/v1/sites?site=x":                        {400, "query.site"},
		"/api/sites":                              {404, "/openapi.json"},
		"/ui/sites/nowhere":                       {404, "no site"},
		"/ui/jobs/none":                           {404, "The page does not exist"},
		"/ui/sites":                               {200, "muster scrape SITE"},
		"/v1/sites/quotes.toscrape.com":           {200, `"health":""`},
	} {
		if w := ask(t, h, "GET", path); w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s: %d, want %d and %q:\n%s", path, w.Code, c.code, c.says, w.Body)
		}
	}
	if w := ask(t, h, "GET", "/"); w.Code != http.StatusFound || w.Header().Get("Location") != "/ui/" {
		t.Errorf("/: got %d to %q, want 302 to /ui/", w.Code, w.Header().Get("Location"))
	}
	cfg.Write = true
	if w := ask(t, handler(t, cfg), "POST", "/v1/sites"); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: got %d, Allow %q; want 405, GET and HEAD", w.Code, w.Header().Get("Allow"))
	}
	cfg.Gate = gate(t, "a key that is long enough for tests")
	h = handler(t, cfg)
	for _, path := range []string{"/", "/v1/sites", "/ui/sites/x", "/ui/jobs/x", "/ui/assets/style.css", "/openapi.json", "/nowhere"} {
		if w := ask(t, h, "GET", path); w.Code != http.StatusUnauthorized {
			t.Errorf("%s without the key: %d", path, w.Code)
		}
	}
}

// Pages and JSON report an unavailable Redis.
func TestSitesWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	client := testutil.Must(tasks.Connect(t.Context(), server.URL()))(t)
	defer client.Close()
	s := testutil.Must(sites.NewService(nil, sites.Config{Client: client, OutDir: t.TempDir()}))(t)
	defer s.Close()
	h := handler(t, Config{Client: client, Sites: s})
	server.Kill()
	for path, says := range map[string]string{"/ui/": "Redis is unavailable", "/v1/sites": `"code":"unavailable"`, "/ready": `"redis":"away"`} {
		if w := ask(t, h, "GET", path); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), says) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestScrapesOverHTTP(t *testing.T) {
	t.Parallel()
	cfg := setup(t)
	cfg.Write = true
	s, err := sites.NewService(nil, sites.Config{Client: cfg.Client, OutDir: t.TempDir()})
	testutil.Ok(t, err)
	t.Cleanup(func() { _ = s.Close() })
	cfg.Sites = s
	c, ctx, site := apiClient(t, cfg), t.Context(), "quotes.toscrape.com"
	code := func(err error) string {
		if p, ok := errors.AsType[*client.Problem](err); ok {
			return p.Code
		}
		return fmt.Sprint(err)
	}
	first, err := client.StartScrape.Call(ctx, c, client.With[client.NewScrape]{Body: client.NewScrape{Site: site, Limit: 3}})
	if err != nil || first.JobID == "" || first.Joined {
		t.Fatalf("got %+v, %v, want a new scrape", first, err)
	}
	if again, err := client.StartScrape.Call(ctx, c, client.With[client.NewScrape]{Body: client.NewScrape{Site: site, Limit: 3}}); err != nil || again.JobID != first.JobID || !again.Joined {
		t.Errorf("the same again: got %+v, %v, want that it joined %s", again, err, first.JobID)
	}
	if _, err := client.StartScrape.Call(ctx, c, client.With[client.NewScrape]{Body: client.NewScrape{Site: site, Limit: 4}}); code(err) != "scrape_running" {
		t.Errorf("with another limit: got %v, want scrape_running", err)
	}
	if _, err := client.StartScrape.Call(ctx, c, client.With[client.NewScrape]{Body: client.NewScrape{Site: "quotes.toscrape.con"}}); code(err) != "not_found" {
		t.Errorf("an unknown site: got %v, want not_found", err)
	}
	if list, err := client.All(ctx, c, client.ListScrapes, client.ScrapeFilter{Site: site}, 10); err != nil || len(list) != 1 || list[0].ID != first.JobID {
		t.Errorf("got %+v, %v, want the scrape", list, err)
	}
	if j, err := client.GetScrape.Call(ctx, c, client.ScrapePath{ID: first.JobID}); err != nil || j.Site != site {
		t.Errorf("got %+v, %v, want the scrape", j, err)
	}
	if _, err := client.GetScrape.Call(ctx, c, client.ScrapePath{ID: "scrape_x_1"}); code(err) != "job_not_found" {
		t.Errorf("an unknown scrape: got %v, want job_not_found", err)
	}
	if err := client.PauseSite.Do(ctx, c, client.SiteChange{Site: site}); err != nil {
		t.Errorf("pause: %v", err)
	}
	if paused, err := s.PausedSites(ctx); err != nil || len(paused) != 1 {
		t.Errorf("got %v, %v, want a paused site", paused, err)
	}
	if err := client.ResumeSite.Do(ctx, c, client.SiteChange{Site: site}); err != nil {
		t.Errorf("resume: %v", err)
	}
	if err := client.PauseSite.Do(ctx, c, client.SiteChange{Site: "nowhere"}); code(err) != "not_found" {
		t.Errorf("pause an unknown site: got %v, want not_found", err)
	}
	if _, err := client.CancelScrape.Call(ctx, c, client.ScrapeChange{ScrapePath: client.ScrapePath{ID: first.JobID}}); err != nil {
		t.Errorf("cancel: %v", err)
	}
	next, err := client.ResumeScrape.Call(ctx, c, client.ScrapeChange{ScrapePath: client.ScrapePath{ID: first.JobID}})
	if err != nil || next.JobID == first.JobID {
		t.Errorf("got %+v, %v, want a scrape that continues %s", next, err, first.JobID)
	}
}
