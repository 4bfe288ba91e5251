package ui

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/pipeline"
	"muster/orchestrator/access"
	"muster/orchestrator/health"
	"muster/proxies"
	"muster/proxies/source"
	"muster/sites"
	"muster/sites/definition"
	"muster/tasks"
)

// harmful is a text that would do harm if it were not shown as text.
const harmful = "<script>alert(1)</script>\u202Egnp.exe\x1b[31m"

const (
	aProxy  = "http://192.0.2.7:3128"
	aSecret = "hush-hush"
)

// someJobs returns jobs of which one failed, one has an item in review, and one is stuck.
func someJobs(t testing.TB, client *tasks.Client) (s *jobs.Service, failed string) {
	t.Helper()
	ctx := t.Context()
	s = testutil.Must(jobs.New(jobs.Config{Client: client, Pipelines: pipelines(t).Get, Limits: jobs.Limits{StuckAfter: time.Second}, Roles: func(context.Context) (map[string]int, error) { return nil, nil }}))(t)
	w := &world{Service: s, t: t, ctx: ctx}
	create := func(name string) string {
		id := w.create(name, "p").ID
		testutil.Ok(t, s.Sweep(ctx))
		return id
	}
	create("careful")
	w.emit(jobs.NewItem{Key: "a", Text: "t"})
	w.fail("unclear")
	failed = create(pipeline.Default)
	testutil.Must(s.CompleteStage(ctx, failed, "create", "no creator "+harmful))(t)
	create(pipeline.Default)
	testutil.Ok(t, s.Sweep(ctx))
	return s, failed
}

// system is an orchestrator with two sites, of which one was scraped, a pool, and pages.
type system struct {
	t      testing.TB
	mux    *http.ServeMux
	cfg    Config
	server *redistest.Instance
	scrape string // the id of the job
	failed string // the id of another job
	role   access.Role
	routes []Route
	judge  atomic.Bool // whether proxies can be checked
}

// newSystem scrapes a site where one page in four fails.
func newSystem(t testing.TB) *system {
	t.Helper()
	shop := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/list":
			for i := range 4 {
				fmt.Fprintf(w, `<a href="/item/%d">The item number %d</a>`, i, i)
			}
		case "/item/0":
			http.Error(w, "no", http.StatusTeapot)
		default:
			fmt.Fprintf(w, `<h1>The thing of %s</h1><p>%s</p>`, r.URL.Path, "&lt;script&gt;alert(1)&lt;/script&gt;")
		}
	}))
	var defs []*definition.Definition
	for _, name := range []string{"shop.example", "idle.example"} {
		def, err := definition.Parse(name+".yaml", fmt.Appendf(nil, `
site: %s
base_url: %s
start: [/list]
listing: {links: a}
records: {item: {fields: {name: h1, text: p, price: .price}}}
politeness: {delay: 0s, robots: false}
retries: {attempts: 1}
`, name, shop.URL))
		testutil.Ok(t, err)
		defs = append(defs, def)
	}
	server := redistest.Server(t)
	client := tasks.NewClient(server.Client())
	service := testutil.Must(sites.NewService(sites.NewRegistry(defs...), sites.Config{Client: client, OutDir: t.TempDir()}))(t)
	t.Cleanup(func() {
		if err := errors.Join(service.Close(), client.Close()); err != nil {
			t.Error(err)
		}
	})
	index, failed := someJobs(t, client)
	w := &system{t: t, server: server, failed: failed, role: access.Admin, mux: http.NewServeMux()}
	pool, err := proxies.NewService(proxies.Config{
		Pool: proxies.NewPool(proxies.PoolConfig{Redis: client.Redis()}), Client: client,
		Settings: func() proxies.Settings {
			return proxies.Settings{Sources: []source.Source{{URL: "https://lists.example/", Name: "list.txt " + harmful}}, CanCheck: w.judge.Load()}
		},
	})
	testutil.Ok(t, err)
	w.cfg = Config{
		Client: client, Sites: service, Proxies: pool, Jobs: index,
		Write: true, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Check: func(context.Context) health.Report {
			return health.Report{Status: health.Failed, Checks: []health.Result{{Name: "redis", Status: health.OK, Detail: "4 ms"}, {Name: "workers", Status: health.Failed, Error: "none is up"}}}
		},
	}
	w.runScrape(service)
	w.routes = Routes(w.cfg)
	for _, r := range w.routes {
		w.mux.Handle(r.Pattern, r.Handler)
	}
	return w
}

