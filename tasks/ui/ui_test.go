package ui

import (
	"context"
	"errors"
	"fmt"
	"html"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/internal/store"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

func TestMain(m *testing.M) { redistest.Main(m, func() error { return goleak.Find() }) }

var (
	inc     = tasks.New[int, int]("u.inc")
	sum     = tasks.New[[]int, int]("u.sum")
	bad     = tasks.New[int, int]("u.bad", tasks.MaxRetry(0))
	fails   = tasks.New[string, string]("u.fails", tasks.MaxRetry(0))
	text    = tasks.New[string, string]("u.text")
	ask     = tasks.New[string, string]("u.ask", tasks.External(), tasks.MaxRetry(0), tasks.Timeout(0))
	approve = tasks.New[string, string]("u.approve", tasks.External(), tasks.Timeout(0), tasks.Choice("Approve", "yes"), tasks.Choice("Refuse", "no"))
	shaky   = tasks.New[string, int]("u.shaky", tasks.MaxRetry(1), tasks.ConstantBackoff(0))
)

const hostile = "<script>alert(1)</script>\u202Egnp.exe\x1b[31m"

// fleet returns a fleet with some tasks and a handler for its pages below /tasks.
func fleet(t *testing.T, cfg Config) (*taskstest.Fleet, http.Handler) {
	t.Helper()
	mux := tasks.NewMux()
	tasks.Handle(mux, inc, func(_ context.Context, n int) (int, error) { return n + 1, nil })
	tasks.Handle(mux, sum, func(_ context.Context, ns []int) (int, error) { return len(ns), nil })
	tasks.Handle(mux, bad, func(context.Context, int) (int, error) { return 0, errors.New(hostile) })
	tasks.Handle(mux, fails, func(_ context.Context, s string) (string, error) { return "", errors.New(s) })
	logger := slog.New(tasks.LogHandler(slog.NewTextHandler(io.Discard, nil)))
	tasks.Handle(mux, text, func(ctx context.Context, s string) (string, error) {
		logger.WarnContext(ctx, "<i>got</i>", "text", s)
		return s, nil
	})
	texts := []string{"attempt one", "attempt two"}
	tasks.Handle(mux, shaky, func(ctx context.Context, _ string) (int, error) {
		said := texts[0]
		texts = append(texts[1:], said)
		_, err := tasks.Step(ctx, "kept <b>", func(context.Context) (string, error) { return "of " + said, nil })
		return 0, errors.Join(tasks.Emit(ctx, "output of "), tasks.Emit(ctx, said), tasks.Save(ctx, "saved "+said), err, errors.New(said))
	})
	f := taskstest.New(t, mux)
	cfg.Prefix = "/tasks"
	return f, Handler(f.Client(), cfg)
}

func get(t *testing.T, h http.Handler, path string) (code int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/tasks"+path, nil))
	return w.Code, w.Body.String()
}

func TestPages(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, Config{})
	run := sent(t, f, tasks.Chord(tasks.Each([]int{1, 2, 3}, inc), sum))
	f.Drain()
	testutil.Ok(t, f.Client().SetLimit(t.Context(), "billing-api", "acme", 0))
	at := "/workflows/" + run.ID()
	nodes := testutil.Must(run.Nodes(t.Context()))(t)
	for path, wants := range map[string][]string{
		"/":                                     {"Overview", "Latest workflows", run.ID()},
		"/workflows":                            {run.ID(), "succeeded"},
		at:                                      {"4 of 4", "u.sum", "u.inc", "Timeline", "Graph", `class="box SUCCESS`},
		at + "?state=SUCCESS":                   {"1 to"},
		at + "?state=FAILURE":                   {"No tasks"},
		at + "/nodes/" + nodes[len(nodes)-1].ID: {"u.sum", "Result", "<pre", "3"},
		"/names":                                {"u.inc", "u.sum"},
		"/queues":                               {"Queues", "billing-api", "acme", ">nothing</span> <small>set</small>"},
		"/workers":                              {"Workers"},
		"/schedule":                             {"No schedules found"},
		"/assets/style.css":                     {"color-scheme"},
		"/assets/live.js":                       {"If-None-Match"},
	} {
		wantIn(t, h, path, wants...)
	}
}

// The navigation has the pages and the links of the program, unless these have the pages.
func TestNavigation(t *testing.T) {
	t.Parallel()
	pages := "Overview /tasks/ Workflows /tasks/workflows To do /tasks/todo Tasks /tasks/names Queues /tasks/queues Workers /tasks/workers Schedules /tasks/schedule"
	shop, link := Link{Text: "Shop", URL: "/shop"}, regexp.MustCompile(`<a href="([^"]*)"[^>]*>([^<]*)</a>`)
	for name, c := range map[string]struct {
		nav  []Link
		want string
	}{
		"none":             {nil, pages},
		"another page":     {[]Link{shop}, pages + " Shop /shop"},
		"and the overview": {[]Link{shop, {Text: "Jobs", URL: "/tasks/"}}, pages + " Shop /shop"},
		"whole":            {append([]Link{shop}, Links("/tasks/")...), "Shop /shop" + strings.TrimPrefix(pages, "Overview /tasks/")},
	} {
		_, h := fleet(t, Config{Nav: c.nav})
		_, body := get(t, h, "/queues")
		head, _, _ := strings.Cut(body, "</header>")
		_, nav, _ := strings.Cut(head, "<nav")
		var got []string
		for _, m := range link.FindAllStringSubmatch(nav, -1) {
			got = append(got, m[2]+" "+m[1])
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
		if strings.Count(nav, `href="/tasks/queues" aria-current="page"`) != 1 {
			t.Errorf("%s: the page is not marked: %s", name, nav)
		}
	}
}

func TestNotFound(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, Config{May: func(*http.Request) bool { return true }})
	run := sent(t, f, inc.S(1))
	for path, want := range map[string]int{
		"/workflows/none":                          http.StatusNotFound,
		"/workflows/none/nodes/0":                  http.StatusNotFound,
		"/workflows/" + run.ID() + "/nodes/99":     http.StatusNotFound,
		"/nothing":                                 http.StatusNotFound,
		"/workflows?state=odd":                     http.StatusBadRequest,
		"/workflows/" + run.ID() + "?state=odd":    http.StatusBadRequest,
		"/workflows/" + run.ID() + "?from=-1":      http.StatusBadRequest,
		"/workflows/" + run.ID() + "?from=9999999": http.StatusOK,
		"/search?q=" + strings.Repeat("a", 300):    http.StatusBadRequest,
		"/workflows?after=odd":                     http.StatusBadRequest,
		"/queues/none/pause":                       http.StatusNotFound,
		"/queues/none/resume":                      http.StatusNotFound,
		"/schedule/none/pause":                     http.StatusNotFound,
	} {
		wantCode(t, h, want, path)
	}
}

