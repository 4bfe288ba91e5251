package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"muster/orchestrator/config"
	"muster/orchestrator/tracing/otlp"
	"muster/tasks"
)

// tracingRows are the rows of the ids of logs and of traces.
func tracingRows() []row {
	return []row{
		// The worker of muster against one of tasks alone. With a collector, of tasks that do nothing: each span costs a
		// call to Redis and its export. A workflow that was sent without a trace is sampled as a whole: of 0.01, most
		// rounds have no span.
		{name: "tracing.off", unit: "nodes/s", measure: traced(20000, -1), yardstick: group(20000, 1, 8), bar: atLeast(0.85)},
		{name: "tracing.sample_0.01", unit: "nodes/s", measure: traced(20000, 0.01), yardstick: group(20000, 1, 8), bar: reported},
		{name: "tracing.sample_1", unit: "nodes/s", measure: traced(20000, 1), yardstick: group(20000, 1, 8), bar: reported},
	}
}

// traced is a group of n tasks on a worker that logs and traces as those of muster do, with a share of traces sampled
// and sent to a collector in this process; below 0, tracing is off.
func traced(n int, sample float64) measureFunc {
	return rate(n, func(ctx context.Context, l *lab) (float64, error) {
		logger := slog.New(slog.NewJSONHandler(io.Discard, nil))
		cfg := config.Default().Tracing
		if sample >= 0 {
			collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
			}))
			defer collector.Close()
			cfg.Endpoint, cfg.Sample = collector.URL, sample
		}
		spans, err := otlp.Open(cfg, logger)
		if err != nil {
			return 0, err
		}
		defer spans.Close()
		f, err := startFleet(ctx, l, 1, 8, func(mux *tasks.Mux, c *tasks.Client) { spans.Use(mux, c, logger) })
		if err != nil {
			return 0, err
		}
		if err := sendSingles(ctx, f, 1); err != nil {
			return 0, errors.Join(err, f.stop())
		}
		v, err := timed(func(ctx context.Context, f *fleet) error { return runGroup(ctx, f, n) })(ctx, l, f)
		return v, errors.Join(err, f.stop())
	})
}
