package ui

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/orchestrator/access"
	"muster/sites"
	"muster/sites/definition"
	"muster/tasks"
)

func TestPagesShowTheSystem(t *testing.T) {
	t.Parallel()
	w := newSystem(t)
	w.addProxies(120)
	testutil.Eventually(t, "a job is stuck", func() bool {
		stuck, err := w.cfg.Jobs.Stuck(t.Context())
		return err == nil && len(stuck) > 0
	})
	if err := w.cfg.Client.Redis().SAdd(t.Context(), "asynq:queues", "default").Err(); err != nil { // like asynq's client
		t.Fatal(err)
	}
	for _, path := range []string{"/ui/", "/ui/tasks/queues/default"} {
		if strings.Contains(w.shows(path, http.StatusOK), "asynqmon") {
			t.Errorf("%s has a link to asynqmon without tasks of asynq", path)
		}
	}
	if err := w.cfg.Client.Redis().LPush(t.Context(), "asynq:{default}:pending", "t1").Err(); err != nil { // like asynq's client
		t.Fatal(err)
	}
	proxy := proxyURL(w.first())
	for path, texts := range map[string][]string{
		"/ui/": {"workers", "none is up", "shop.example", "errors: 20 %", "it is stuck in create: no agent of role creator", "no creator &lt;script&gt;", "1 failed",
			"Proxies ready", `<span>To do</span><b>1</b>`, `To do <span class="count">1<`, `href="/ui/jobs/` + w.failed + `"`},
		"/ui/sites":                     {"shop.example", "idle.example", "critical", "5 of 5", scrapeURL(w.scrape), "errors: 20 %"},
		"/ui/sites/shop.example":        {"item.price", "errors: 20 %", w.scrape, `d="M0,`, "Pages/s", "Scrape now…"},
		"/ui/sites/idle.example":        {"not known", "muster scrape idle.example"},
		"/ui/scrapes":                   {w.scrape, `<tr id="s-` + w.scrape + `">`, "1 in the last week"},
		"/ui/scrapes?site=idle.example": {"None in the last week", `<a href="/ui/scrapes">show all</a>`},
		"/ui/scrapes/" + w.scrape:       {"complete", "418", "/item/0", "The thing of /item/1", "&lt;script&gt;", "Retry failed pages…", "<h3>item</h3>", "New", "Gone"},
		"/ui/proxies":                   {"120", "socks5", "elite", "BG", "120 are selected", "ada:***@192.0.2.7:3128", "from=50"},
		"/ui/proxies?from=100":          {"Page before", "198.51.0.118"},
		"/ui/proxies?country=BG":        {"1 are selected", "192.0.2.7:3128"},
		"/ui/proxies?state=banned":      {"No proxy is selected"},
		"/ui/proxies/sources":           {"list.txt &lt;script&gt;", "not read yet"},
		proxy:                           {"ada:***@192.0.2.7:3128", "1 are selected", "Ban…"},
		"/ui/search":                    {"an id or a whole name"},
		"/ui/search?q=%3Cscript%3E":     {"Nothing has the id or name “&lt;script&gt;”", "/ui/jobs?name=%3cscript%3e"},
		"/ui/tasks/":                    {"Overview"},
		"/ui/tasks/queues/default":      {`href="/asynqmon/queues/default"`, "1 of plain asynq clients"},
	} {
		w.shows(path, http.StatusOK, texts...)
	}
	for path, code := range map[string]int{
		"/ui/nothing": 404, "/ui/sites/none.example": 404, "/ui/sites/%3Cscript%3E": 404, "/ui/scrapes/none": 404, "/ui/scrapes?from=x": 400, "/ui/proxies?from=-1": 400,
		"/ui/proxies/http:%2F%2F192.0.2.99:80/ban": 404,
		"/ui/search?q=" + strings.Repeat("a", 201): 400,
	} {
		w.shows(path, code)
	}
	w.role = access.Viewer
	for _, path := range []string{"/ui/", "/ui/tasks/", "/ui/sites/shop.example", "/ui/scrapes/" + w.scrape, "/ui/proxies", proxy} {
		if body := w.shows(path, http.StatusOK); strings.Contains(body, "…</a>") {
			t.Errorf("%s: got a page with actions that a viewer may not perform", path)
		}
	}
}