// post submits a form of the pages.
func post(t *testing.T, h http.Handler, path, cookie, token string, fields ...string) *httptest.ResponseRecorder {
	t.Helper()
	form := url.Values{"muster_form": {token}}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/tasks"+path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if cookie != "" {
		r.AddCookie(&http.Cookie{Name: "muster_form", Value: cookie})
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// An error page mentions Redis only if it is the cause.
func TestErrorPages(t *testing.T) {
	t.Parallel()
	s := webui.New(Config{}.withDefaults().frame())
	w := httptest.NewRecorder()
	s.Fail(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), errors.New("a template is odd"))
	if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "Redis") {
		t.Errorf("an unknown error: got %d, want 500 without a mention of Redis: %s", w.Code, w.Body)
	}
}

// sent sends a signature.
func sent[O any](t *testing.T, f *taskstest.Fleet, s tasks.Signature[O], opts ...tasks.SendOption) *tasks.Run[O] {
	t.Helper()
	run := testutil.Must(s.Send(t.Context(), f.Client(), opts...))(t)
	return run
}

// A change requires permission, a confirmation and the form token of the browser.
func TestChangesRequirePermissionAndToken(t *testing.T) {
	t.Parallel()
	var did []string
	f, h := fleet(t, Config{
		May:      func(*http.Request) bool { return true },
		OnAction: func(_ *http.Request, action string, err error) { did = append(did, fmt.Sprint(action, " ", err)) },
	})
	run := sent(t, f, inc.S(1))
	path := "/workflows/" + run.ID() + "/revoke"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/tasks"+path, nil))
	if w.Code != http.StatusOK || len(w.Result().Cookies()) != 1 || !strings.Contains(w.Body.String(), "cannot be undone") {
		t.Fatalf("question: got %d, cookies %v:\n%s", w.Code, w.Result().Cookies(), w.Body)
	}
	token := w.Result().Cookies()[0].Value
	for name, c := range map[string][2]string{"no token": {"", ""}, "a short token": {"short", "short"}, "no cookie": {"", token}, "another token": {token, strings.Repeat("0", 32)}} {
		if w := post(t, h, path, c[0], c[1]); w.Code != http.StatusForbidden || len(did) > 0 {
			t.Errorf("%s: got %d, done %v, want 403 and nothing done", name, w.Code, did)
		}
	}
	if w := post(t, h, path, token, token, "number", strings.Repeat("9", 5<<20)); w.Code != http.StatusRequestEntityTooLarge || len(did) > 0 {
		t.Errorf("too long: got %d, done %v, want 413 and nothing done", w.Code, did)
	}
	if w := post(t, h, path, token, token); w.Code != http.StatusSeeOther || fmt.Sprint(did) != "[POST /tasks/workflows/{id}/revoke <nil>]" {
		t.Errorf("got %d, done %v, want one change", w.Code, did)
	}
	if p, err := run.Status(t.Context()); err != nil || p != tasktype.Revoked {
		t.Errorf("got %s, %v, want revoked", p, err)
	}
	_, closed := fleet(t, Config{})
	if w := post(t, closed, path, token, token); w.Code != http.StatusForbidden {
		t.Errorf("without permission: got %d, want 403", w.Code)
	}
}

// Rendering the page of a large waiting workflow takes few Redis commands and bytes. An open page is rendered at most
// once a second, shows all changes, and is not updated after the workflow has completed.
func TestPageOfLargeWorkflowIsReadOnce(t *testing.T) {
	t.Parallel()
	address := redistest.URL(t)
	client := testutil.Must(tasks.Connect(t.Context(), address))(t)
	t.Cleanup(func() { _ = client.Close() })
	mux := tasks.NewMux()
	tasks.Handle(mux, inc, func(ctx context.Context, n int) (int, error) {
		tasks.SetProgress(ctx, 7, 9)
		<-ctx.Done()
		return n, ctx.Err()
	})
	for range 2 {
		w := testutil.Must(tasks.StartWorker(t.Context(), client, mux, tasks.WorkerConfig{Concurrency: 1}))(t)
		t.Cleanup(func() { _ = w.Stop() })
	}
	rdb, traffic := redistest.NewTraffic(t, address)
	h := Handler(tasks.NewClient(rdb), Config{Prefix: "/tasks"})
	const n = 3_000
	run := testutil.Must(tasks.Group(inc.S(1), inc.S(2)).Send(t.Context(), client))(t)
	large := testutil.Must(tasks.Each(make([]int, n), inc, tasks.Queue("none")).Send(t.Context(), client))(t)
	at := "/workflows/" + large.ID()
	wantIn(t, h, at, "0 of 3000", "no live worker takes from queue none")
	traffic.Take()
	const renderings = 3 // of which one can also read the counts of the navigation
	for range renderings {
		wantIn(t, h, at, "0 of 3000")
	}
	if commands, bytes := traffic.Take(); commands > renderings*25 || bytes > renderings*50_000 {
		t.Errorf("%d renderings took %d commands and %d bytes, want at most 25 and 50,000 for each", renderings, commands, bytes)
	}
	testutil.Eventually(t, "the other workflow's page shows progress", func() bool {
		_, body := get(t, h, "/workflows/"+run.ID()+"/nodes/0")
		return strings.Contains(body, "7 of 9")
	})
	for id, total := range map[string]string{run.ID(): "2 of 2", large.ID(): "3\u202f000 of 3\u202f000"} {
		testutil.Ok(t, client.Workflow(id).Revoke(t.Context()))
		wantIn(t, h, "/workflows/"+id, total, "revoked")
		wantIn(t, h, "/workflows/"+id+"/nodes/0", "revoked")
	}
}

