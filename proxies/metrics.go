package proxies

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	metricUp        = prometheus.NewDesc("muster_proxies_up", "1 if the pool is readable.", nil, nil)
	metricProxies   = prometheus.NewDesc("muster_proxies", "Proxies in the pool: ready, resting, banned, or unusable (they reveal our address).", []string{"state"}, nil)
	metricProtocol  = prometheus.NewDesc("muster_proxies_by_protocol", "Proxies in the pool.", []string{"protocol"}, nil)
	metricAnonymity = prometheus.NewDesc("muster_proxies_by_anonymity", "Proxies in the pool.", []string{"anonymity"}, nil)
	metricLatency   = prometheus.NewDesc("muster_proxies_latency_seconds", "Latency of usable proxies: percentile 50, 90 or 99.", []string{"percentile"}, nil)
	metricStale     = prometheus.NewDesc("muster_proxies_stale", "1 if the last refresh found no proxies and kept the old pool.", nil, nil)
	metricRefreshed = prometheus.NewDesc("muster_proxies_refreshed_timestamp_seconds", "Time of the last refresh that found proxies; 0 if there is none.", nil, nil)
	metricDry       = prometheus.NewDesc("muster_proxies_sources_dry", "Sources without a usable proxy in three consecutive refreshes.", nil, nil)
)

// Metrics is a Prometheus collector of the metrics of a pool. It is safe for concurrent use.
type Metrics struct{ pool *Pool }

// NewMetrics returns a collector for pool.
func NewMetrics(pool *Pool) *Metrics { return &Metrics{pool} }

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{metricUp, metricProxies, metricProtocol, metricAnonymity, metricLatency, metricStale, metricRefreshed, metricDry} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It reads Redis with a timeout of five seconds.
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
