package api

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster/orchestrator/job"
)

const (
	metricsTime = 5 * time.Second // for all questions of one scrape
	metricJobs  = 200             // jobs whose items one scrape counts
)

// Metrics collects the numbers of jobs. It may be scraped by many
// goroutines at once.
type Metrics struct {
	cfg     Config
	started time.Time

	uptime, jobs, ready, items, stuck *prometheus.Desc
}

// NewMetrics returns the collector of what cfg has. Uptime is counted from now.
func NewMetrics(cfg Config) *Metrics {
	desc := prometheus.NewDesc
	return &Metrics{
		cfg: cfg.withDefaults(), started: time.Now(),
		uptime: desc("orchestrator_uptime_seconds", "How long the process has served the HTTP interface.", nil, nil),
		jobs:   desc("orchestrator_jobs_total", "Jobs of all kinds by status.", []string{"status"}, nil),
		ready:  desc("orchestrator_ready", "1 if requests can be served, else 0; see /ready.", nil, nil),
		items:  desc("muster_jobs_items", "Items by state, of the 200 newest jobs that are processing.", []string{"state"}, nil),
		stuck:  desc("muster_jobs_stuck", "Jobs without progress.", nil, nil),
	}
}

// Describe lists the metrics.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.uptime, m.jobs, m.ready, m.items, m.stuck} {
		ch <- d
	}
}

// Collect reads the numbers. What cannot be read is left out.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), metricsTime)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(m.uptime, time.Since(m.started).Seconds())
	ready := 0.0
	without := m.cfg
	without.Check = nil // it has metrics of its own
	if without.readiness(ctx).Ready {
		ready = 1
	}
	gauge(m.ready, ready)
	if m.cfg.Jobs != nil {
		m.collectJobs(ctx, gauge)
	}
}

func (m *Metrics) collectJobs(ctx context.Context, gauge func(*prometheus.Desc, float64, ...string)) {
	if totals, err := m.cfg.Jobs.Totals(ctx); err == nil {
		for _, status := range job.Statuses {
			gauge(m.jobs, float64(totals[status]), string(status))
		}
	}
	if stuck, err := m.cfg.Jobs.Stuck(ctx); err == nil {
		gauge(m.stuck, float64(len(stuck)))
	}
	page, err := m.cfg.Jobs.List(ctx, job.Filter{Statuses: []job.Status{job.Processing}, Limit: metricJobs})
	if err != nil {
		return
	}
	byState := map[job.ItemStatus]int64{}
	for _, j := range page.Jobs {
		c := j.Items
		for state, n := range map[job.ItemStatus]int64{
			job.ItemPending: c.Pending, job.ItemValidating: c.Validating, job.ItemIntegrated: c.Integrated,
			job.ItemRejected: c.Rejected, job.ItemFailed: c.Failed, job.ItemReview: c.Review,
		} {
			byState[state] += n
		}
	}
	for _, state := range job.ItemStatuses {
		gauge(m.items, float64(byState[state]), string(state))
	}
}