// A short list of workflows is read with few commands, however many workflows there are.
func TestShortListTakesFewCommands(t *testing.T) {
	t.Parallel()
	rdb, traffic := redistest.NewTraffic(t, redistest.URL(t))
	client := tasks.NewClient(rdb)
	t.Cleanup(func() { _ = client.Close() })
	for i := range 120 {
		testutil.Must(inc.S(i).Send(t.Context(), client))(t)
	}
	traffic.Take()
	list, _, err := client.Inspect().Workflows(t.Context(), tasktype.WorkflowFilter{State: tasktype.WorkflowRunning, Limit: 10})
	if err != nil || len(list) != 10 {
		t.Fatalf("got %d workflows, %v, want 10", len(list), err)
	}
	if commands, _ := traffic.Take(); commands > 20 {
		t.Errorf("a list of 10 workflows took %d commands, want at most 20", commands)
	}
}

func TestOverviewHasTrouble(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, Config{})
	lone := tasks.New[int, int]("u.lone", tasks.Queue("gpu"))
	sent(t, f, bad.S(1))
	sent(t, f, inc.S(1))
	sent(t, f, ask.S("refund?"))
	f.Drain()
	sent(t, f, lone.S(1))
	if err := f.Client().Redis().SAdd(t.Context(), "asynq:queues", "gpu").Err(); err != nil { // like asynq's client
		t.Fatal(err)
	}
	_, body := get(t, h, "/")
	for _, want := range []string{
		"Queue gpu</a></b>: no live workers; 1 task waiting, stalled for",
		"u.bad</a></b>: all of 1 task failed in the last hour; last error:",
		`<span>Waiting tasks</span><b>1</b>`,
		`<span>To do</span><b>1</b>`,
		`all of 1 task failed in the last hour`,
		`Workflows <span class="count bad">1<span class="off"> failed</span></span></a>`,
		`To do <span class="count">1<span class="off"> open</span></span></a>`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("got %s, want %q in it", body, want)
		}
	}
	if strings.Contains(body, "<script>alert") || strings.Contains(body, "u.inc</a></b>") {
		t.Errorf("got %s, want escaped text and no trouble with u.inc", body)
	}
}

func TestQueues(t *testing.T) {
	t.Parallel()
	got := queueAlerts("/ui", []tasktype.Queue{
		{Name: "busy", Pending: 3, Workers: 2, Latency: time.Hour},
		{Name: "idle"},
		{Name: "gpu/1", Pending: 1249, Latency: 4 * time.Minute},
		{Name: "mail", Pending: 1, Workers: 1, Paused: true},
		{Name: "video", Workers: 1, Unhandled: map[string]int64{"video.cut": 2, "video.blur": 1}},
	})
	want := []Alert{
		{true, "Queue gpu/1", "no live workers; 1\u202f249 tasks waiting, stalled for 4 min 00 s", "/ui/queues/gpu%2F1"},
		{false, "Queue mail", "paused; 1 task waiting", "/ui/queues/mail"},
		{true, "Queue video", "no live worker has a handler for video.blur (1), video.cut (2)", "/ui/queues/video"},
	}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestLimitIsSetAndHeld(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, anyone)
	wantPosted(t, h, http.StatusSeeOther, "/limits/set", "limit", "api", "key", "c1", "n", "3")
	wantPosted(t, h, http.StatusSeeOther, "/limits/hold", "limit", "api", "key", "c1", "for", "1h")
	got, err := f.Client().Inspect().Limits(t.Context(), "api")
	if err != nil || len(got) != 1 || got[0].N != 3 || got[0].Held.IsZero() {
		t.Errorf("got %+v, %v, want 3 and a hold", got, err)
	}
	wantIn(t, h, "/queues", "/limits/set?limit=api&amp;key=c1", "/limits/hold?limit=api&amp;key=c1")
	wantIn(t, h, "/limits/hold?limit=api&key=c1", `value="c1"`, `value="10m"`)
	wantPosted(t, h, http.StatusSeeOther, "/limits/hold", "limit", "api", "key", "c1", "for", "0s")
	wantPosted(t, h, http.StatusSeeOther, "/limits/set", "limit", "api", "key", "c1", "n", "")
	if got, err := f.Client().Inspect().Limits(t.Context(), "api"); err != nil || len(got) != 0 {
		t.Errorf("after the reset: got %+v, %v, want none", got, err)
	}
	for _, wrong := range [][]string{{"/limits/set", "n", "many"}, {"/limits/set", "n", "-1"}, {"/limits/hold", "for", "soon"}, {"/limits/hold", "for", "10000h"}} {
		wantPosted(t, h, http.StatusBadRequest, wrong[0], append(wrong[1:], "limit", "api", "key", "")...)
	}
}

func TestQueueWithoutHandler(t *testing.T) {
	t.Parallel()
	client := tasks.NewClient(redistest.New(t))
	worker := testutil.Must(tasks.StartWorker(t.Context(), client, tasks.NewMux(), tasks.WorkerConfig{}))(t)
	h := Handler(client, Config{Prefix: "/tasks"})
	testutil.Must(inc.S(1).Send(t.Context(), client))(t)
	testutil.Eventually(t, "the page names the task", func() bool {
		_, body := get(t, h, "/queues/default")
		return strings.Contains(body, "No live worker has a handler for "+inc.Name()+" (1)")
	})
	testutil.Ok(t, worker.Stop())
	testutil.Ok(t, client.Close())
}

func TestPagesHaveHistory(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, Config{})
	sent(t, f, inc.S(1))
	f.Drain()
	sent(t, f, inc.S(1, tasks.Queue("gpu")))
	if err := f.Client().Redis().SAdd(t.Context(), "asynq:queues", "gpu").Err(); err != nil { // like asynq's client
		t.Fatal(err)
	}
	s, now := store.New(f.Client().Redis(), store.DefaultNamespace), time.Now()
	for i, n := range []int64{4, 0, 0, 3, 1200} {
		testutil.Ok(t, s.History.Add(t.Context(), now.Add(time.Duration(i-4)*time.Minute), map[tasktype.Measure]map[string]int64{tasktype.PendingTasks: {"gpu": n}}))
	}
	for _, path := range []string{"/", "/queues", "/queues/gpu"} {
		wantIn(t, h, path, `aria-label="Waiting tasks in the last hour: 0 to 1`+"\u202f"+`200"`)
	}
}

