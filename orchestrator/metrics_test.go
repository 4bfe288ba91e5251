package orchestrator

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
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

	"muster/internal/testutil"
	"muster/orchestrator/api"
	"muster/proxies/gateway"
	"muster/tasks/limit"
	"muster/tasks/metrics"
	"muster/tasks/workqueue"
)

//go:generate go test -run TestMetricsPage -update .

var update = flag.Bool("update", false, "write docs/reference/metrics.md")

// metric is the documented description of a metric.
type metric struct{ help, labels string }

// everyMetric collects the metrics of all commands (muster start, worker, queue run and proxies serve) from a system that
// has processed work.
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

// describedMetrics returns the metrics that a collector describes, except Go and process metrics.
func describedMetrics(t *testing.T, c prometheus.Collector) map[string]metric {
	t.Helper()
	form := regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: "(.*?)"(?:, unit: "[^"]*")?, constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}\}$`)
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
		for _, constant := range strings.Split(m[3], ",") {
			name, _, _ := strings.Cut(constant, "=")
			labels = append(labels, name)
		}
		labels = append(labels, strings.Split(m[4], ",")...)
		labels = slices.DeleteFunc(labels, func(s string) bool { return s == "" })
		slices.Sort(labels)
		out[m[1]] = metric{m[2], strings.Join(labels, ", ")}
	}
	return out
}

// metricGroups are the sections of the page, with the name prefixes of their metrics. A metric belongs to the first section
// with a matching prefix.
var metricGroups = []struct{ title, names string }{
	{"HTTP interface, of the process", "muster_http_ orchestrator_uptime orchestrator_ready"},
	{"Agents and webhooks, of the process", "muster_agents_pushes muster_webhook_attempt muster_webhook_deliveries_total"},
	{"Jobs, of Redis", "orchestrator_jobs muster_jobs"},
	{"Agents, of Redis", "muster_agents"},
	{"Webhooks, of Redis", "muster_webhook"},
	{"Tasks, of Redis", "muster_fleet muster_schedule muster_limit_breakers"},
	{"Tasks, of the process", "muster_task muster_worker"},
	{"Scrapes, of the process", "muster_scrape"},
	{"Sites, as stored in Redis", "muster_site_"},
	{"Proxies, of Redis", "muster_proxies"},
	{"The gateway, of the process", "muster_gateway"},
	{"A work queue and its run", "muster_queue muster_limit"},
	{"Every process", "muster_build_info"},
}

// The part of docs/reference/metrics.md above this line is written by hand.
const metricsMark = "<!-- What follows is made by go generate ./orchestrator. -->\n"

// The generated part of docs/reference/metrics.md lists all exported metrics. go generate writes it.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	const file = "../docs/reference/metrics.md"
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(raw), metricsMark)
	if !ok {
		t.Fatalf("%s has no line %s", file, metricsMark)
	}
	c := everyMetric(t)
	w := httptest.NewRecorder()
	metrics.Handler(c).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusOK {
		t.Fatalf("got %d %s, want the metrics", w.Code, w.Body)
	}
	kinds := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\w+) (\w+)$`).FindAllStringSubmatch(w.Body.String(), -1) {
		kinds[m[1]] = m[2]
	}
	described, rows := describedMetrics(t, c), map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(described)) {
		kind := cmp.Or(kinds[name], unseenKinds[name])
		if kind == "" && strings.HasSuffix(name, "_total") {
			kind = "counter"
		}
		if kind == "" {
			t.Errorf("%s is not exported: add it to everyMetric or unseenKinds", name)
		}
		at := slices.IndexFunc(metricGroups, func(g struct{ title, names string }) bool {
			return slices.ContainsFunc(strings.Fields(g.names), func(begin string) bool { return strings.HasPrefix(name, begin) })
		})
		if at < 0 {
			t.Fatalf("%s is in no group", name)
		}
		labels := described[name].labels
		if labels != "" {
			labels = "`" + strings.ReplaceAll(labels, ", ", "`, `") + "` "
		}
		rows[metricGroups[at].title] += fmt.Sprintf("| `%s` | %s | %s| %s |\n", name, kind, labels, described[name].help)
	}
	page := bytes.NewBufferString(head + metricsMark)
	for _, g := range metricGroups {
		fmt.Fprintf(page, "\n## %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n%s", g.title, rows[g.title])
	}
	testutil.Page(t, file, page.Bytes(), *update, "go generate ./orchestrator")

	problems, err := promlint.New(w.Body).Lint()
	if err != nil {
		t.Fatal(err)
	}
	// These names predate the naming rules.
	kept := []string{"orchestrator_jobs_total"}
	for _, p := range problems {
		if !slices.Contains(kept, p.Metric) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// unseenKinds are the types of metrics that are exported only after the first event. Counters are recognized by _total.
var unseenKinds = map[string]string{
	"muster_fleet_latency_seconds":           "gauge",
	"muster_fleet_paused":                    "gauge",
	"muster_fleet_tasks":                     "gauge",
	"muster_proxies_by_anonymity":            "gauge",
	"muster_proxies_by_protocol":             "gauge",
	"muster_queue_run_seconds":               "histogram",
	"muster_schedule_last_timestamp_seconds": "gauge",
	"muster_schedule_led":                    "gauge",
	"muster_schedule_next_timestamp_seconds": "gauge",
	"muster_scrape_response_seconds":         "histogram",
	"muster_site_health":                     "gauge",
	"muster_task_duration_seconds":           "histogram",
}
