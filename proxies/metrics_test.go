package proxies

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/proxies/probe"
	"muster/tasks/metrics"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), nil)
	mustPublish(t, pool, result(1, nil), result(2, nil), result(3, func(r *probe.Result) { r.Anonymity = probe.Transparent }))
	testutil.Ok(t, pool.Ban(t.Context(), "", 0, proxyOf(result(2, nil)).ID))
	testutil.Ok(t, pool.yields.record(t.Context(), "1", map[string]Yield{"a": {Candidates: 1}}))
	w := httptest.NewRecorder()
	metrics.Handler(NewMetrics(pool)).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text, _ := io.ReadAll(w.Body)
	for _, line := range []string{
		`muster_proxies{state="ready"} 1`, `muster_proxies{state="resting"} 0`, `muster_proxies{state="banned"} 1`, `muster_proxies{state="unusable"} 1`,
		`muster_proxies_up 1`, `muster_proxies_by_protocol{protocol="http"} 3`, `muster_proxies_by_anonymity{anonymity="transparent"} 1`,
		`muster_proxies_latency_seconds{percentile="50"} 0.011`, `muster_proxies_sources_dry 0`, `muster_proxies_stale 0`, `muster_proxies_refreshed_timestamp_seconds 0`,
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("missing %s in\n%s", line, text)
		}
	}
}