// formToken is a form token of a browser.
var formToken = strings.Repeat("a", 32)

// anyone permits all changes.
var anyone = Config{May: func(*http.Request) bool { return true }}

// wantCode checks the status of a page, and returns its body.
func wantCode(t *testing.T, h http.Handler, want int, path string) string {
	t.Helper()
	code, body := get(t, h, path)
	if code != want {
		t.Errorf("%s: got %d, want %d: %.500s", path, code, want, body)
	}
	return body
}

// wantIn checks that a page returns 200 and contains the texts.
func wantIn(t *testing.T, h http.Handler, path string, wants ...string) {
	t.Helper()
	body := wantCode(t, h, http.StatusOK, path)
	for _, want := range wants {
		if !strings.Contains(body, want) {
			t.Errorf("%s: got no %q in\n%.4000s", path, want, body)
		}
	}
}

// wantPosted checks the status of a submitted form.
func wantPosted(t *testing.T, h http.Handler, want int, path string, fields ...string) string {
	t.Helper()
	w := post(t, h, path, formToken, formToken, fields...)
	if w.Code != want {
		t.Errorf("POST %s: got %d, want %d: %.1000s", path, w.Code, want, w.Body)
	}
	return w.Body.String()
}

func TestScheduleIsPut(t *testing.T) {
	t.Parallel()
	_, h := fleet(t, anyone)
	wantIn(t, h, "/schedule", "No schedules found", "New schedule…")
	wantIn(t, h, "/schedule/put", "Times", "CRON_TZ=Europe/Berlin")
	for spec, want := range map[string]int{"0 3 * *": http.StatusBadRequest, "0 3 * * *": http.StatusSeeOther} {
		wantPosted(t, h, want, "/schedule/put", "name", "nightly", "spec", spec, "task", inc.Name(), "input", "1", "queue", "default", "overlap", "skip", "catch_up", "3")
	}
	wantIn(t, h, "/schedule?prefix=night", "nightly", "0 3 * * *", inc.Name(), "overlap: skip", "/tasks/schedule/nightly/delete")
}

// A task is started from a form with the fields of its input, or with JSON.
func TestTaskIsStarted(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, anyone)
	samples := map[string]any{"u.order": `{"queue":"gpu","input":{"id":"","amount":0,"rush":false,"lines":[{"sku":""}]}}`, inc.Name(): `{"input":0}`}
	testutil.Ok(t, store.New(f.Client().Redis(), store.DefaultNamespace).Workers.StoreSamples(t.Context(), samples))
	wantIn(t, h, "/send?task=u.order", `name="input.id" type="text"`, `name="input.amount"`, `type="checkbox" name="input.rush"`, "{&#34;sku&#34;:&#34;&#34;}", `value="gpu"`)
	wantIn(t, h, "/send?task="+inc.Name(), `name="input"`, ">0</textarea>", `value="default"`)
	order := []string{"task", "u.order", "queue", "gpu", "input.id", `a "b"`, "input.amount", "1.5", "input.rush", "yes", "input.lines", "[]"}
	wantPosted(t, h, http.StatusSeeOther, "/send?task=u.order", order...)
	list, _, err := f.Client().Inspect().Workflows(t.Context(), tasktype.WorkflowFilter{})
	if err != nil || len(list) != 1 {
		t.Fatalf("got %d workflows, %v, want 1", len(list), err)
	}
	n, err := f.Client().Workflow(list[0].ID).Node(t.Context(), "0")
	if err != nil || n.Task != "u.order" || n.Queue != "gpu" || string(n.Input) != `{"amount":1.5,"id":"a \"b\"","lines":[],"rush":true}` {
		t.Errorf("got %s in queue %s with %s, %v", n.Task, n.Queue, n.Input, err)
	}
	for _, wrong := range [][]string{{"?task=u.order", "task", "u.order", "queue", "gpu", "input.amount", "much"}, {"", "task", inc.Name(), "queue", "q", "input", "{"}, {"", "task", "", "queue", "q", "input", "1"}} {
		wantPosted(t, h, http.StatusBadRequest, "/send"+wrong[0], wrong[1:]...)
	}
}

// Open tasks are listed with their choices, and decided one by one or together. Who is late is told the earlier decision.
func TestOpenTasksAreDecided(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, anyone)
	wantIn(t, h, "/todo", "Nothing to do")
	var runs []*tasks.Run[string]
	var ids []string
	for _, question := range []string{"really?", hostile, "and this?", "or that?"} {
		s := ask.S(question)
		if len(runs) == 3 {
			s = approve.S(question)
		}
		run := sent(t, f, tasks.Chain(s, text))
		runs, ids = append(runs, run), append(ids, run.ID()+"/0")
	}
	f.Drain()
	decide := func(choice string, ids ...string) string {
		return "/todo/decide?" + url.Values{"choice": {choice}, "task": ids}.Encode()
	}
	wantIn(t, h, "/todo", "u.ask", ids[0], ids[1], "really?", "/todo/decide?choice=Other%20result&amp;task="+runs[0].ID()+"%2f0", "Approve selected…")
	wantIn(t, h, "/todo?task=u.ask", ids[0])
	wantIn(t, h, "/todo?task=u.none", "Nothing to do")
	wantIn(t, h, "/workflows/"+runs[3].ID()+"/nodes/0", "Approve…", "Fail…", "Waiting for completion since", "or that?")
	wantIn(t, h, decide("Other result", ids[0]), "Result (JSON)", "really?")
	wantIn(t, h, decide("Approve", ids[3]), "continues with the result &#34;yes&#34;")
	if _, body := get(t, h, "/todo"); strings.Contains(body, "<script>alert") {
		t.Error("the page has the script of an input")
	}
	for _, path := range []string{"/todo/decide?choice=Fail", decide("Approve", ids[0]), decide("", ids[0]), "/todo/decide?choice=Fail&item=a", decide("Fail", make([]string, 0)...), "/todo?task=" + strings.Repeat("a", 201)} {
		wantCode(t, h, http.StatusBadRequest, path)
	}
	wantCode(t, h, http.StatusNotFound, decide("Fail", "unknown/0"))

	wantPosted(t, h, http.StatusBadRequest, decide("Other result", ids[0]), "comment", "yes")
	wantPosted(t, h, http.StatusSeeOther, decide("Other result", ids[0]), "comment", ` "yes" `)
	if body := wantPosted(t, h, http.StatusConflict, decide("Other result", ids[0]), "comment", `"no"`); !strings.Contains(body, `u.ask of workflow `+runs[0].ID()+` has succeeded at`) || !strings.Contains(body, "with the result &#34;yes&#34;") {
		t.Errorf("a second decision: got %s", body)
	}
	wantPosted(t, h, http.StatusBadRequest, decide("Fail", ids[1]), "comment", " ")
	wantIn(t, h, decide("Fail", ids...), "Fail: 3 selected", "Not included: 1")
	if body := wantPosted(t, h, http.StatusOK, decide("Fail", ids[:3]...), "comment", hostile); !strings.Contains(body, "Fail: 2. Unchanged: 1, for example: already decided: u.ask") {
		t.Errorf("several decisions: got %s", body)
	}
	wantPosted(t, h, http.StatusSeeOther, decide("Approve", ids[3]))
	f.Drain()
	for i, want := range []string{"yes", "", "", "yes"} {
		if got, err := runs[i].Wait(t.Context()); got != want || (err != nil) != (want == "") {
			t.Errorf("workflow %d: got %q, %v, want %q", i, got, err, want)
		}
	}
	wantIn(t, h, "/workflows/"+runs[1].ID()+"/nodes/0", template.HTMLEscapeString("<script>alert(1)</script>"))
	wantIn(t, h, "/todo", "Nothing to do")
	wantCode(t, h, http.StatusConflict, decide("Fail", ids[0]))
}

