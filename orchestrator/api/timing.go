package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// timedMethods are the methods that are values of a label; a client can choose any.
var timedMethods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// otherLabel is the label of a method that is not one of timedMethods, and of paths without a route.
const otherLabel = "other"

// Timing counts and times the requests of a Handler for Prometheus. Routes are
// those of the interface, as in /jobs/{id}, never paths. Requests that wait for
// something to happen, which are polls for work and streams of events, are
// counted but not timed.
type Timing struct {
	duration *prometheus.HistogramVec
	requests *prometheus.CounterVec
	bytes    *prometheus.CounterVec
	open     *prometheus.GaugeVec
}

// NewTiming returns the collector of the requests of one process.
func NewTiming() *Timing {
	t := &Timing{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_http_request_duration_seconds", Help: "How long requests took, without those that wait for work or events, by method, route and class of the status. A path without a route, and a method that is none of HTTP's, are other.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
		}, []string{"method", "route", "code"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_http_requests_total", Help: "Requests that were answered, by method, route and status.",
		}, []string{"method", "route", "code"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_http_response_bytes_total", Help: "Bytes of the bodies of answers.",
		}, []string{"method", "route"}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "muster_http_requests_in_flight", Help: "Requests that are being answered; those that wait for work or events have the state waiting.",
		}, []string{"state"}),
	}
	t.open.WithLabelValues("waiting")
	t.open.WithLabelValues("active")
	return t
}

func (t *Timing) parts() []prometheus.Collector {
	return []prometheus.Collector{t.duration, t.requests, t.bytes, t.open}
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

// timedRequest is what is known of a request while it is answered.
type timedRequest struct {
	timing *Timing
	waits  bool
}

type timedKey struct{}

// waits says that the request of ctx waits for something to happen from here on, so that it is not timed. It is called
// by the goroutine that answers the request.
func waits(ctx context.Context) {
	r, _ := ctx.Value(timedKey{}).(*timedRequest)
	if r == nil || r.waits {
		return
	}
	r.waits = true
	r.timing.open.WithLabelValues("active").Dec()
	r.timing.open.WithLabelValues("waiting").Inc()
}

// timed counts and times the requests that next answers, by the patterns of routes.
func (c Config) timed(next http.Handler) http.Handler {
	t := c.Timing
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method, route := r.Method, cmp.Or(c.route(r), otherLabel)
		if !slices.Contains(timedMethods, method) {
			method = otherLabel
		}
		watched, state, start := &statusWriter{ResponseWriter: w}, &timedRequest{timing: t}, time.Now()
		t.open.WithLabelValues("active").Inc()
		ended := false
		defer func() {
			code := watched.code()
			if !ended && watched.status == 0 { // it panics
				code = http.StatusInternalServerError
			}
			t.requests.WithLabelValues(method, route, strconv.Itoa(code)).Inc()
			t.bytes.WithLabelValues(method, route).Add(float64(watched.bytes))
			if state.waits {
				t.open.WithLabelValues("waiting").Dec()
				return
			}
			t.open.WithLabelValues("active").Dec()
			t.duration.WithLabelValues(method, route, strconv.Itoa(code/100)+"xx").Observe(time.Since(start).Seconds())
		}()
		next.ServeHTTP(watched, r.WithContext(context.WithValue(r.Context(), timedKey{}, state)))
		ended = true
	})
}