// runScrape scrapes a site with a worker, and waits until both have ended.
func (w *system) runScrape(service *sites.Service) {
	w.t.Helper()
	mux := tasks.NewMux()
	service.Register(mux)
	worker := testutil.Must(tasks.NewWorker(w.cfg.Client, mux, tasks.WorkerConfig{Queues: map[string]int{sites.Queue: 1}, Concurrency: 4}))(w.t)
	ctx, stop := context.WithCancel(w.t.Context())
	over := make(chan error, 1)
	go func() { over <- worker.Run(ctx) }()
	run, err := service.Send(ctx, "shop.example", sites.ScrapeOptions{})
	if err == nil {
		w.scrape = run.ID()
		testutil.Eventually(w.t, "the scrape to end", func() bool {
			j, err := service.Job(ctx, run.ID())
			return err == nil && j.Summary != nil
		})
	}
	stop()
	testutil.Ok(w.t, errors.Join(err, <-over))
}

// ask sends a request as a caller with the role of the system.
func (w *system) ask(method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, "http://localhost"+path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, c := range change {
		c(r)
	}
	r = r.WithContext(access.WithCaller(r.Context(), access.Caller{Name: "ada", ID: "k1", Role: w.role}))
	rec := httptest.NewRecorder()
	w.mux.ServeHTTP(rec, r)
	return rec
}

// shows checks that a page contains texts, properly escaped.
func (w *system) shows(path string, code int, texts ...string) string {
	w.t.Helper()
	rec := w.ask("GET", path, "")
	body := rec.Body.String()
	if rec.Code != code {
		w.t.Errorf("%s: got %d, want %d: %.800s", path, rec.Code, code, body)
	}
	for _, text := range texts {
		if !strings.Contains(body, text) {
			_, main, _ := strings.Cut(body, "<main")
			w.t.Errorf("%s: got a page without %q: %.3000s", path, text, main)
		}
	}
	for _, bad := range []string{"<script>alert", "\u202E", "\x1b", aSecret} {
		if strings.Contains(body, bad) {
			w.t.Errorf("%s: got a page with %q", path, bad)
		}
	}
	if len(body) > 150<<10 {
		w.t.Errorf("%s: got a page of %d bytes, want at most 150 KiB", path, len(body))
	}
	return body
}

var tokenField = regexp.MustCompile(`name="muster_form" value="([0-9a-f]+)"`)

// do opens the form of an action, submits it, and returns the response.
func (w *system) do(path string, fields url.Values) *httptest.ResponseRecorder {
	w.t.Helper()
	q := w.ask("GET", path, "")
	token := tokenField.FindStringSubmatch(q.Body.String())
	if q.Code != http.StatusOK || token == nil {
		w.t.Fatalf("%s: got %d %.500s, want a question", path, q.Code, q.Body)
	}
	form := url.Values{"muster_form": {token[1]}}
	for name, values := range fields {
		form[name] = values
	}
	return w.ask("POST", path, form.Encode(), func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "muster_form", Value: token[1]}) })
}

// leads checks that a change was done, and returns the page that it leads to.
func (w *system) leads(path string, fields url.Values) string {
	w.t.Helper()
	rec := w.do(path, fields)
	if rec.Code != http.StatusSeeOther {
		w.t.Fatalf("%s: got %d %.500s, want it to lead to a page", path, rec.Code, rec.Body)
	}
	return rec.Header().Get("Location")
}

// addProxies fills the pool with n members, of which the first has a password and failed at a site.
func (w *system) addProxies(n int) {
	w.t.Helper()
	list := []proxies.Proxy{{Candidate: proxies.Candidate{Protocol: "http", Host: "192.0.2.7", Port: 3128, Username: "ada", Password: aSecret, Country: "BG", Sources: []string{harmful}}, Anonymity: "elite", LatencyMS: 120, CheckedAt: time.Now()}}
	for i := range n - 1 {
		list = append(list, proxies.Proxy{Candidate: proxies.Candidate{Protocol: "socks5", Host: fmt.Sprintf("198.51.%d.%d", i>>8, i&255), Port: 1080, Country: "FR"}, Anonymity: "anonymous", LatencyMS: float64(500 + i)})
	}
	testutil.Must(w.cfg.Proxies.Add(w.t.Context(), list...))(w.t)
}

// first returns the member with a password.
func (w *system) first() proxies.Member {
	w.t.Helper()
	found, err := w.cfg.Proxies.Find(w.t.Context(), "192.0.2.7:3128")
	if err != nil || len(found) != 1 {
		w.t.Fatalf("got %v, %v, want the first proxy", found, err)
	}
	return found[0]
}