// A page with many large inputs is bounded; it links the tasks and texts that it leaves out.
func TestManyOpenTasks(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, anyone)
	for range fewOpen + 5 {
		sent(t, f, ask.S(strings.Repeat("input ", 5000)))
	}
	f.Drain()
	wantIn(t, h, "/todo", "Truncated", `<a href="?task=u.ask">u.ask</a> <small>5 open`)
	for _, path := range []string{"/todo", "/todo?task=u.ask"} {
		if _, body := get(t, h, path); len(body) > 150<<10 {
			t.Errorf("%s has %d bytes, want at most 150 KiB", path, len(body))
		}
	}
}

// The page of a node has its input, attempts and trace. Long JSON is truncated and available as a download.
func TestNodePageHasInputAndAttempts(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, Config{})
	trace := "0af7651916cd43dd8448eb211c80319c"
	run := sent(t, f, shaky.S(strings.Repeat("long ", 40_000)), tasks.Headers(map[string]string{"traceparent": "00-" + trace + "-b7ad6b7169203331-01"}))
	f.Drain()
	at := "/workflows/" + run.ID()
	wantIn(t, h, at+"/nodes/0", "attempt one", "attempt two", "Attempts", "Input", "200\u202f002 bytes", "truncated to 16 KiB", trace, "traceparent",
		"kept &lt;b&gt;", ">&#34;of attempt one&#34;</pre>", ">&#34;saved attempt two&#34;</pre>", ">output of attempt two</pre>")
	if _, body := get(t, h, at+"/nodes/0"); len(body) > 100<<10 {
		t.Errorf("the page has %d bytes, want at most 100 KiB", len(body))
	}
	if code, body := get(t, h, at+"/inputs/0"); code != http.StatusOK || len(body) != 200_002 {
		t.Errorf("got %d and %d bytes, want the input", code, len(body))
	}
	wantCode(t, h, http.StatusNotFound, at+"/inputs/9")
	chain := sent(t, f, tasks.Chain(inc.S(41), inc))
	wantIn(t, h, fmt.Sprintf("/workflows/%s/nodes/1", chain.ID()), "until the dependencies have completed")
	f.Drain()
	wantIn(t, h, fmt.Sprintf("/workflows/%s/nodes/0", chain.ID()), ">41</pre>", ">42</pre>")
}

// The page of a task has its errors by message and its durations, the page of a queue its tasks.
func TestPagesOfTaskAndQueue(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, Config{})
	for range 3 {
		sent(t, f, bad.S(1))
	}
	f.Drain()
	wantIn(t, h, "/names", "u.bad", "/tasks/names/u.bad", "p95")
	wantIn(t, h, "/names/u.bad", `<td data-title="Times" class="n">3</td>`, "The last 3 failed tasks", template.HTMLEscapeString("<script>alert(1)</script>"), "Last day")
	wantIn(t, h, "/names/u.none", "No completed tasks in the last day", "No failures")
	wantIn(t, h, "/queues/default", "u.bad", "Worker</th>", "Ended tasks, last day")
	wantCode(t, h, http.StatusNotFound, "/queues/none")
}

// Workflows are filtered by name, task and state. All that a filter selects are cancelled, also more than a page has.
func TestWorkflowsAreFilteredAndCancelled(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, anyone)
	var all []*tasks.Run[int]
	for i := range pageSize + 10 {
		s := inc.S(i, tasks.In(time.Hour))
		if i == 0 {
			s = tasks.Chain(tasks.Chain(inc.S(0, tasks.In(time.Hour)), inc), bad)
		}
		run := sent(t, f, s)
		all = append(all, run)
	}
	other := sent(t, f, bad.S(1, tasks.In(time.Hour)))
	wantIn(t, h, "/workflows?name=INC&within=1h", "<small>61</small>", "/tasks/cancel?name=INC&amp;within=1h")
	page := wantCode(t, h, http.StatusOK, "/workflows?name=INC&within=1h")
	others := slices.DeleteFunc(slices.Clone(all), func(r *tasks.Run[int]) bool { return strings.Contains(page, r.ID()) }) // all are of one moment: their order is not known
	if listed := len(all) - len(others); listed != pageSize {
		t.Errorf("got %d workflows on the page, want %d", listed, pageSize)
	}
	wantIn(t, h, "/workflows?task=u.bad", all[0].ID(), other.ID(), `value="u.bad"`)
	if _, body := get(t, h, "/workflows?name=INC"); strings.Contains(body, other.ID()) {
		t.Error("the list has a workflow with another name")
	}
	for _, path := range []string{"/workflows?within=odd", "/cancel?name=none", "/revoke?name=inc", "/workflows?name=" + strings.Repeat("a", 201), "/workflows?error=a&queue=b", "/cancel?error=a", "/retry?queue=default"} {
		wantCode(t, h, http.StatusBadRequest, path)
	}
	wantIn(t, h, "/cancel?name=inc", ": 60.")
	if body := wantPosted(t, h, http.StatusOK, "/cancel?name=inc"); !strings.Contains(body, "Cancelled 60 workflows.") {
		t.Errorf("got %s", body)
	}
	for _, run := range all {
		if state, err := run.Status(t.Context()); err != nil || state != tasktype.Failed {
			t.Fatalf("got %s, %v, want FAILURE", state, err)
		}
	}
	if state, err := other.Status(t.Context()); err != nil || state.Terminal() {
		t.Errorf("a workflow that the filter does not select: got %s, %v", state, err)
	}
}

