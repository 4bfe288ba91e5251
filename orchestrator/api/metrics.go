package api

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster/jobs"
)

// metricsTime bounds all questions of one scrape.
const metricsTime = 5 * time.Second

// Metrics collects the metrics of jobs. It is safe for concurrent use.
type Metrics struct {
	cfg     Config
	started time.Time

	uptime, jobs, ready, items, stuck *prometheus.Desc
}

// NewMetrics returns the collector for the services of cfg. Uptime is counted from now.
func NewMetrics(cfg Config) *Metrics {
	desc := prometheus.NewDesc
	return &Metrics{
		cfg: cfg.withDefaults(), started: time.Now(),
		uptime: desc("orchestrator_uptime_seconds", "Time since the HTTP interface started.", nil, nil),
		jobs:   desc("orchestrator_jobs_total", "Jobs.", []string{"status"}, nil),
		ready:  desc("orchestrator_ready", "1 if requests can be served; see /ready.", nil, nil),
		items:  desc("muster_jobs_items", "Items of jobs. Items of unfinished jobs are counted every jobs.check_every.", []string{"state"}, nil),
		stuck:  desc("muster_jobs_stuck", "Jobs without progress, counted every jobs.check_every.", nil, nil),
	}
}

// Describe lists the metrics.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.uptime, m.jobs, m.ready, m.items, m.stuck} {
		ch <- d
	}
}

// Collect reads the metrics and omits those that cannot be read.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), metricsTime)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(m.uptime, time.Since(m.started).Seconds())
	ready := 0.0
	if m.cfg.readiness(ctx, false).Ready {
		ready = 1
	}
	gauge(m.ready, ready)
	if m.cfg.Jobs != nil {
		m.collectJobs(ctx, ch, gauge)
	}
}

func (m *Metrics) collectJobs(ctx context.Context, ch chan<- prometheus.Metric, gauge func(*prometheus.Desc, float64, ...string)) {
	if totals, err := m.cfg.Jobs.Totals(ctx); err == nil {
		for _, status := range jobs.Statuses {
			gauge(m.jobs, float64(totals[status]), string(status))
		}
	}
	n, err := m.cfg.Jobs.Numbers(ctx)
	if err != nil {
		return
	}
	gauge(m.stuck, float64(n.Stuck))
	for _, state := range jobs.ItemStatuses {
		gauge(m.items, float64(n.Items[state]), string(state))
	}
}
