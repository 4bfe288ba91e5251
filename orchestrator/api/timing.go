package api

import (
	"cmp"
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Timing counts and times the requests of a Handler for Prometheus. The label route is the pattern of a route, as in
// /jobs/{id}, and never a path. Requests that wait for something to happen, which are polls for work and streams, are
// counted but not timed.
type Timing struct {
	duration *prometheus.HistogramVec
	requests *prometheus.CounterVec
	size     *prometheus.SummaryVec
	open     *prometheus.GaugeVec
}

// NewTiming returns the collector of the requests of one process.
func NewTiming() *Timing {
	labels := []string{"method", "route", "code"}
	t := &Timing{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_http_request_duration_seconds", Help: "Duration of requests, except requests that wait for work or events. Paths without a route have the route other.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
		}, labels),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_http_requests_total", Help: "Completed requests.",
		}, labels),
		size: prometheus.NewSummaryVec(prometheus.SummaryOpts{
			Name: "muster_http_response_size_bytes", Help: "Bytes of responses.",
		}, labels),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "muster_http_requests_in_flight", Help: "Requests in progress; requests that wait for work or events have the state waiting.",
		}, []string{"state"}),
	}
	t.open.WithLabelValues("waiting")
	t.open.WithLabelValues("active")
	return t
}

func (t *Timing) parts() []prometheus.Collector {
	return []prometheus.Collector{t.duration, t.requests, t.size, t.open}
}

// Describe implements prometheus.Collector.
func (t *Timing) Describe(ch chan<- *prometheus.Desc) {
	for _, part := range t.parts() {
		part.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (t *Timing) Collect(ch chan<- prometheus.Metric) {
	for _, part := range t.parts() {
		part.Collect(ch)
	}
}

// timedRoute is the key of the label route in the context of a request.
type timedRoute struct{}

// timed counts and times the requests to next by the pattern of their route.
func (c Config) timed(next http.Handler) http.Handler {
	t := c.Timing
	if t == nil {
		return next
	}
	route := promhttp.WithLabelFromCtx("route", func(ctx context.Context) string {
		label, _ := ctx.Value(timedRoute{}).(string)
		return label
	})
	counted := promhttp.InstrumentHandlerCounter(t.requests, promhttp.InstrumentHandlerResponseSize(t.size, next, route), route)
	waiting := promhttp.InstrumentHandlerInFlight(t.open.WithLabelValues("waiting"), counted)
	active := promhttp.InstrumentHandlerInFlight(t.open.WithLabelValues("active"), promhttp.InstrumentHandlerDuration(t.duration, counted, route))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		label := cmp.Or(c.route(r), "other")
		r = r.WithContext(context.WithValue(r.Context(), timedRoute{}, label))
		if c.routeOf(r).waits {
			waiting.ServeHTTP(w, r)
			return
		}
		active.ServeHTTP(w, r)
	})
}