// Failed workflows are found and retried by the code, the task and the message of their failure, together with other filters. A list
// states how many it has read.
func TestWorkflowsAreFilteredByError(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, anyone)
	var ids []string
	for _, s := range []tasks.Signature[string]{fails.S("the card was declined"), tasks.Chain(tasks.Chain(text.S("no stock"), fails), text), text.S("no stock")} {
		run := sent(t, f, s, tasks.Name("order"))
		ids = append(ids, run.ID())
	}
	f.Drain()
	for query, want := range map[string][2]bool{
		"error=CARD": {true, false}, "error=stock": {false, true}, "error=error": {true, true}, "error=u.fails": {true, true}, "error=fails": {},
		"error=u.fails&task=u.text": {false, true}, "error=u.fails&name=none": {}, "error=error&state=success": {true, true},
	} {
		_, body := get(t, h, "/workflows?"+query)
		for i, want := range want {
			if strings.Contains(body, ids[i]) != want {
				t.Errorf("%s: workflow %d is listed: %t, want %t", query, i, !want, want)
			}
		}
		if strings.Contains(body, ids[2]) || strings.Contains(body, "were read") {
			t.Errorf("%s: got %.3000s", query, body)
		}
	}
	wantIn(t, h, "/workflows?error=card", "u.fails: the card was declined", "/tasks/retry?error=card")
	wantIn(t, h, "/retry?error=card", `failed workflows (Error: card): 1.`)
	if body := wantPosted(t, h, http.StatusOK, "/retry?error=card"); !strings.Contains(body, "Retried 1 workflow.") {
		t.Errorf("got %s", body)
	}
	f.Advance(time.Second)
	for range mostFailed {
		sent(t, f, fails.S("again"))
	}
	f.Drain()
	for at, pages := "?error=stock", 0; ; pages++ {
		_, body := get(t, h, "/workflows"+at)
		if strings.Contains(body, ids[1]) {
			if pages == 0 {
				t.Error("more than 300 workflows were read for a page")
			}
			break
		}
		_, next, _ := strings.Cut(body, `<p class="more"><a href="`)
		next, _, _ = strings.Cut(next, `"`)
		if at = html.UnescapeString(next); !strings.Contains(body, "failed workflows were read") || at == "" {
			t.Fatalf("got %.3000s", body)
		}
	}
}

// Pages of a workflow that is too large do not read its nodes.
func TestNodesOfLargeWorkflowAreNotRead(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, Config{})
	run := sent(t, f, tasks.Each(make([]int, mostRead+1), inc))
	wantIn(t, h, "/workflows/"+run.ID(), "too many to display", "0 of 20\u202f001", "muster workflows get "+run.ID())
	wantIn(t, h, "/workflows/"+run.ID()+"/nodes/20000", "too large to display", "u.inc")
}

type roleKey struct{}

// Clients without permission for data get no inputs, results and headers, on any page or poll of it. A middleware sets
// the role in the context of the request.
func TestDataIsHidden(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, Config{Data: func(r *http.Request) bool { return r.Context().Value(roleKey{}) == "admin" }})
	server := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), roleKey{}, r.Header.Get("X-Role"))))
	}))
	run := sent(t, f, tasks.Group(text.S("a-secret"), ask.S("a-secret")), tasks.Headers(map[string]string{"token": "a-secret"}))
	f.Drain()
	at := "/workflows/" + run.ID()
	for path, c := range map[string]struct {
		viewer int
		shown  bool // to admins
	}{
		at:                {http.StatusOK, true}, // in the log
		at + "/nodes/0":   {http.StatusOK, true},
		at + "/nodes/1":   {http.StatusOK, true},
		"/todo":           {http.StatusOK, true},
		at + "/inputs/0":  {http.StatusForbidden, true},
		at + "/results/0": {http.StatusForbidden, true},
	} {
		for role, want := range map[string]struct {
			code  int
			shown bool
		}{"viewer": {c.viewer, false}, "admin": {http.StatusOK, c.shown}, "": {c.viewer, false}} {
			for _, tag := range []string{"", "none"} {
				code, body := getAs(t, server.URL+"/tasks"+path, role, tag)
				if code != want.code || strings.Contains(body, "a-secret") != want.shown {
					t.Errorf("%s with If-None-Match %q for %q: got %d and %.2000q, want %d, with the secret: %t", path, tag, role, code, body, want.code, want.shown)
				}
			}
		}
	}
}

// getAs requests a page with a role, or polls it if tag is not empty.
func getAs(t *testing.T, url, role, tag string) (code int, body string) {
	t.Helper()
	req := testutil.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	req.Header.Set("X-Role", role)
	if tag != "" {
		req.Header.Set("If-None-Match", tag)
	}
	res := testutil.Must(http.DefaultClient.Do(req))(t)
	defer res.Body.Close()
	raw := testutil.Must(io.ReadAll(res.Body))(t)
	return res.StatusCode, string(raw)
}

// The page of a node has all its runs, and counts waiting from the time when it was ready.
func TestNodePageHasRuns(t *testing.T) {
	t.Parallel()
	poll := tasks.New[int, int]("u.poll")
	calls := 0
	mux := tasks.NewMux()
	tasks.Handle(mux, poll, func(context.Context, int) (int, error) {
		if calls++; calls < 3 {
			return 0, tasks.Again(time.Minute)
		}
		return calls, nil
	})
	f := taskstest.New(t, mux)
	h := Handler(f.Client(), Config{Prefix: "/tasks"})
	run := sent(t, f, poll.S(0, tasks.In(time.Hour)))
	f.Drain()
	wantIn(t, h, "/workflows/"+run.ID()+"/nodes/0", "repeated", "in 3 runs", "First start", "Last start", `<th scope="row">Waited</th><td>&lt; 1 ms</td>`)
}

