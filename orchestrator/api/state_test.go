package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/logctx"
	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/document"
	"muster/orchestrator/access"
	"muster/orchestrator/health"
	"muster/tasks"
	"muster/tasks/metrics"
)

func TestHealthAndReadiness(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	client := testutil.Must(tasks.Connect(t.Context(), server.URL()))(t)
	defer client.Close()
	cfg := served(t)
	dir := t.TempDir()
	cfg.Documents = document.New(document.Config{Dir: dir, Owner: func(context.Context) (string, error) { return "store-1", nil }})
	cfg.Client, cfg.Gate = client, gate(t, "a key that is long enough for tests")
	cfg.Check = func(context.Context) health.Report {
		return health.Report{Checks: []health.Result{{Name: "agents", Detail: "agent Victim"}}}
	}
	h := handler(t, cfg)
	if got := decode(t, ask(t, h, "GET", "/ready", bearer("a key that is long enough for tests"))); got["ready"] != true || got["redis"] != "ok" || got["checks"] == nil {
		t.Errorf("got %v, want ready", got)
	}
	mark := func(owner string) {
		testutil.Ok(t, os.WriteFile(filepath.Join(dir, ".store"), []byte(owner), 0o600))
	}
	mark("another store")
	key := bearer("a key that is long enough for tests")
	if w := ask(t, h, "GET", "/ready", key); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "another store") || !strings.Contains(w.Body.String(), "agent Victim") {
		t.Errorf("documents of another store: got %d %s, want 503 and why", w.Code, w.Body)
	}
	if w := ask(t, h, "GET", "/ready"); w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "store") || strings.Contains(w.Body.String(), "Victim") {
		t.Errorf("without a key: got %d %s, want 503 without details", w.Code, w.Body)
	}
	if w := ask(t, h, "GET", "/ready", bearer("another key that is long enough, too")); w.Code != http.StatusUnauthorized {
		t.Errorf("with a wrong key: got %d %s, want 401", w.Code, w.Body)
	}
	mark("store-1")
	server.Kill()
	w := ask(t, h, "GET", "/ready", key)
	if got := decode(t, w); w.Code != http.StatusServiceUnavailable || got["ready"] != false || got["redis"] != "away" || got["message"] == "" || got["checks"] != nil {
		t.Errorf("without Redis: got %d %v, want 503, the cause, and no other checks", w.Code, got)
	}
	w = ask(t, h, "GET", "/ready")
	if got := decode(t, w); w.Code != http.StatusServiceUnavailable || got["redis"] != "away" || got["message"] != "" {
		t.Errorf("without Redis and a key: got %d %v, want 503 without details", w.Code, got)
	}
	w = ask(t, h, "GET", "/health")
	if got := decode(t, w); w.Code != http.StatusOK || got["status"] != "healthy" || got["component"] != "orchestrator" || got["uptime_seconds"] == nil {
		t.Errorf("without Redis: got %d %v, want healthy", w.Code, got)
	}
	if w := ask(t, h, "GET", "/status"); w.Code != http.StatusUnauthorized {
		t.Errorf("/status without the key: got %d, want 401", w.Code)
	}
}

func TestMetricsOfJobs(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	cfg.Metrics = metrics.Handler(NewMetrics(cfg))
	populate(t, cfg, "")
	if err := cfg.Jobs.Sweep(t.Context()); err != nil { // counts items
		t.Fatal(err)
	}
	text := ask(t, handler(t, cfg), "GET", "/metrics").Body.String()
	for _, want := range []string{
		"orchestrator_uptime_seconds ", `orchestrator_jobs_total{status="processing"} 2`, `orchestrator_jobs_total{status="cancelled"} 0`,
		"orchestrator_ready 1", `muster_jobs_items{state="review"} 1`, `muster_jobs_items{state="pending"} 3`, "muster_jobs_stuck 0",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s:\n%s", want, text)
		}
	}
}

