package tracing_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"muster/internal/logctx"
	"muster/internal/testutil"
	"muster/internal/tracing"
	"muster/internal/tracing/observed"
	"muster/internal/tracing/otlp"
	"muster/internal/tracing/tracingtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, change func(*tracing.Config), log io.Writer) *tracing.Tracing {
	t.Helper()
	cfg := tracing.Config{Sample: 1, Service: "muster", Timeout: 5 * time.Second}
	change(&cfg)
	tr := testutil.Must(otlp.Open(cfg, slog.New(slog.NewTextHandler(log, nil))))(t)
	return tr
}

func get(t *testing.T, h http.Handler, method, url string, head ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	for i := 0; i+1 < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Disabled tracing must not wrap handlers and transports.
func TestDisabledTracing(t *testing.T) {
	t.Parallel()
	tr := open(t, func(*tracing.Config) {}, io.Discard)
	if tr != nil {
		t.Fatal("tracing is on without an endpoint")
	}
	mux := http.NewServeMux()
	if got := tr.Server(mux, nil); got != http.Handler(mux) {
		t.Error("the handler is wrapped")
	}
	if got := tr.Client(http.DefaultTransport); got != http.DefaultTransport {
		t.Error("the transport is wrapped")
	}
	tr.Record(map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, time.Now(), "x", "")
	_, end := tr.Page(t.Context(), observed.Page{})
	end(observed.End{})
	tr.Close()
}

func TestSpansOfRequests(t *testing.T) {
	t.Parallel()
	c := tracingtest.New(t)
	tr := open(t, func(cfg *tracing.Config) {
		cfg.Endpoint, cfg.Headers, cfg.Service = c.URL, map[string]string{"Authorization": "Bearer hush"}, "mine"
	}, io.Discard)
	var inside string
	h := tr.Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside = tracing.Parent(r.Context())
		if _, err := io.WriteString(w, "x"); err != nil || r.URL.Path == "/fails" {
			panic("oh")
		}
	}), func(r *http.Request) string {
		if r.URL.Path == "/nowhere" {
			return ""
		}
		return "/{id}"
	})
	broken := tr.Server(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }), func(*http.Request) string { return "/broken" })
	get(t, h, "GET", "http://host:8000/a?token=hush", "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if !strings.HasPrefix(inside, "00-0af7651916cd43dd8448eb211c80319c-") {
		t.Errorf("the handler has the trace %q", inside)
	}
	get(t, h, "BREW", "/nowhere")
	get(t, broken, "POST", "/broken")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a panic was swallowed")
			}
		}()
		get(t, h, "GET", "/fails")
	}()
	tr.Close()
	checkRequests(t, c)
	if h := c.Headers(); len(h) == 0 || h[0].Get("Authorization") != "Bearer hush" {
		t.Errorf("the collector got the headers %v", h)
	}
}

// checkRequests checks the spans of the requests of TestSpansOfRequests.
func checkRequests(t *testing.T, c *tracingtest.Collector) {
	t.Helper()
	spans := map[string]tracingtest.Span{}
	for _, s := range c.Spans() {
		spans[s.Name] = s
		if s.Kind != "SERVER" || s.Resource["service.name"] != "mine" {
			t.Errorf("%s is of kind %s and service %s", s.Name, s.Kind, s.Resource["service.name"])
		}
		for name, value := range s.Attributes {
			if strings.Contains(value, "hush") {
				t.Errorf("%s contains the query: %s=%s", s.Name, name, value)
			}
		}
	}
	if s := spans["POST /broken"]; !s.Failed || s.Attributes["http.response.status_code"] != "503" {
		t.Errorf("got %+v", s)
	}
	if s := spans["HTTP"]; s.Attributes["http.request.method"] != "_OTHER" || s.Attributes["http.request.method_original"] != "BREW" || s.Attributes["http.route"] != "" {
		t.Errorf("got %+v", s)
	}
	if n := len(c.Spans()); n != 4 {
		t.Errorf("%d spans, want 4", n)
	}
	i := slices.IndexFunc(c.Spans(), func(s tracingtest.Span) bool { return s.Name == "GET /{id}" && s.Attributes["url.path"] == "/a" })
	if i < 0 {
		t.Fatalf("no span of the first request in %+v", c.Spans())
	}
	if s := c.Spans()[i]; s.Parent != "b7ad6b7169203331" || s.Attributes["server.address"] != "host" || s.Attributes["server.port"] != "8000" ||
		s.Attributes["http.route"] != "/{id}" || s.Attributes["http.response.status_code"] != "200" || s.Failed {
		t.Errorf("got %+v", s)
	}
}

