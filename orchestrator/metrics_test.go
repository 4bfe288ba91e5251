package orchestrator

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"muster/orchestrator/api"
	"muster/proxies/gateway"
	"muster/tasks/limit"
	"muster/tasks/metrics"
	"muster/tasks/workqueue"
)

// metric is what a metric promises.
type metric struct{ kind, labels string }

// everyMetric collects what all commands export, of a system that has worked: muster start, worker, queue run and
// proxies serve.
func everyMetric(t *testing.T) prometheus.Collector {
	t.Helper()
	w := serveSystem(t)
	served := api.Config{Client: w.system.Client, Jobs: w.system.Jobs, Agents: w.system.Agents, Timing: api.NewTiming(), Write: true}
	h, err := api.Handler(served)
	if err != nil {
		t.Fatal(err)
	}
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/agents", http.NoBody))
	queue := workqueue.New(w.system.Client.Redis(), "shop", workqueue.Config{})
	mux := workqueue.NewMux()
	pool, err := workqueue.NewPool(queue, mux, workqueue.PoolConfig{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	front, err := gateway.New(gateway.Config{Pool: w.system.Pool, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	hosts := limit.NewKeyedLimiter(w.system.Client.Redis(), limit.KeyedConfig{Default: 1})
	return all{w.system.metrics(served), workqueue.NewCollector(queue, pool), limit.NewCollector(map[string]*limit.KeyedLimiter{"host": hosts}, nil), front}
}

// describedMetrics are the metrics that a collector describes, but those of Go and the process.
func describedMetrics(t *testing.T, c prometheus.Collector) map[string]metric {
	t.Helper()
	form := regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: ".*", constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}\}$`)
	descs := make(chan *prometheus.Desc)
	go func() { c.Describe(descs); close(descs) }()
	out := map[string]metric{}
	for d := range descs {
		m := form.FindStringSubmatch(strings.ReplaceAll(d.String(), "\n", " "))
		if m == nil {
			t.Fatalf("cannot read %s", d)
		}
		if strings.HasPrefix(m[1], "go_") || strings.HasPrefix(m[1], "process_") {
			continue
		}
		var labels []string
		for _, constant := range strings.Split(m[2], ",") {
			name, _, _ := strings.Cut(constant, "=")
			labels = append(labels, name)
		}
		labels = append(labels, strings.Split(m[3], ",")...)
		labels = slices.DeleteFunc(labels, func(s string) bool { return s == "" })
		slices.Sort(labels)
		out[m[1]] = metric{labels: strings.Join(labels, ", ")}
	}
	return out
}

// documentedMetrics are the metrics of docs/metrics.md.
func documentedMetrics(t *testing.T) map[string]metric {
	t.Helper()
	raw, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]metric{}
	for line := range strings.Lines(string(raw)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		name, ok := strings.CutPrefix(strings.TrimSpace(cells[0]), "`")
		if len(cells) != 4 || !ok {
			continue
		}
		labels := strings.Split(strings.ReplaceAll(strings.TrimSpace(cells[2]), "`", ""), ", ")
		slices.Sort(labels)
		name = strings.TrimSuffix(name, "`")
		if out[name] != (metric{}) {
			t.Errorf("%s is there twice", name)
		}
		out[name] = metric{strings.TrimSpace(cells[1]), strings.Join(labels, ", ")}
	}
	return out
}

func TestDocumentedMetricsAreThoseExported(t *testing.T) {
	t.Parallel()
	c := everyMetric(t)
	got, want := describedMetrics(t, c), documentedMetrics(t)
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if doc, ok := want[name]; !ok {
			t.Errorf("docs/metrics.md lacks %s with the labels %q", name, got[name].labels)
		} else if doc.labels != got[name].labels {
			t.Errorf("%s: docs/metrics.md has the labels %q, want %q", name, doc.labels, got[name].labels)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if _, ok := got[name]; !ok {
			t.Errorf("docs/metrics.md has %s, which nothing exports", name)
		}
	}

	w := httptest.NewRecorder()
	metrics.Handler(c).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusOK {
		t.Fatalf("got %d %s, want the metrics", w.Code, w.Body)
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\w+) (\w+)$`).FindAllStringSubmatch(w.Body.String(), -1) {
		if doc, ok := want[m[1]]; ok && doc.kind != m[2] {
			t.Errorf("%s: docs/metrics.md says %s, want %s", m[1], doc.kind, m[2])
		}
	}
	problems, err := promlint.New(w.Body).Lint()
	if err != nil {
		t.Fatal(err)
	}
	// These names are older than the rules.
	kept := []string{"orchestrator_jobs_total"}
	for _, p := range problems {
		if !slices.Contains(kept, p.Metric) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}
