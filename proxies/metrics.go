package proxies

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	metricUp        = prometheus.NewDesc("muster_proxies_up", "1 if the pool could be read, else 0.", nil, nil)
	metricProxies   = prometheus.NewDesc("muster_proxies", "Proxies in the pool by state: ready, resting, banned, or unusable because they show our address.", []string{"state"}, nil)
	metricProtocol  = prometheus.NewDesc("muster_proxies_by_protocol", "Proxies in the pool by protocol.", []string{"protocol"}, nil)
	metricAnonymity = prometheus.NewDesc("muster_proxies_by_anonymity", "Proxies in the pool by what sites see.", []string{"anonymity"}, nil)
	metricLatency   = prometheus.NewDesc("muster_proxies_latency_seconds", "Latency of usable proxies as checked, by percentile: 50, 90 or 99.", []string{"percentile"}, nil)
	metricArchived  = prometheus.NewDesc("muster_proxies_archived", "Proxies that were removed within the last day.", nil, nil)
	metricStale     = prometheus.NewDesc("muster_proxies_stale", "1 if the last refresh found nothing and the old pool stayed, else 0.", nil, nil)
	metricRefreshed = prometheus.NewDesc("muster_proxies_refreshed_timestamp_seconds", "When a refresh last found proxies; 0 for never.", nil, nil)
	metricDry       = prometheus.NewDesc("muster_proxies_sources_dry", "Sources without a usable proxy for three refreshes in a row.", nil, nil)
)

// Metrics collects the numbers of a pool for Prometheus. It may be scraped by many at once.
type Metrics struct{ pool *Pool }

// NewMetrics returns the collector of a pool.
func NewMetrics(pool *Pool) *Metrics { return &Metrics{pool} }

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{metricUp, metricProxies, metricProtocol, metricAnonymity, metricLatency, metricArchived, metricStale, metricRefreshed, metricDry} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It asks Redis, for at most five seconds.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s, err := m.pool.Stats(ctx)
	if err != nil {
		gauge(metricUp, 0)
		return
	}
	yields, err := m.pool.Yields(ctx)
	if err != nil {
		gauge(metricUp, 0)
		return
	}
	gauge(metricUp, 1)
	gauge(metricProxies, float64(s.Ready), "ready")
	gauge(metricProxies, float64(s.Cooling), "resting")
	gauge(metricProxies, float64(s.Banned), "banned")
	gauge(metricProxies, float64(s.Live-s.Usable-s.Banned), "unusable")
	for protocol, n := range s.Protocols {
		gauge(metricProtocol, float64(n), protocol)
	}
	for grade, n := range s.Anonymity {
		gauge(metricAnonymity, float64(n), grade)
	}
	for percentile, ms := range map[string]float64{"50": s.Latency.P50, "90": s.Latency.P90, "99": s.Latency.P99} {
		gauge(metricLatency, ms/1000, percentile)
	}
	gauge(metricArchived, float64(s.Archived))
	stale, refreshed, dry := 0.0, 0.0, 0.0
	if s.Stale {
		stale = 1
	}
	if !s.RefreshedAt.IsZero() {
		refreshed = float64(s.RefreshedAt.Unix())
	}
	for _, y := range yields {
		if y.DryFor >= dryAfter {
			dry++
		}
	}
	gauge(metricStale, stale)
	gauge(metricRefreshed, refreshed)
	gauge(metricDry, dry)
}