func TestSpansOfCalls(t *testing.T) {
	t.Parallel()
	c := tracingtest.New(t)
	tr := open(t, func(cfg *tracing.Config) { cfg.Endpoint = c.URL }, io.Discard)
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("traceparent"))
		w.WriteHeader(404)
	}))
	defer server.Close()
	client := &http.Client{Transport: tr.Client(&http.Transport{DisableKeepAlives: true})}
	call := func(ctx context.Context, url string) {
		req := testutil.Must(http.NewRequestWithContext(ctx, "GET", url, http.NoBody))(t)
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
	}
	call(t.Context(), server.URL)
	ctx := tracing.Context(t.Context(), map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
	call(ctx, strings.Replace(server.URL, "http://", "http://user:hush@", 1)+"/x")
	call(ctx, "http://127.0.0.1:1/")
	began := time.Now().Add(-time.Hour)
	tr.Record(tracing.Headers(logctx.With(ctx, logctx.Job, "j")), began, "work", "it failed", "a", "b", "c", "")
	tr.Close()
	if len(got) != 2 || got[0] != "" || !strings.HasPrefix(got[1], "00-0af7651916cd43dd8448eb211c80319c-") {
		t.Fatalf("the server got the traceparents %q, want none of the call without a trace", got)
	}
	var work, call404, refused tracingtest.Span
	for _, s := range c.Spans() {
		switch {
		case s.Name == "work":
			work = s
		case s.Attributes["http.response.status_code"] == "404":
			call404 = s
		default:
			refused = s
		}
	}
	if work.Start != uint64(began.UnixNano()) || work.Parent != "b7ad6b7169203331" || !work.Failed || work.Attributes["a"] != "b" || work.Attributes["muster.job"] != "j" {
		t.Errorf("got %+v, want a span from %s on", work, began)
	}
	if call404.Parent != work.Parent || got[1][36:52] != call404.ID || call404.Kind != "CLIENT" || strings.Contains(call404.Attributes["url.full"], "hush") {
		t.Errorf("got %+v", call404)
	}
	if !refused.Failed || refused.Parent != work.Parent {
		t.Errorf("got %+v", refused)
	}
}

// A span of an unsampled trace propagates its trace and is not exported.
func TestUnsampledTraces(t *testing.T) {
	t.Parallel()
	c := tracingtest.New(t)
	tr := open(t, func(cfg *tracing.Config) { cfg.Endpoint, cfg.Sample = c.URL, 0 }, io.Discard)
	var inside string
	h := tr.Server(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { inside = tracing.Parent(r.Context()) }), func(*http.Request) string { return "/" })
	get(t, h, "GET", "/")
	if !strings.HasSuffix(inside, "-00") {
		t.Errorf("got the span %s, want an unsampled one", inside)
	}
	tr.Record(map[string]string{"traceparent": inside}, time.Now(), "work", "")
	tr.Close()
	if n := len(c.Spans()); n != 0 {
		t.Errorf("%d spans were exported", n)
	}
}

// hang starts a collector that does not respond until release is called.
func hang(t *testing.T) (url string, release func()) {
	t.Helper()
	over := make(chan struct{})
	release = sync.OnceFunc(func() { close(over) })
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		release()
		server.Close()
	})
	return server.URL, release
}

// Requests do not wait for a collector that hangs: they complete before it has responded or a call to it has failed.
func TestRequestsDoNotWaitForTheCollector(t *testing.T) {
	t.Parallel()
	url, release := hang(t)
	var log testutil.Output
	tr := open(t, func(cfg *tracing.Config) { cfg.Endpoint, cfg.Timeout = url, time.Minute }, &log)
	h := tr.Server(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func(*http.Request) string { return "/" })
	for range 10000 { // more than the queue holds
		get(t, h, "GET", "/")
	}
	if got := log.String(); got != "" {
		t.Errorf("requests waited for the collector: %s", got)
	}
	release()
	tr.Close()
}

// Close returns while the collector hangs. A hanging or missing collector causes one log line.
func TestCloseDoesNotWaitForTheCollector(t *testing.T) {
	t.Parallel()
	hangs, _ := hang(t)
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, url := range map[string]string{"hangs": hangs, "away": gone.URL} {
		var log testutil.Output
		tr := open(t, func(cfg *tracing.Config) {
			cfg.Endpoint, cfg.Timeout, cfg.Headers = url, 200*time.Millisecond, map[string]string{"X-Key": "hush"}
		}, &log)
		h := tr.Server(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func(*http.Request) string { return "/" })
		for range 2000 { // several batches
			get(t, h, "GET", "/")
		}
		tr.Close()
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "spans were not exported") || strings.Contains(got, "hush") {
			t.Errorf("%s: logged %s, want one line", name, got)
		}
	}
}

func TestPagesHaveNoSecrets(t *testing.T) {
	t.Parallel()
	c := tracingtest.New(t)
	tr := open(t, func(cfg *tracing.Config) { cfg.Endpoint = c.URL }, io.Discard)
	_, end := tr.Page(t.Context(), observed.Page{Site: "shop", Kind: "detail", URL: "https://u:hush@shop.example/p?page=2&key=hush#hush", Item: "i", Attempt: 2})
	end(observed.End{Status: 429, Class: "rate_limited", Err: errors.New("hush"), Proxy: "http://10.0.0.1:80"})
	tr.Close()
	if len(c.Spans()) != 1 {
		t.Fatalf("%d spans, want 1", len(c.Spans()))
	}
	s := c.Spans()[0]
	for name, want := range map[string]string{
		"url.full": "https://shop.example/p?key=REDACTED&page=REDACTED", "server.address": "shop.example", "http.response.status_code": "429",
		"error.type": "rate_limited", "muster.proxy": "http://10.0.0.1:80", "muster.site": "shop", "muster.attempt": "2", "muster.item": "i",
	} {
		if got := s.Attributes[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if s.Name != "page detail" || !s.Failed || strings.Contains(s.Message, "hush") {
		t.Errorf("got %+v", s)
	}
}
