//go:build unix

package main

import (
	"context"
	"net/http"
	"time"

	"muster/tasks"
	taskmetrics "muster/tasks/metrics"
	"muster/tasks/taskstest"
)

// Environment variables of a workflow worker, which is a process of this program.
const (
	workerEnv  = "MUSTER_SOAK_WORKER_URL"
	metricsEnv = "MUSTER_SOAK_WORKER_METRICS" // listen address of its metrics
)

// runWorker implements the main function of a workflow worker. It serves metrics.
func runWorker(ctx context.Context, url, metrics string) error {
	c, err := tasks.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close()
	server := &http.Server{Addr: metrics, Handler: taskmetrics.Handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.ListenAndServe() }() // until Close; the report shows missing samples
	defer server.Close()
	mux := tasks.NewMux()
	taskstest.HandleRandom(mux)
	w, err := tasks.NewWorker(c, mux, tasks.WorkerConfig{Concurrency: 4, Grace: 5 * time.Second})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}
