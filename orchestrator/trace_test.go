package orchestrator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/logctx"
	"muster/internal/testutil"
	"muster/internal/tracing/tracingtest"
	"muster/tasks"
)

const (
	clientTrace = "0af7651916cd43dd8448eb211c80319c"
	clientSpan  = "b7ad6b7169203331"
)

// pushed is a push agent. It fails the first push.
type pushed struct {
	mu      sync.Mutex // guards the fields below
	heads   []http.Header
	parents []string // of the assignments
}

func (p *pushed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		return // health check
	}
	var body struct{ Traceparent string }
	_ = json.NewDecoder(r.Body).Decode(&body)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heads, p.parents = append(p.heads, r.Header), append(p.parents, body.Traceparent)
	answer := `{}`
	if len(p.heads) == 1 {
		answer = `{"error": "not yet", "retry_after_seconds": 0}`
	}
	_, _ = io.WriteString(w, answer)
}

// A request and all its effects share one trace, whose ID is in the log.
func TestRequestAndAgentsShareATrace(t *testing.T) {
	t.Parallel()
	c := tracingtest.New(t)
	agent := &pushed{}
	server := httptest.NewServer(agent)
	defer server.Close()
	cfg := settings(t)
	cfg.Tracing.Endpoint, cfg.Agents.Allow = c.URL, []string{server.URL}
	writePipeline(t, cfg, "mixed", "stages: [{name: create, role: creator, takes: job}, {name: check, task: trace.check, takes: item}, {name: validate, role: pushed, takes: item}]\n")
	var log testutil.Output
	w := serveSystemWith(t, cfg, slog.New(logctx.Handler(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	w.runChecks()
	w.ask("POST", "/v1/agents", map[string]any{"name": "p", "roles": []string{"pushed"}, "url": server.URL}).has(t, "register", 201, nil)
	creator := w.register("creator")

	id := w.ask("POST", "/jobs", map[string]any{"prompt": "p", "pipeline": "mixed"},
		"traceparent", "00-"+clientTrace+"-"+clientSpan+"-01", "X-Request-Id", "order-7").text("job_id")
	a := w.lease(creator)
	a.has(t, "lease", 200, map[string]string{"request_id": "order-7"})
	parent := a.text("traceparent")
	w.ask("POST", "/v1/assignments/"+a.text("id")+"/complete", map[string]any{"agent": creator, "fence": a.at("fence"), "items": []map[string]any{{"key": "k", "text": "one"}}},
		"traceparent", parent).has(t, "complete", 200, nil)
	w.becomes(id, "completed")

	spans := traceOf(t, c, clientTrace, map[string]int{
		"POST /jobs": 1, "assignment create": 1, "POST /v1/assignments/{id}/complete": 1,
		"assignment check": 1, "trace.check": 1, "assignment validate": 2, "POST": 2,
	})
	w.checkTree(spans, id)
	if of := one(t, spans, "POST /jobs"); parent != "00-"+clientTrace+"-"+of.ID+"-01" {
		t.Errorf("the agent got the traceparent %s, want the span %s", parent, of.ID)
	}
	agent.mu.Lock()
	defer agent.mu.Unlock()
	for i, head := range agent.heads {
		if head.Get("X-Request-Id") != "order-7" || !strings.HasPrefix(head.Get("traceparent"), "00-"+clientTrace+"-") || agent.parents[i] == "" {
			t.Errorf("push %d has the headers %v and the traceparent %q", i, head, agent.parents[i])
		}
	}
	checkLog(t, log.String(), id)
}

// runChecks runs a worker with the handler of a stage.
func (w *web) runChecks() {
	w.t.Helper()
	mux := tasks.NewMux()
	w.system.useTracing(mux)
	tasks.Handle(mux, tasks.New[json.RawMessage, json.RawMessage]("trace.check"), func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		w.system.logger.InfoContext(ctx, "checking")
		return json.RawMessage(`{}`), nil
	})
	ready := make(chan struct{})
	worker := testutil.Must(tasks.NewWorker(w.system.Client, mux, tasks.WorkerConfig{Name: "checks", Ready: func() { close(ready) }}))(w.t)
	testutil.Background(w.t, worker.Run)
	<-ready
}

// checkTree checks the parents of the spans of a job.
func (w *web) checkTree(spans []tracingtest.Span, id string) {
	w.t.Helper()
	for child, parent := range map[string]string{
		"assignment create": "POST /jobs",
		"assignment check":  "POST /jobs", "assignment validate": "POST /jobs",
		"POST /v1/assignments/{id}/complete": "POST /jobs", "trace.check": "POST /jobs", "POST": "POST /jobs",
	} {
		for _, s := range spans {
			if s.Name != child {
				continue
			}
			if !slices.ContainsFunc(spans, func(p tracingtest.Span) bool { return p.ID == s.Parent && p.Name == parent }) {
				w.t.Errorf("the parent of %s is %s, want the span %s", child, s.Parent, parent)
			}
			if got := s.Attributes["muster.job"]; got != id && child != "POST /v1/assignments/{id}/complete" {
				w.t.Errorf("%s has the job %q", child, got)
			}
			if got := s.Attributes["muster.request_id"]; got != "order-7" && child != "POST /v1/assignments/{id}/complete" {
				w.t.Errorf("%s has the request %q", child, got)
			}
		}
	}
	if request := one(w.t, spans, "POST /jobs"); request.Parent != clientSpan || request.Attributes["http.route"] != "/jobs" {
		w.t.Errorf("got %+v, want it below the span of the client", request)
	}
	var tries []tracingtest.Span
	for _, s := range spans {
		if s.Name == "assignment validate" {
			tries = append(tries, s)
		}
	}
	slices.SortFunc(tries, func(a, b tracingtest.Span) int {
		return strings.Compare(a.Attributes["muster.attempt"], b.Attributes["muster.attempt"])
	})
	if !tries[0].Failed || tries[0].Message != "not yet" || tries[1].Failed {
		w.t.Errorf("the attempts are %+v, want a failure and a success", tries)
	}
}

// checkLog checks that the log lines of a job contain its IDs.
func checkLog(t *testing.T, log, id string) {
	t.Helper()
	ran := map[string]bool{}
	for line := range strings.Lines(log) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if fields["msg"] == "task ran" || fields["msg"] == "checking" || fields["msg"] == "a job has ended" {
			ran[fmt.Sprint(fields["msg"], fields["task"])] = true
			if fields["request_id"] != "order-7" || fields["job"] != id || fields["trace_id"] != clientTrace {
				t.Errorf("a line lacks the ids of request and job: %s", line)
			}
		}
		if fields["msg"] == "checking" && (fields["trace_id"] != clientTrace || fields["workflow"] == id || fields["node"] == nil) {
			t.Errorf("a line of a handler lacks the ids of its task: %s", line)
		}
	}
	for _, want := range []string{"task rantrace.check", "checking<nil>", "a job has ended<nil>"} {
		if !ran[want] {
			t.Errorf("no line of %s was logged; there are %v", want, ran)
		}
	}
}

// traceOf waits until a collector has the wanted number of spans of each name in a trace, and returns all spans of the trace.
func traceOf(t *testing.T, c *tracingtest.Collector, trace string, want map[string]int) []tracingtest.Span {
	t.Helper()
	var spans []tracingtest.Span
	got := map[string]int{}
	testutil.Eventually(t, fmt.Sprintf("the trace has %v", want), func() bool {
		spans = nil
		clear(got)
		for _, s := range c.Spans() {
			if s.Trace == trace {
				spans = append(spans, s)
				got[s.Name]++
			}
		}
		for name, n := range want {
			if got[name] < n {
				return false
			}
		}
		return true
	})
	for name, n := range got {
		if want[name] != n {
			t.Errorf("the trace has %d spans %s, want %d", n, name, want[name])
		}
	}
	return spans
}

func one(t *testing.T, spans []tracingtest.Span, name string) tracingtest.Span {
	t.Helper()
	i := slices.IndexFunc(spans, func(s tracingtest.Span) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("got no span %s", name)
	}
	return spans[i]
}

// A scheduled scrape is one trace with a span for each page.
func TestTraceOfAScrape(t *testing.T) {
	t.Parallel()
	c := tracingtest.New(t)
	cfg, world := worldSettings(t)
	cfg.Tracing.Endpoint, cfg.Sites.Names = c.URL, []string{"news"}
	start := time.Now()
	var done Scraped
	err := Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
		round, err := o.Scraper.Round(ctx, []string{"news"}, ScrapeOptions{})
		if err == nil {
			done = round.Sites[0]
		}
		return err
	})
	if err != nil || done.Records != len(world.News.Truth()) {
		t.Fatalf("got %v and %+v, want %d records", err, done, len(world.News.Truth()))
	}
	spans := c.Spans() // Close has sent all spans
	root := one(t, spans, "sites.collect")
	pages, fetched := 0, 0
	for _, s := range spans {
		if s.Trace != root.Trace {
			if strings.HasPrefix(s.Name, "sites.") || strings.HasPrefix(s.Name, "page ") {
				t.Errorf("%s belongs to another trace", s.Name)
			}
			continue
		}
		if s.Start < uint64(start.UnixNano()) || s.End < s.Start {
			t.Errorf("%s is from %d to %d", s.Name, s.Start, s.End)
		}
		i := slices.IndexFunc(spans, func(p tracingtest.Span) bool { return p.ID == s.Parent })
		if s.ID != root.ID && (i < 0 || spans[i].Trace != s.Trace) {
			t.Errorf("the parent of %s is %s, which is not in the trace", s.Name, s.Parent)
		}
		if !strings.HasPrefix(s.Name, "page ") {
			continue
		}
		pages++
		if !strings.HasPrefix(spans[i].Name, "sites.") {
			t.Errorf("the parent of a page is %s", spans[i].Name)
		}
		if s.Attributes["http.response.status_code"] == "200" && !s.Failed && s.Attributes["muster.proxy"] != "" && strings.HasPrefix(s.Attributes["url.full"], "http://news.example/") {
			fetched++
		}
		if s.Attributes["muster.site"] != "news" || s.Attributes["muster.job"] == "" {
			t.Errorf("a page has the attributes %v", s.Attributes)
		}
	}
	if done.Pages == 0 || fetched != done.Pages {
		t.Errorf("%d spans of pages, %d of them fetched through a proxy; want %d", pages, fetched, done.Pages)
	}
}