// Workflows are filtered and cancelled by a label, which the list links.
func TestWorkflowsAreFilteredByLabel(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, anyone)
	var ids []string
	for i, customer := range []string{"acme & co", "zen"} {
		run := sent(t, f, inc.S(i), tasks.Labels(map[string]string{"customer": customer}), tasks.Name("import of "+customer))
		ids = append(ids, run.ID())
	}
	wantIn(t, h, "/workflows", ids[0], ids[1], `href="/tasks/workflows?label=customer%3dacme%20%26%20co"`)
	wantIn(t, h, "/workflows?label=customer%3Dacme%20%26%20co", ids[0], `value="customer=acme &amp; co"`, "import of acme", "customer=acme")
	if _, body := get(t, h, "/workflows?label=customer%3Dacme%20%26%20co"); strings.Contains(body, ids[1]) {
		t.Error("the list has a workflow with another label")
	}
	wantIn(t, h, "/workflows/"+ids[0], "<h1>import of acme &amp; co", "customer=acme")
	for _, path := range []string{"/workflows?label=x", "/workflows?label=%3Dx", "/workflows?" + strings.Repeat("label=a%3Db&", 21)} {
		wantCode(t, h, http.StatusBadRequest, path)
	}
	if body := wantPosted(t, h, http.StatusOK, "/cancel?label=customer%3Dzen"); !strings.Contains(body, "Cancelled 1 workflow.") {
		t.Errorf("got %s", body)
	}
}

// A workflow that has ended, or was revoked in the meantime, is shown instead of an error.
func TestWorkflowIsCancelledUnlessItHasEnded(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, anyone)
	ctx := t.Context()
	running := sent(t, f, inc.S(1), tasks.In(time.Hour))
	revoked := sent(t, f, inc.S(1), tasks.In(time.Hour))
	testutil.Ok(t, revoked.Revoke(ctx))
	wantIn(t, h, "/workflows/"+running.ID(), "Cancel…", "Revoke…")
	for id, want := range map[string]tasktype.Status{running.ID(): tasktype.Failed, revoked.ID(): tasktype.Revoked} {
		wantIn(t, h, "/workflows/"+id+"/cancel", "Cancel the workflow")
		wantPosted(t, h, http.StatusSeeOther, "/workflows/"+id+"/cancel")
		if got, err := f.Client().Workflow(id).Status(ctx); err != nil || got != want {
			t.Errorf("after the action: got %s, %v, want %s", got, err, want)
		}
	}
}

// Pause, Resume and Retry are on the page of a workflow to which they apply.
func TestWorkflowIsPausedResumedAndRetried(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, anyone)
	for action, c := range map[string]struct {
		before func(*tasks.Run[int], context.Context) error
		again  int // the status of the action on a success
	}{
		"pause":  {nil, http.StatusSeeOther},
		"resume": {(*tasks.Run[int]).Pause, http.StatusSeeOther},
		"retry":  {(*tasks.Run[int]).Cancel, http.StatusBadRequest},
	} {
		run := sent(t, f, inc.S(1), tasks.In(time.Hour))
		if c.before != nil {
			testutil.Ok(t, c.before(run, t.Context()))
		}
		page, title := "/workflows/"+run.ID(), strings.ToUpper(action[:1])+action[1:]
		wantIn(t, h, page, title+"…")
		wantIn(t, h, page+"/"+action, title+" the workflow")
		wantPosted(t, h, http.StatusSeeOther, page+"/"+action)
		if action == "pause" {
			f.Advance(2 * time.Hour)
			wantIn(t, h, page, "paused", "the workflow is paused")
			wantIn(t, h, "/workflows", "paused")
			testutil.Ok(t, run.Resume(t.Context()))
		}
		if got, err := run.Wait(t.Context()); err != nil || got != 2 {
			t.Errorf("%s: got %d, %v, want 2", action, got, err)
		}
		wantPosted(t, h, c.again, page+"/"+action)
	}
}

// An ended workflow is run again, as a whole or from a node.
func TestWorkflowIsRunAgain(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, anyone)
	run := sent(t, f, tasks.Chain(inc.S(1), inc))
	page := "/workflows/" + run.ID()
	if _, body := get(t, h, page); strings.Contains(body, "Run again") {
		t.Error("a running workflow has the action")
	}
	wantPosted(t, h, http.StatusBadRequest, page+"/run-again")
	f.Drain()
	wantIn(t, h, page, "/tasks"+page+"/run-again")
	wantIn(t, h, page+"/nodes/1", page+"/run-again?from=1")
	wantIn(t, h, page+"/run-again?from=1", `name="from"`, `value="1"`)
	for from, status := range map[string]int{"": http.StatusSeeOther, "1": http.StatusSeeOther, "7": http.StatusBadRequest} {
		w := post(t, h, page+"/run-again", formToken, formToken, "from", from)
		if f.Drain(); w.Code != status {
			t.Fatalf("from %q: got %d, %s", from, w.Code, w.Body)
		}
		if to := w.Header().Get("Location"); status == http.StatusSeeOther {
			wantIn(t, h, strings.TrimPrefix(to, "/tasks"), run.ID()) // its origin
		}
	}
}

// Selected workflows are retried and cancelled together. Workflows to which an action does not apply are counted.
func TestSelectedWorkflowsAreChanged(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, anyone)
	ctx := t.Context()
	var ids []string
	for range 3 {
		run := sent(t, f, inc.S(1), tasks.In(time.Hour))
		ids = append(ids, run.ID())
	}
	wantIn(t, h, "/workflows", `name="id" value="`+ids[0]+`"`, `formaction="/tasks/retry"`, "Cancel running…")
	selected := "?selected=yes&id=" + ids[0] + "&id=" + ids[1] + "&id=" + ids[0]
	wantIn(t, h, "/cancel"+selected, "selected workflows: 2.")
	for _, path := range []string{"/cancel?selected=yes", "/retry", "/retry?name=inc", "/cancel?queue=none", "/retry?failed=u.inc"} {
		wantCode(t, h, http.StatusBadRequest, path)
	}
	if body := wantPosted(t, h, http.StatusOK, "/cancel"+selected); !strings.Contains(body, "Cancelled 2 workflows.") {
		t.Errorf("got %s", body)
	}
	f.Drain()
	all := selected + "&id=" + ids[2] + "&id=unknown"
	if body := wantPosted(t, h, http.StatusOK, "/retry"+all); !strings.Contains(body, "Retried 2 workflows. Unchanged: 2") {
		t.Errorf("got %s", body)
	}
	for i, id := range ids {
		state := testutil.Must(f.Client().Workflow(id).Status(ctx))(t)
		if state == tasktype.Failed {
			t.Errorf("workflow %d: got %s, want another state", i, state)
		}
	}
}

