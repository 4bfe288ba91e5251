// Package metrics exports the state of a fleet and the work of its workers to Prometheus.
//
// A [Fleet] reads from Redis when it is scraped, so one for each Redis is enough: the queues, the
// workers, what waits for its time, the schedule. A [Process] counts what the worker of its own process does; each
// process has one:
//
//	process := metrics.NewProcess()
//	worker, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{Observe: process.Observe})
//	process.Watch(worker)
//	http.Handle("/metrics", metrics.Handler(metrics.NewFleet(client), process))
//
// Label values are the names of tasks that the worker has handlers for, of queues, of entries of the
// schedule and of outcomes. None is made from what a task is sent with, and there are at most
// [MaxLabels] of each: the others go together as "(other)".
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// MaxLabels is the most values of one label.
const MaxLabels = 200

// other stands for the values beyond MaxLabels.
const other = "(other)"

// Handler serves what collectors collect.
func Handler(collectors ...prometheus.Collector) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors...)
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("muster_"+name, help, labels, nil)
}
