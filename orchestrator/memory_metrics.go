package orchestrator

import (
	"github.com/prometheus/client_golang/prometheus"

	"muster/sites"
)

// memoryMetrics are of the memory for pages of this process.
type memoryMetrics struct{ of *sites.Memory }

var (
	descMemoryLimit = prometheus.NewDesc("muster_sites_memory_limit_bytes", "What the process should stay below; 0 for no limit.", nil, nil)
	descMemoryTaken = prometheus.NewDesc("muster_sites_memory_reserved_bytes", "Memory that is set aside for pages.", nil, nil)
	descPages       = prometheus.NewDesc("muster_sites_pages_in_flight", "Pages that are fetched or taken apart, where there is a limit on memory.", nil, nil)
	descWaiting     = prometheus.NewDesc("muster_sites_pages_waiting_for_memory", "Pages that wait until there is memory for them.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m memoryMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descMemoryLimit, descMemoryTaken, descPages, descWaiting} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m memoryMetrics) Collect(ch chan<- prometheus.Metric) {
	use := m.of.Use()
	for _, g := range []struct {
		desc  *prometheus.Desc
		value int64
	}{{descMemoryLimit, use.Limit}, {descMemoryTaken, use.Reserved}, {descPages, use.Pages}, {descWaiting, use.Waiting}} {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(g.value))
	}
}
