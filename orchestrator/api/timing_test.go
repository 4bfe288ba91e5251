package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"muster/internal/testutil"
	"muster/jobs/agent"
	"muster/tasks/metrics"
)

// samples are the values of a collector by name and labels, as Prometheus would get them. A histogram is its count.
func samples(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	w := httptest.NewRecorder()
	metrics.Handler(c).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	out := map[string]float64{}
	for line := range strings.Lines(w.Body.String()) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if !ok || strings.HasPrefix(line, "#") || strings.Contains(line, "_bucket{") || strings.Contains(line, "_seconds_sum{") {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		out[strings.NewReplacer("_seconds_count{", "_seconds{", `"`, "", ",", " ").Replace(name)+"}"] = v
	}
	return out
}

func expectSamples(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		if g, ok := got[name]; !ok || g != v {
			t.Errorf("%s: got %v (there: %v), want %v; all: %v", name, g, ok, v, got)
		}
	}
}

func TestRequestsAreTimedByRoute(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	cfg.Timing = NewTiming()
	h, f := handler(t, cfg), populate(t, cfg, "")
	for range 3 {
		ask(t, h, "GET", "/jobs/"+f.job)
	}
	answer := ask(t, h, "GET", "/jobs/"+noJob)
	ask(t, h, "GET", "/no/such/path")
	ask(t, h, "BREW", "/jobs/"+f.job)
	got := samples(t, cfg.Timing)
	expectSamples(t, got, map[string]float64{
		"muster_http_request_duration_seconds{code=200 method=get route=/jobs/{id}}": 3,
		"muster_http_request_duration_seconds{code=404 method=get route=/jobs/{id}}": 1,
		"muster_http_request_duration_seconds{code=404 method=get route=other}":      1,
		"muster_http_request_duration_seconds{code=405 method=unknown route=other}":  1,
		"muster_http_requests_total{code=404 method=get route=/jobs/{id}}":           1,
		"muster_http_requests_in_flight{state=active}":                               0,
		"muster_http_requests_in_flight{state=waiting}":                              0,
	})
	if n := got["muster_http_response_size_bytes_sum{code=404 method=get route=/jobs/{id}}"]; n != float64(answer.Body.Len()) {
		t.Errorf("bytes of responses: got %v, want the %d of one", n, answer.Body.Len())
	}
}

func TestPathsAddNoLabels(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	cfg.Timing = NewTiming()
	h := handler(t, cfg)
	for i := range 200 {
		ask(t, h, "GET", fmt.Sprintf("/jobs/%08x-6c5e-4b7e-9f49-0a4b2f6f3d11", i))
		ask(t, h, "GET", fmt.Sprint("/x", i))
		ask(t, h, fmt.Sprint("M", i), "/jobs")
	}
	if n := len(samples(t, cfg.Timing)); n > 20 {
		t.Errorf("got %d series, want at most 20", n)
	}
}

// Requests that wait for work or events are counted but not timed: their duration is no measure of performance.
func TestWaitingRequestsAreCountedAndNotTimed(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	cfg.Timing = NewTiming()
	a, _, err := cfg.Agents.Register(t.Context(), agent.Registration{Name: "one", Roles: []string{"creator"}})
	testutil.Ok(t, err)
	h := handler(t, cfg)
	waiting := func() float64 { return samples(t, cfg.Timing)["muster_http_requests_in_flight{state=waiting}"] }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{}, 2)
	send := func(method, path, body string) {
		r := httptest.NewRequestWithContext(ctx, method, "http://localhost"+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(httptest.NewRecorder(), r)
		ended <- struct{}{}
	}
	go send("POST", "/v1/agents/"+a.ID+"/lease", `{"wait_seconds":30}`)
	go send("GET", "/v1/events", "")
	testutil.Eventually(t, "both wait", func() bool { return waiting() == 2 })
	cancel()
	<-ended
	<-ended
	got := samples(t, cfg.Timing)
	expectSamples(t, got, map[string]float64{
		"muster_http_requests_in_flight{state=active}":                     0,
		"muster_http_requests_in_flight{state=waiting}":                    0,
		"muster_http_requests_total{code=200 method=get route=/v1/events}": 1,
	})
	polls := 0.0
	for name, n := range got {
		if strings.HasPrefix(name, "muster_http_request_duration_seconds") {
			t.Errorf("%s is there, want no times", name)
		}
		if strings.HasPrefix(name, "muster_http_requests_total") && strings.Contains(name, "method=post route=/v1/agents/{id}/lease") {
			polls += n
		}
	}
	if polls != 1 {
		t.Errorf("got %v polls for work, want 1", polls)
	}
}
