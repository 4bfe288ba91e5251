package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"muster/internal/testutil"
	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/internal/store"
	"muster/tasks/redistest"
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
	tasks.Handle(mux, shaky, func(context.Context, string) (int, error) {
		said := texts[0]
		texts = append(texts[1:], said)
		return 0, errors.New(said)
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
	at := "/workflows/" + run.ID()
	nodes, err := f.Client().Nodes(t.Context(), run.ID())
	testutil.Ok(t, err)
	for path, wants := range map[string][]string{
		"/":                                     {"Overview", "Latest successes", run.ID()},
		"/workflows":                            {run.ID(), "succeeded"},
		at:                                      {"4 of 4", "u.sum", "u.inc", "Timeline", "Graph", `class="box SUCCESS`},
		at + "?state=SUCCESS":                   {"1 to"},
		at + "?state=FAILURE":                   {"No tasks"},
		at + "/nodes/" + nodes[len(nodes)-1].ID: {"u.sum", "Result", "<pre", "3"},
		"/names":                                {"u.inc", "u.sum"},
		"/queues":                               {"Queues"},
		"/workers":                              {"Workers"},
		"/schedule":                             {"The schedule is empty"},
		"/assets/style.css":                     {"color-scheme"},
		"/assets/live.js":                       {"If-None-Match"},
	} {
		code, body := get(t, h, path)
		if code != http.StatusOK {
			t.Errorf("%s: got %d, want 200: %.500s", path, code, body)
		}
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s: got no %q in\n%.3000s", path, want, body)
			}
		}
	}
}

