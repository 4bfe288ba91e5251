// Package metrics exports the state of a fleet and the work of its workers to Prometheus.
//
// A [Fleet] reads the state of queues, workers, scheduled tasks and schedules from Redis on each scrape. One per
// Redis is sufficient. A [Process] counts the work of the workers in its own process. Each process has one:
//
//	process := metrics.NewProcess()
//	worker, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{Observe: process.Observe})
//	process.Watch(worker)
//	http.Handle("/metrics", metrics.Handler(metrics.NewFleet(client), process))
//
// A [Queue] has the metrics of a work queue, and of a pool that works on it.
//
// Label values are the names of queues, schedules, outcomes, and tasks with a handler. Inputs of tasks are
// never label values. Each label has at most [MaxLabels] values; further values are combined as "(other)".
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// MaxLabels is the maximum number of values per label.
const MaxLabels = 200

// other is the label value for all values beyond MaxLabels.
const other = "(other)"

// Handler returns an HTTP handler for the metrics of collectors. It panics if two of them have the same metric.
func Handler(collectors ...prometheus.Collector) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors...)
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("muster_"+name, help, labels, nil)
}
