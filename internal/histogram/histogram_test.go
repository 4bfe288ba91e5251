package histogram_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"muster/internal/histogram"
)

// fixed is a collector of one metric.
type fixed struct {
	desc   *prometheus.Desc
	metric prometheus.Metric
}

func (f fixed) Describe(ch chan<- *prometheus.Desc) { ch <- f.desc }
func (f fixed) Collect(ch chan<- prometheus.Metric) { ch <- f.metric }

func TestMetricContainsTheCountsOfItsName(t *testing.T) {
	t.Parallel()
	bounds := histogram.Bounds{0.5, 1, 60}
	if got := bounds.Text(); got != "0.5 1 60" {
		t.Errorf("got %q, want 0.5 1 60", got)
	}
	desc := prometheus.NewDesc("a_seconds", "A.", []string{"of"}, nil)
	hash := map[string]string{
		"x 0.5": "3", "x 1": "2", "x 30": "1", "x +Inf": "4", "x ms": "12500",
		"y 1": "9", "x nothing": "7", "x 60": "many",
	}
	want := `# HELP a_seconds A.
# TYPE a_seconds histogram
a_seconds_bucket{of="x",le="0.5"} 3
a_seconds_bucket{of="x",le="1"} 5
a_seconds_bucket{of="x",le="60"} 6
a_seconds_bucket{of="x",le="+Inf"} 10
a_seconds_sum{of="x"} 12.5
a_seconds_count{of="x"} 10
`
	reg, w := prometheus.NewRegistry(), httptest.NewRecorder()
	reg.MustRegister(fixed{desc, bounds.Metric(desc, hash, "x", "x")})
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	if got := w.Body.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