func TestSearchLeadsToWhatHasTheId(t *testing.T) {
	t.Parallel()
	w := newSystem(t)
	w.addProxies(3)
	run := testutil.Must(tasks.New[string, string]("test.sent").S("x").Send(t.Context(), w.cfg.Client, tasks.ID("a-workflow")))(t)
	for q, want := range map[string]string{
		"shop.example": siteURL("shop.example"), w.scrape: scrapeURL(w.scrape), w.failed: "/ui/jobs/" + w.failed,
		run.ID(): "/ui/tasks/workflows/a-workflow", run.ID() + "/0": "/ui/tasks/workflows/a-workflow/nodes/0",
		w.first().ID: proxyURL(w.first()), "192.0.2.7:3128": proxyURL(w.first()), " 192.0.2.7 ": proxyURL(w.first()),
	} {
		rec := w.ask("GET", "/ui/search?q="+url.QueryEscape(q), "")
		if rec.Code != http.StatusSeeOther || rec.Header().Get("Location") != want {
			t.Errorf("%s: got %d to %q, want it to lead to %s", q, rec.Code, rec.Header().Get("Location"), want)
		}
	}
}

func TestSitesAreChanged(t *testing.T) {
	t.Parallel()
	w := newSystem(t)
	ctx := t.Context()
	paused := func() bool {
		names, err := w.cfg.Sites.PausedSites(ctx)
		return err == nil && len(names) == 1 && names[0] == "shop.example"
	}
	if to := w.leads("/ui/sites/shop.example/pause", nil); to != siteURL("shop.example") || !paused() {
		t.Errorf("pause: got to %s, paused %v", to, paused())
	}
	w.shows("/ui/", http.StatusOK, "it is paused")
	if w.leads("/ui/sites/shop.example/resume", nil); paused() {
		t.Error("got a paused site after it was resumed")
	}
	to := w.leads("/ui/scrapes/"+w.scrape+"/retry", nil)
	j, err := w.cfg.Sites.Job(ctx, strings.TrimPrefix(to, scrapesURL+"/"))
	if err != nil || j.Resumes != w.scrape {
		t.Fatalf("retry: got to %s: %+v, %v, want a job that continues %s", to, j, err, w.scrape)
	}
	if rec := w.do("/ui/scrapes/"+w.scrape+"/retry", nil); rec.Code != http.StatusBadRequest || !strings.Contains(rec.Body.String(), "is running") {
		t.Errorf("a second retry: got %d %s, want the error that one is running", rec.Code, rec.Body)
	}
	if again := w.leads("/ui/sites/shop.example/run", url.Values{"limit": {"0"}}); again != to {
		t.Errorf("run beside another: got to %s, want %s", again, to)
	}
	if w.leads("/ui/scrapes/"+j.ID+"/cancel", nil); !canceled(t, w, j.ID) {
		t.Error("got a scrape that continues after it was canceled")
	}
	to = w.leads("/ui/sites/idle.example/run", url.Values{"limit": {"7"}, "direct": {"yes"}})
	if j, err := w.cfg.Sites.Job(ctx, strings.TrimPrefix(to, scrapesURL+"/")); err != nil || j.Site != "idle.example" || j.Direct == "" {
		t.Errorf("run: got to %s: %+v, %v, want a direct scrape of idle.example", to, j, err)
	}
	if rec := w.do("/ui/sites/idle.example/run", url.Values{"limit": {"-1"}}); rec.Code != http.StatusBadRequest {
		t.Errorf("a limit of -1: got %d, want 400", rec.Code)
	}
	if rec := w.ask("POST", "/ui/sites/shop.example/pause", "muster_form=x"); rec.Code != http.StatusForbidden || paused() {
		t.Errorf("without a token: got %d, want 403", rec.Code)
	}
}

func canceled(t *testing.T, w *system, id string) bool {
	t.Helper()
	j, err := w.cfg.Sites.Job(t.Context(), id)
	return err == nil && j.Status == sites.JobCanceled
}

