package orchestrator

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"muster/sites"
)

// scrapeMetrics count the pages that this process fetches, by site. Sites that it does not know are other, so that
// jobs that others send cannot add labels.
type scrapeMetrics struct {
	known    func(site string) bool
	requests *prometheus.CounterVec
	records  *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newScrapeMetrics(known func(site string) bool) *scrapeMetrics {
	return &scrapeMetrics{
		known: known,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_scrape_pages_total", Help: "Attempts to fetch and read a page, by how they ended: ok, or the class of the error, such as gone, blocked, soft_block, rate_limited, timeout, parse or robots. Pages that wait for their turn are no attempts. A site that the process has no definition of is other.",
		}, []string{"site", "outcome"}),
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_scrape_records_total", Help: "Records of the pages that were fetched.",
		}, []string{"site"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_scrape_response_seconds", Help: "Response times of pages, without the waits before their requests.",
			Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"site"}),
	}
}

// Describe implements prometheus.Collector.
func (m *scrapeMetrics) Describe(ch chan<- *prometheus.Desc) {
	all{m.requests, m.records, m.seconds}.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *scrapeMetrics) Collect(ch chan<- prometheus.Metric) {
	all{m.requests, m.records, m.seconds}.Collect(ch)
}

// add counts an attempt. Pages that were not requested, because they must wait, are none.
func (m *scrapeMetrics) add(site string, v sites.Visited) {
	if v.Delayed {
		return
	}
	if !m.known(site) {
		site = "other"
	}
	m.requests.WithLabelValues(site, cmp.Or(v.Class, "ok")).Inc()
	m.records.WithLabelValues(site).Add(float64(v.Records))
	if v.Took > 0 {
		m.seconds.WithLabelValues(site).Observe(v.Took.Seconds())
	}
}