// A missing service has no operations and is not in the description.
func TestOperationsOfMissingServicesAreLeftOut(t *testing.T) {
	t.Parallel()
	h := handler(t, setup(t))
	for path, want := range map[string]int{"/health": 200, "/ready": 200, "/jobs": 404, "/v1/agents": 404, "/v1/events": 404, "/v1/pipelines": 404, "/sites": 404, "/status": 404} {
		if w := ask(t, h, "GET", path); w.Code != want {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
	}
	if spec := ask(t, h, "GET", "/openapi.json").Body.String(); strings.Contains(spec, `"/jobs"`) || !strings.Contains(spec, `"/ready"`) {
		t.Errorf("the description has operations of missing services: %s", spec)
	}
}

// Every response and the log lines of its request have the same request ID.
func TestRequestID(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	var out bytes.Buffer
	cfg.Logger = slog.New(logctx.Handler(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	h := handler(t, cfg)
	for given, kept := range map[string]bool{
		"trace-1.a_b~": true, "": false, "with space": false, "new\nline": false, strings.Repeat("x", 64): true, strings.Repeat("x", 65): false,
	} {
		for _, path := range []string{"/health", "/jobs", "/nowhere", "/asynqmon/"} {
			out.Reset()
			w := ask(t, h, "GET", path, func(r *http.Request) { r.Header["X-Request-Id"] = []string{given} })
			id := w.Header().Get("X-Request-Id")
			if id == "" || (id == given) != kept {
				t.Errorf("%s with the id %q: got %q, kept %v", path, given, id, kept)
			}
			var line fieldsOf
			if err := json.Unmarshal(out.Bytes(), &line); err != nil || line["request_id"] != id || line["level"] != "DEBUG" || line["status"] != float64(w.Code) {
				t.Errorf("%s: logged %s (%v), want the id %s", path, out.Bytes(), err, id)
			}
		}
	}
}

// Mutating requests are logged as info, and the frequent calls of agents as debug; bodies are not logged.
func TestLogLevelOfRequests(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	var out bytes.Buffer
	cfg.Logger = slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h := handler(t, cfg)
	for request, want := range map[string]string{
		"POST /jobs": "INFO", "DELETE /v1/agents/none": "INFO", "POST /v1/agents/none/pause": "INFO",
		"POST /v1/agents/none/heartbeat": "DEBUG", "POST /v1/assignments/none/release": "DEBUG", "GET /jobs": "DEBUG",
	} {
		out.Reset()
		method, path, _ := strings.Cut(request, " ")
		post(t, h, method, path, fieldsOf{"prompt": "secret words"})
		if !strings.Contains(out.String(), `"level":"`+want+`"`) || strings.Contains(out.String(), "secret words") {
			t.Errorf("%s: logged %s, want a line of level %s without the body", request, out.String(), want)
		}
	}
}

// Denied requests are warnings with the address and the caller, at most so many in a second.
func TestDenialsAreLogged(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	keys := closed(t, &cfg)
	var out bytes.Buffer
	cfg.Logger = slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h := handler(t, cfg)
	for as, want := range map[string]string{
		"wrong": `"status":401`, "agent": `"status":403`,
	} {
		out.Reset()
		ask(t, h, "GET", "/jobs", bearer(keys[as]), from("192.0.2.8:1"))
		name := as
		if as == "wrong" {
			name = ""
		}
		for _, part := range []string{`"level":"WARN"`, want, `"address":"192.0.2.8"`, `"caller":"` + name + `"`} {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%s: logged %s, want %s in it", as, out.String(), part)
			}
		}
	}
	var d denials
	now, allowed := time.Now(), 0
	for range 100 {
		if d.allow(now) {
			allowed++
		}
	}
	if allowed != maxDenials || !d.allow(now.Add(time.Second)) {
		t.Errorf("%d of 100 warnings in a second, want %d, and more in the next", allowed, maxDenials)
	}
}

func TestReadOnlyAnswersReadsOnly(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	cfg.Write = false
	h := handler(t, cfg)
	o := readSpec(t)
	for path, methods := range o.Paths {
		for method := range methods {
			if method == "get" {
				continue
			}
			path := strings.NewReplacer("{id}", noJob, "{stage}", "create", "{key}", "k").Replace(path)
			if w := post(t, h, strings.ToUpper(method), path, fieldsOf{"prompt": "p"}); w.Code != http.StatusForbidden {
				t.Errorf("%s %s: got %d, want 403", method, path, w.Code)
			}
		}
	}
	if page, err := cfg.Jobs.List(t.Context(), jobs.Filter{Limit: 1}); err != nil || len(page.Jobs) > 0 {
		t.Errorf("got %+v, %v, want no job", page, err)
	}
	for path, method := range map[string]string{"default:pause": "POST", "default/pending_tasks/t1": "DELETE"} {
		if w := ask(t, h, method, "/asynqmon/api/queues/"+path); w.Code != http.StatusForbidden {
			t.Errorf("%s %s: got %d, want 403", method, path, w.Code)
		}
	}
	if page := ask(t, h, "GET", "/asynqmon/").Body.String(); !strings.Contains(page, `FLAG_READ_ONLY="true"`) {
		t.Error("asynqmon does not know that it is read-only")
	}
	if w := ask(t, h, "HEAD", "/jobs"); w.Code != http.StatusOK {
		t.Errorf("HEAD /jobs: got %d, want 200", w.Code)
	}
}

func TestServeMetrics(t *testing.T) {
	t.Parallel()
	cfg := setup(t)
	cfg.Metrics = metrics.Handler(metrics.NewProcess())
	cfg.Component, cfg.Listen = "worker", "0.0.0.0:0"
	if err := ServeMetrics(t.Context(), cfg); !errors.Is(err, ErrOpen) {
		t.Errorf("open to others without a key: %v", err)
	}
	cfg.Gate = gate(t, "a key that is long enough for tests")
	ready := make(chan string, 1)
	cfg.Listen, cfg.Ready = "127.0.0.1:0", func(url string) { ready <- url }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ServeMetrics(ctx, cfg) }()
	url := <-ready
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	r := testutil.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))(t)
	r.Header.Set("Authorization", "Bearer a key that is long enough for tests")
	resp := testutil.Must(client.Do(r))(t)
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), "muster_worker_slots 0") {
		t.Errorf("%s: %d %v\n%s", url, resp.StatusCode, err, body)
	}
	for path, want := range map[string]string{"/health": `200 {"status":"healthy","component":"worker"`, "/ready": `200 {"ready":true`, "/metrics": "401 "} {
		resp := testutil.Must(client.Get(strings.TrimSuffix(url, "/metrics") + path))(t)
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if got := fmt.Sprintf("%d %s", resp.StatusCode, body); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s without a key: got %s (%v), want %s", path, got, err, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The operations without a version have the fields and statuses of the first release.
func TestOperationsOfTheFirstRelease(t *testing.T) {
	t.Parallel()
	cfg := everything(t)
	h := handler(t, cfg)
	f := populate(t, cfg, "")
	job := "/jobs/" + f.job
	for _, c := range []struct {
		method, path, body string
		status             int
		fields             string // of the response, and of the first element of its list
	}{
		{"GET", "/health", ``, 200, "component status uptime_seconds"},
		{"GET", "/ready", ``, 200, "message ready redis"},
		{"POST", "/jobs", `{"prompt": "p", "context": {"a": 1}}`, 201, "id job_id status prompt creator_status validator_status"},
		{"POST", "/jobs", `{"prompt": "p", "context": [1]}`, 400, "status detail errors"},
		{"GET", "/jobs?status=created&limit=10&offset=0", ``, 200, "jobs total limit offset"},
		{"GET", "/jobs?limit=101", ``, 400, "status detail errors"},
		{"GET", "/jobs/stuck", ``, 200, "jobs"},
		{"GET", job, ``, 200, "id job_id status creator_status validator_status total_tokens total_requests progress_percent"},
		{"GET", "/jobs/" + noJob, ``, 404, "status detail"},
		{"GET", "/jobs/no%20id", ``, 400, "status detail errors"},
		{"GET", job + "/progress", ``, 200, "job_id status progress_percent eta_seconds"},
		{"GET", job + "/report?format=text", ``, 200, ""},
		{"DELETE", job + "?cleanup=true", ``, 200, "success job_id status cleanup"},
		{"POST", "/jobs/" + f.other + "/cancel", ``, 200, "success job_id status cleanup"},
		{"GET", "/agents/health", ``, 200, "agents"},
		{"GET", "/stats/daily?days=7", ``, 200, "days"},
		{"GET", "/stats/daily?days=31", ``, 400, "status detail errors"},
		{"GET", "/status", ``, 200, "jobs stuck total uptime_seconds"},
	} {
		w := post(t, h, c.method, c.path, []byte(c.body))
		if w.Code != c.status {
			t.Errorf("%s %s: got %d %s, want %d", c.method, c.path, w.Code, w.Body, c.status)
			continue
		}
		if c.fields == "" {
			continue
		}
		got := slices.Sorted(maps.Keys(decode(t, w)))
		for _, want := range strings.Fields(c.fields) {
			if !slices.Contains(got, want) {
				t.Errorf("%s %s: got the fields %q, want %s among them", c.method, c.path, got, want)
			}
		}
	}
	var days struct{ Days []map[string]json.RawMessage }
	if err := json.Unmarshal(ask(t, h, http.MethodGet, "/stats/daily").Body.Bytes(), &days); err != nil || len(days.Days) == 0 {
		t.Fatalf("got %v, %v, want days", days, err)
	}
	for _, want := range []string{"date", "jobs_created", "jobs_completed", "jobs_failed"} {
		if days.Days[0][want] == nil {
			t.Errorf("got the fields %v of a day, want %s among them", slices.Collect(maps.Keys(days.Days[0])), want)
		}
	}
}

func callerContext(t *testing.T, name string) context.Context {
	t.Helper()
	return access.WithCaller(t.Context(), access.Caller{ID: name, Name: name, Role: access.Viewer})
}

// One caller cannot take the places of others, and all callers together have a limit.
func TestCallersShareWhatIsOpenAtATime(t *testing.T) {
	t.Parallel()
	s := newShares("streams", 5, 2)
	take := func(name string) (func(), bool) {
		release, err := s.take(callerContext(t, name))
		if p, ok := errors.AsType[*Problem](err); err != nil && (!ok || p.Status != http.StatusTooManyRequests) {
			t.Errorf("got %v, want a problem 429", err)
		}
		return release, err == nil
	}
	first, _ := take("a")
	for _, c := range []struct {
		name string
		want bool
	}{{"a", true}, {"a", false}, {"b", true}, {"b", true}, {"c", true}, {"d", false}} {
		if _, ok := take(c.name); ok != c.want {
			t.Errorf("a place for %s: got %v, want %v", c.name, ok, c.want)
		}
	}
	first()
	if _, ok := take("a"); !ok {
		t.Error("a place that was released is not free")
	}
}

// A caller sends few large bodies at a time; small ones are not limited.
func TestLargeBodiesAreLimitedPerCaller(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	began := make(chan struct{})
	h := Config{}.sized(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > maxBody || r.ContentLength < 0 {
			began <- struct{}{}
			<-end
		}
		w.WriteHeader(http.StatusOK)
	}))
	send := func(name string, length int64) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(callerContext(t, name), "POST", "/v1/jobs", strings.NewReader("{}"))
		r.ContentLength = length
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	var open sync.WaitGroup
	defer open.Wait()
	defer close(end)
	for i := range maxBodiesEach {
		open.Go(func() { send("a", []int64{maxBody + 1, -1}[i%2]) }) // -1: the length is unknown
		<-began
	}
	if w := send("a", maxBody+1); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("a large body more: got %d %s, want 429 with Retry-After", w.Code, w.Body)
	}
	if w := send("a", maxBody); w.Code != http.StatusOK {
		t.Errorf("a small body: got %d, want 200", w.Code)
	}
	open.Go(func() { send("b", maxBody+1) })
	<-began // another caller has separate slots
}