func TestProxiesAreChanged(t *testing.T) {
	t.Parallel()
	w := newSystem(t)
	w.addProxies(3)
	at := poolURL + "/" + url.PathEscape(w.first().ID)
	w.leads(at+"/ban", url.Values{"site": {"shop.example"}, "for": {"1h"}})
	w.leads(at+"/ban", url.Values{"site": {""}, "for": {"0s"}})
	w.shows("/ui/proxies?state=banned", http.StatusOK, "1 are selected")
	w.shows(at+"/unban", http.StatusOK, "all sites", `<option value="shop.example">`)
	w.leads(at+"/unban", url.Values{"site": {""}})
	w.leads(at+"/unban", url.Values{"site": {"shop.example"}})
	if rec := w.do(at+"/unban", nil); rec.Code != http.StatusBadRequest || !strings.Contains(rec.Body.String(), "no such ban") {
		t.Errorf("not banned: got %d %s, want the reason", rec.Code, rec.Body)
	}
	w.shows("/ui/proxies?state=banned", http.StatusOK, "No proxy is selected")
	for _, path := range []string{at + "/recheck", "/ui/proxies/recheck"} {
		if rec := w.do(path, nil); rec.Code != http.StatusBadRequest || !strings.Contains(rec.Body.String(), "proxies.judges") {
			t.Errorf("%s without a judge: got %d %s, want the reason", path, rec.Code, rec.Body)
		}
	}
	w.judge.Store(true)
	for _, path := range []string{at + "/recheck", "/ui/proxies/recheck", "/ui/proxies/refresh"} {
		to := w.leads(path, nil)
		if _, err := w.cfg.Client.Workflow(strings.TrimPrefix(to, "/ui/tasks/workflows/")).Progress(t.Context()); err != nil {
			t.Errorf("%s: got to %s: %v, want a workflow", path, to, err)
		}
	}
	for name, form := range map[string]url.Values{"a negative time": {"for": {"-1h"}}, "no time": {}, "an unknown site": {"for": {"1h"}, "site": {"none.example"}}} {
		if rec := w.do(at+"/ban", form); rec.Code != http.StatusBadRequest && rec.Code != http.StatusNotFound {
			t.Errorf("ban with %s: got %d", name, rec.Code)
		}
	}
	testutil.Must(w.cfg.Proxies.Remove(t.Context(), w.first().ID))(t)
	w.shows(at+"/ban", http.StatusNotFound)
}

// Pages stay small with many sites, and link to the rest.
func TestLongListsAreCut(t *testing.T) {
	t.Parallel()
	client := tasks.NewClient(redistest.New(t))
	var defs []*definition.Definition
	for i := range 300 {
		def := testutil.Must(definition.Parse("x.yaml", fmt.Appendf(nil, "site: s%d.example\nbase_url: http://s%d.example\nstart: [/]\nlisting: {links: a}\nrecords: {item: {fields: {name: h1}}}\n", i, i)))(t)
		defs = append(defs, def)
	}
	service := testutil.Must(sites.NewService(sites.NewRegistry(defs...), sites.Config{Client: client, OutDir: t.TempDir()}))(t)
	t.Cleanup(func() {
		if err := errors.Join(service.Close(), client.Close()); err != nil {
			t.Error(err)
		}
	})
	w := &system{t: t, role: access.Admin, mux: http.NewServeMux(), cfg: Config{Client: client, Sites: service, Write: true, Logger: slog.New(slog.DiscardHandler)}}
	for _, r := range Routes(w.cfg) {
		w.mux.Handle(r.Pattern, r.Handler)
	}
	for i := range 130 {
		testutil.Ok(t, service.PauseSite(t.Context(), fmt.Sprintf("s%d.example", i)))
	}
	for path, rows := range map[string]int{"/ui/sites": sitesAtOnce + idleAtOnce, "/ui/sites?from=120": 10 + idleAtOnce} {
		if body := w.shows(path, http.StatusOK, " more"); strings.Count(body, "<tr")-strings.Count(body, "<thead>") != rows {
			t.Errorf("%s: got %d rows, want %d", path, strings.Count(body, "<tr")-strings.Count(body, "<thead>"), rows)
		}
	}
	w.shows("/ui/sites", http.StatusOK, "from=40")
	w.shows("/ui/", http.StatusOK, "it is paused")
}
