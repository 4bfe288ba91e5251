package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/addressfilter"
	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/orchestrator/api/client"
	"muster/orchestrator/webhook"
	"muster/sites"
	"muster/sites/definition"
	"muster/sites/report"
	"muster/tasks"
)

// scraped returns a config on a Redis where a site was scraped, with one page in four failed.
func scraped(t *testing.T) Config {
	t.Helper()
	site := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	dir := t.TempDir()
	testutil.Ok(t, os.WriteFile(filepath.Join(dir, "torn.yaml"), []byte("site: torn\nstart: 7"), 0o600))
	s := testutil.Must(sites.NewService(testutil.Must(sites.LoadRegistry(dir, true))(t), sites.Config{Client: cfg.Client, OutDir: t.TempDir()}))(t)
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
	if _, err := client.StartScrape.Call(ctx, c, client.With[client.NewScrape]{Body: client.NewScrape{Site: "torn"}}); code(err) != "invalid_definition" {
		t.Errorf("a site with an invalid definition: got %v, want invalid_definition", err)
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

// webhooks returns a service with the webhook ops, which sends to public addresses and those allowed.
func webhooks(t testing.TB, cfg Config, url string, allow ...string) *webhook.Service {
	t.Helper()
	filter := testutil.Must(addressfilter.New(allow...))(t)
	hooks, err := webhook.New(webhook.Config{
		Redis: cfg.Client.Redis(), Filter: filter, Max: 2,
		Static: []webhook.Static{{NewEndpoint: webhook.NewEndpoint{Name: "fixed", URL: url, Events: []string{"job.deleted"}}, Secrets: []string{"whsec_" + strings.Repeat("A", 32)}}},
	})
	testutil.Ok(t, err)
	if _, _, err := hooks.Create(t.Context(), webhook.NewEndpoint{Name: "ops", URL: url}); err != nil {
		t.Fatal(err)
	}
	return hooks
}

func TestWebhooksOverHTTP(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	cfg := setup(t)
	cfg.Write, cfg.Webhooks = true, webhooks(t, cfg, receiver.URL, receiver.Listener.Addr().String())
	h := handler(t, cfg)
	expect := func(method, path, body string, status int, want string) fieldsOf {
		t.Helper()
		w := post(t, h, method, path, []byte(body))
		if w.Code != status || !strings.Contains(w.Body.String(), want) {
			t.Fatalf("%s %s: got %d %s, want %d with %s", method, path, w.Code, w.Body, status, want)
		}
		if w.Body.Len() == 0 {
			return nil
		}
		return decode(t, w)
	}
	created := expect("POST", "/v1/webhooks", `{"url":"`+receiver.URL+`","events":["job.*"]}`, 201, `"secret":"whsec_`)
	id, _ := created["id"].(string)
	expect("GET", "/v1/webhooks", "", 200, `"name":"ops"`)
	expect("GET", "/v1/webhooks/"+id, "", 200, `"state":"active"`)
	expect("GET", "/v1/webhooks/ops", "", 200, `"name":"ops"`)
	expect("GET", "/v1/webhooks/none", "", 404, "no such webhook")
	expect("PATCH", "/v1/webhooks/ops", `{"secrets":["short"]}`, 400, "body.secrets")
	expect("PATCH", "/v1/webhooks/ops", `{"format":"mail"}`, 400, "body.format")
	expect("PATCH", "/v1/webhooks/ops", `{"format":"slack"}`, 200, `"format":"slack"`)
	expect("PATCH", "/v1/webhooks/ops", `{"disabled":true}`, 200, `"state":"disabled"`)
	expect("POST", "/v1/webhooks/ops/test", "", 409, `"code":"webhook_disabled"`)
	expect("PATCH", "/v1/webhooks/ops", `{"disabled":false}`, 200, `"state":"active"`)

	sent := expect("POST", "/v1/webhooks/ops/test", "", 200, `"state":"pending"`)
	again := "/v1/webhooks/ops/deliveries/" + sent["id"].(string) + "/redeliver"
	expect("POST", again, "", 409, `"code":"delivery_not_ended"`)
	t.Cleanup(testutil.Background(t, cfg.Webhooks.Run))
	testutil.Eventually(t, "the delivery", func() bool {
		return strings.Contains(ask(t, h, "GET", "/v1/webhooks/ops/deliveries?state=delivered").Body.String(), `"type":"webhook.test"`)
	})
	expect("POST", again, "", 200, `"redelivered":1`)
	expect("POST", "/v1/webhooks/ops/deliveries/none/redeliver", "", 404, "no such delivery")
	expect("POST", "/v1/webhooks/ops/test", "", 200, `"type":"webhook.test"`)
	first := expect("GET", "/v1/webhooks/ops/deliveries?limit=1", "", 200, `"next":"`)
	expect("GET", "/v1/webhooks/ops/deliveries?limit=1&cursor="+first["next"].(string), "", 200, `"redelivered":1`)
	expect("GET", "/v1/webhooks/ops/deliveries?state=failed", "", 200, `{"data":[]`)
	expect("GET", "/v1/webhooks/ops/deliveries?state=lost", "", 400, "query.state")
	expect("POST", "/v1/webhooks", `{"url":"`+receiver.URL+`"}`, 409, `"code":"too_many_webhooks"`)
	expect("PATCH", "/v1/webhooks/fixed", `{"format":"slack"}`, 409, `"code":"webhook_static"`)
	expect("DELETE", "/v1/webhooks/"+id, "", 204, "")
	expect("GET", "/v1/webhooks/"+id, "", 404, "")
}