// The navigation is one row: the pages and the links of the program, unless these have the pages.
func TestNavigation(t *testing.T) {
	t.Parallel()
	pages := "Overview /tasks/ Workflows /tasks/workflows Tasks /tasks/names To do /tasks/todo Queues /tasks/queues Workers /tasks/workers Schedule /tasks/schedule"
	shop, link := Link{"Shop", "/shop"}, regexp.MustCompile(`<a href="([^"]*)"[^>]*>([^<]*)</a>`)
	for name, c := range map[string]struct {
		nav  []Link
		want string
	}{
		"none":             {nil, pages},
		"another page":     {[]Link{shop}, pages + " Shop /shop"},
		"and the overview": {[]Link{shop, {"Jobs", "/tasks/"}}, pages + " Shop /shop"},
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
		if code, body := get(t, h, path); code != want {
			t.Errorf("%s: got %d, want %d: %.300s", path, code, want, body)
		}
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
func sent[O any](t *testing.T, f *taskstest.Fleet, s tasks.Signature[O], opts ...tasks.SendOption) *tasks.AsyncResult[O] {
	t.Helper()
	run, err := s.Send(t.Context(), f.Client(), opts...)
	testutil.Ok(t, err)
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
	client, err := tasks.Connect(t.Context(), address)
	testutil.Ok(t, err)
	t.Cleanup(func() { _ = client.Close() })
	mux := tasks.NewMux()
	tasks.Handle(mux, inc, func(ctx context.Context, n int) (int, error) {
		tasks.SetProgress(ctx, 7, 9)
		<-ctx.Done()
		return n, ctx.Err()
	})
	for range 2 {
		w, err := tasks.StartWorker(t.Context(), client, mux, tasks.WorkerConfig{Concurrency: 1})
		testutil.Ok(t, err)
		t.Cleanup(func() { _ = w.Stop() })
	}
	rdb, traffic := redistest.NewTraffic(t, address)
	h := Handler(tasks.NewClient(rdb), Config{Prefix: "/tasks"})
	const n = 10_000
	run, err := tasks.GroupOf([]tasks.Signature[int]{inc.S(1), inc.S(2)}).Send(t.Context(), client)
	testutil.Ok(t, err)
	large, err := tasks.Each(make([]int, n), inc, tasks.Queue("none")).Send(t.Context(), client)
	testutil.Ok(t, err)
	at := "/workflows/" + large.ID()
	wantIn(t, h, at, "0 of 10000", "no live worker takes from queue none")
	traffic.Take()
	const renderings = 3 // of which one can also read the counts of the navigation
	for range renderings {
		wantIn(t, h, at, "0 of 10000")
	}
	if commands, bytes := traffic.Take(); commands > renderings*20 || bytes > renderings*50_000 {
		t.Errorf("%d renderings took %d commands and %d bytes, want at most 20 and 50,000 for each", renderings, commands, bytes)
	}
	testutil.Eventually(t, "the other workflow's page shows progress", func() bool {
		_, body := get(t, h, "/workflows/"+run.ID()+"/nodes/0")
		return strings.Contains(body, "7 of 9")
	})
	for id, total := range map[string]string{run.ID(): "2 of 2", large.ID(): "10\u202f000 of 10\u202f000"} {
		testutil.Ok(t, client.Revoke(t.Context(), id))
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
		if _, err := inc.S(i).Send(t.Context(), client); err != nil {
			t.Fatal(err)
		}
	}
	traffic.Take()
	list, _, err := client.Workflows(t.Context(), tasktype.WorkflowFilter{State: tasktype.WorkflowRunning, Limit: 10})
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
		`class="n">100 %</td>`,
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
	got := Queues([]tasktype.Queue{
		{Name: "busy", Pending: 3, Workers: 2, Latency: time.Hour},
		{Name: "idle"},
		{Name: "gpu/1", Pending: 1249, Latency: 4 * time.Minute},
		{Name: "mail", Pending: 1, Workers: 1, Paused: true},
		{Name: "video", Workers: 1, Unhandled: map[string]int64{"video.cut": 2, "video.blur": 1}},
	})
	want := []Trouble{
		{true, "Queue gpu/1", "no live workers; 1\u202f249 tasks waiting, stalled for 4 min 00 s", "/queues/gpu%2F1"},
		{false, "Queue mail", "paused; 1 task waiting", "/queues/mail"},
		{true, "Queue video", "no live worker has a handler for video.blur (1), video.cut (2)", "/queues/video"},
	}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// past stores values, each a minute after the other, so that the last one is of this minute.
func past(t *testing.T, s *store.Store, until time.Time, measure tasktype.Measure, name string, values ...int64) {
	t.Helper()
	for i, v := range values {
		at := until.Add(time.Duration(i-len(values)+1) * time.Minute)
		testutil.Ok(t, s.History.Add(t.Context(), at, map[tasktype.Measure]map[string]int64{measure: {name: v}}))
	}
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
	past(t, s, now.Add(-24*time.Hour), tasktype.PendingTasks, "gpu", 5, 0)
	past(t, s, now, tasktype.PendingTasks, "gpu", 4, 0, 0, 3, 1200)
	live, err := f.Client().Workers(t.Context())
	if err != nil || len(live) == 0 {
		t.Fatal(live, err)
	}
	past(t, s, now, tasktype.WorkerMemory, live[0].Name, 236<<20, 300<<20, 515<<20)
	for path, wants := range map[string][]string{
		"/":           {`aria-label="Waiting tasks in the last hour: 0 to 1` + "\u202f" + `200; in the same hour yesterday: 0 to 5"`, `<path class="before"`},
		"/queues":     {`aria-label="Waiting tasks in the last hour: 0 to 1` + "\u202f" + `200"`},
		"/queues/gpu": {`Grows since <time datetime="` + now.Add(-2*time.Minute).UTC().Format("2006-01-02T15:04:00Z"), "when 0 tasks were waiting", `aria-label="Waiting tasks in the last day: 0 to 1` + "\u202f" + `200"`},
		"/workers":    {`: 236 MiB to 515 MiB"`, "<small>from 236 MiB, <time"},
	} {
		_, body := get(t, h, path)
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s: got %.5000s, want %q in it", path, body[strings.Index(body, "<main"):], want)
			}
		}
	}
}