// Failures that differ in numbers and IDs only are one group, whose failures are listed and whose workflows are retried.
func TestFailuresAreGroupedAndRetried(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, anyone)
	var ids []string
	for _, message := range []string{"the card of ord_17 was declined (request 80959)\nstack 1", "the card of ord_2 was declined (request 7)", "timeout"} {
		run := sent(t, f, fails.S(message))
		ids = append(ids, run.ID())
	}
	f.Drain()
	const group = "?error=error%3A+the+card+of+%E2%80%A6+was+declined+%28request+%E2%80%A6%29"
	wantIn(t, h, "/names/u.fails", `<td data-title="Times" class="n">2</td>`, strings.ToLower(strings.ReplaceAll(group, "+", "%20"))+"#failures", ids[2], "error: timeout")
	wantIn(t, h, "/names/u.fails"+group, ids[0], ids[1])
	if _, body := get(t, h, "/names/u.fails"+group); strings.Contains(body, ids[2]) {
		t.Error("the list of a group has a failure of another group")
	}
	action := "/retry" + strings.Replace(group, "error=", "group=", 1) + "&failed=u.fails"
	wantIn(t, h, action, "u.fails", ": 2.")
	if body := wantPosted(t, h, http.StatusOK, action); !strings.Contains(body, "Retried 2 workflows.") {
		t.Errorf("got %s", body)
	}
	for _, path := range []string{"/names/u.fails?error=none", "/names/u.fails"} {
		wantCode(t, h, http.StatusOK, path)
	}
}

// Emptying a queue cancels the workflows with tasks that wait in it.
func TestQueueIsEmptied(t *testing.T) {
	t.Parallel()
	ctx, client := t.Context(), tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	cfg := anyone
	cfg.Prefix = "/tasks"
	h := Handler(client, cfg)
	waiting := testutil.Must(inc.S(2, tasks.Queue("slow")).Send(ctx, client))(t)
	other := testutil.Must(inc.S(1).Send(ctx, client))(t)
	wantIn(t, h, "/queues/slow", `href="/tasks/cancel?queue=slow"`)
	wantIn(t, h, "/workflows?queue=slow", waiting.ID(), "/tasks/cancel?queue=slow")
	for _, query := range []string{"?queue=slow&name=none", "?queue=slow&task=none", "?queue=slow&label=a%3Db", "?queue=default"} {
		if _, body := get(t, h, "/workflows"+query); strings.Contains(body, waiting.ID()) {
			t.Errorf("%s has a workflow that it does not select", query)
		}
	}
	wantIn(t, h, "/cancel?queue=slow", "running workflows (Queue: slow): 1.")
	wantIn(t, h, "/queues/slow", `href="/tasks/cancel?pause=1&amp;queue=slow"`)
	wantIn(t, h, "/cancel?queue=slow&pause=1", ": 1.", "is paused first")
	wantPosted(t, h, http.StatusOK, "/cancel?queue=slow&pause=1")
	if body := wantPosted(t, h, http.StatusOK, "/cancel?queue=slow&pause=1"); !strings.Contains(body, "Nothing was waiting in it.") {
		t.Errorf("an empty queue: got %s", body)
	}
	if queues, err := client.Inspect().Queues(ctx); err != nil || len(queues) != 2 || !queues[1].Paused {
		t.Errorf("got %+v, %v, want a paused queue", queues, err)
	}
	if state, err := waiting.Status(ctx); err != nil || state != tasktype.Failed {
		t.Errorf("a workflow of the queue: got %s, %v, want FAILURE", state, err)
	}
	if state, err := other.Status(ctx); err != nil || state.Terminal() {
		t.Errorf("a workflow of another queue: got %s, %v, want PENDING", state, err)
	}
}

// Lists have the errors of failed workflows, and the new error after a retry.
func TestListsHaveErrors(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, Config{})
	ctx := t.Context()
	run := sent(t, f, fails.S("no stock <b>"), tasks.In(time.Hour))
	testutil.Ok(t, run.Cancel(ctx))
	for _, path := range []string{"/workflows", "/"} {
		wantIn(t, h, path, run.ID(), `<small class="badtext">cancelled: the workflow was cancelled`)
	}
	f.Advance(time.Second)
	testutil.Ok(t, run.Retry(ctx))
	if _, body := get(t, h, "/workflows"); strings.Contains(body, "was cancelled") {
		t.Error("the list has the error of the run before the retry")
	}
	f.Drain()
	for _, path := range []string{"/workflows", "/"} {
		wantIn(t, h, path, run.ID(), `<small class="badtext">no stock &lt;b&gt;</small>`)
	}
}

func TestPagesHaveLogs(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, Config{})
	run := sent(t, f, tasks.Group(text.S("one"), text.S("two")))
	f.Drain()
	at := "/workflows/" + run.ID()
	line := func(node, s string) string {
		return `class="warntext">WARN</td><td data-title="Task" class="nowrap"><a data-soft href="/tasks` + at + `/nodes/` + node + `">u.text</a></td><td data-title="Text">&lt;i&gt;got&lt;/i&gt; text=` + s + "</td>"
	}
	for path, want := range map[string][2]bool{at: {true, true}, at + "/nodes/0": {true, false}, at + "/nodes/1": {false, true}} {
		_, body := get(t, h, path)
		if got := [2]bool{strings.Contains(body, line("0", "one")), strings.Contains(body, line("1", "two"))}; got != want {
			t.Errorf("%s: got the lines of the tasks: %v, want %v", path, got, want)
		}
	}
}
