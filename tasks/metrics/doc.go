// Package metrics exports the state of a fleet and the work of its workers to Prometheus.
//
// A [Fleet] reads from Redis when it is scraped: the queues, the workers, the tasks that wait for their time, the
// schedule. One for each Redis is enough. A [Process] counts what the workers of its own process do; each process has
// one:
//
//	process := metrics.NewProcess()
//	worker, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{Observe: process.Observe})
//	process.Watch(worker)
//	http.Handle("/metrics", metrics.Handler(metrics.NewFleet(client), process))
//
// Label values are the names of queues, of entries of the schedule, of outcomes, and of the tasks that a worker has
// handlers for. Inputs of tasks are never label values. Each label has at most [MaxLabels] values: the others are
// counted together, as "(other)".
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// MaxLabels is how many values a label has at most.
const MaxLabels = 200

// other is the label value of all values beyond MaxLabels.
const other = "(other)"

// Handler serves the metrics of collectors over HTTP. It panics if two collectors have the same metric.
func Handler(collectors ...prometheus.Collector) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors...)
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("muster_"+name, help, labels, nil)
}
