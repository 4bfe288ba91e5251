package orchestrator

import (
	"cmp"
	"context"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promcollectors "github.com/prometheus/client_golang/prometheus/collectors"

	"muster/internal/limit"
	"muster/internal/tracing/observed"
	"muster/jobs"
	"muster/orchestrator/api"
	"muster/orchestrator/webhook"
	"muster/proxies"
	"muster/sites/report"
	"muster/tasks/metrics"
)

// Version is the program version in the metric muster_build_info. main sets it at startup.
var Version = "dev"

// all combines collectors.
type all []prometheus.Collector

// Describe implements prometheus.Collector.
func (a all) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range a {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (a all) Collect(ch chan<- prometheus.Metric) {
	for _, c := range a {
		c.Collect(ch)
	}
}

// RuntimeMetrics returns the process metrics: version, Go runtime, memory, file descriptors and CPU time.
func RuntimeMetrics() prometheus.Collector {
	revision := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "muster_build_info", Help: "1, with the version of the program as labels.",
		ConstLabels: prometheus.Labels{"version": Version, "revision": revision, "go": runtime.Version()},
	})
	build.Set(1)
	return all{build, promcollectors.NewGoCollector(), promcollectors.NewProcessCollector(promcollectors.ProcessCollectorOpts{})}
}

// metrics returns the collector of a process that serves the HTTP API, with metrics of the fleet and of the process.
func (s *System) metrics(served api.Config) prometheus.Collector {
	return all{
		s.Metrics, s.scrapes, s.times.jobs, s.times.items, &siteHealth{known: s.scrapes.known, read: s.Sites.Health}, metrics.NewFleet(s.Client), proxies.NewMetrics(s.Pool), s.Agents, api.NewMetrics(served), served.Timing,
		webhook.NewMetrics(s.Webhooks), &limitUse{breaker: s.Breakers.Hosts}, s.queues, RuntimeMetrics(),
	}
}

// limitUse collects the use of limits. Keys are hosts and similar names in unlimited numbers, so they are counted and not used
// as labels.
type limitUse struct {
	slots   map[string]*limit.KeyedLimiter // by name, such as "host"
	breaker *limit.Breaker                 // nil for none
}

var (
	slotsUsed = prometheus.NewDesc("muster_limit_slots_used",
		"Slots held by this process: host or resolver.", []string{"limiter"}, nil)
	slotsWaiting = prometheus.NewDesc("muster_limit_slots_waiting",
		"Callers in this process that wait for a slot.", []string{"limiter"}, nil)
	breakersOpen = prometheus.NewDesc("muster_limit_breakers",
		"Breakers of sites and hosts that are open or half-open, in all processes.", []string{"state"}, nil)
)

// Describe implements prometheus.Collector.
func (c *limitUse) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{slotsUsed, slotsWaiting, breakersOpen} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It reads the breakers from Redis with a timeout of 2 s, and omits them on
// failure.
func (c *limitUse) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), label)
	}
	for name, l := range c.slots {
		used, waiting := l.Use()
		gauge(slotsUsed, used, name)
		gauge(slotsWaiting, waiting, name)
	}
	if c.breaker == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	states, err := c.breaker.States(ctx)
	if err != nil {
		return
	}
	n := map[string]int{"open": 0, "half_open": 0}
	for _, s := range states {
		n[s.State]++
	}
	for state, count := range n {
		gauge(breakersOpen, count, state)
	}
}

// scrapeMetrics counts the pages that this process fetches, by site. Sites unknown to the process are labeled other, so
// that jobs of other processes cannot add labels.
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
			Name: "muster_scrape_pages_total", Help: "Attempts to fetch and parse a page: ok or the class of the error, such as gone, blocked, soft_block, rate_limited, timeout, parse or robots. Delayed pages are not counted. Sites without a definition in the process are labeled other.",
		}, []string{"site", "outcome"}),
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_scrape_records_total", Help: "Records extracted from fetched pages.",
		}, []string{"site"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_scrape_response_seconds", Help: "Response times of pages, excluding delays before the request.",
			Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"site"}),
	}
}

// jobMetrics times the jobs and items that this process ends.
type jobMetrics struct{ jobs, items *prometheus.HistogramVec }

func newJobMetrics() *jobMetrics {
	m := &jobMetrics{
		prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_jobs_duration_seconds", Help: "Time of jobs that this process ended, from the start of their first stage.",
			Buckets: []float64{1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 43200, 86400, 259200, 604800},
		}, []string{"status"}),
		prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_jobs_item_duration_seconds", Help: "Time from the creation of an item to its end in this process; items that wait for a decision have the state review.",
			Buckets: []float64{0.1, 0.5, 1, 5, 15, 30, 60, 300, 900, 1800, 3600, 14400, 43200, 86400},
		}, []string{"state"}),
	}
	for _, status := range []jobs.Status{jobs.Completed, jobs.Failed, jobs.Cancelled} {
		m.jobs.WithLabelValues(string(status))
	}
	for _, state := range []jobs.ItemStatus{jobs.ItemIntegrated, jobs.ItemRejected, jobs.ItemFailed, jobs.ItemReview} {
		m.items.WithLabelValues(string(state))
	}
	return m
}

// took implements jobs.Config.Took.
func (m *jobMetrics) took(what, state string, d time.Duration) {
	of := m.items
	if what == "job" {
		of = m.jobs
	}
	of.WithLabelValues(state).Observe(d.Seconds())
}

// siteHealth exports the health of each site after its last scrape. Sites unknown to the process are labeled other.
type siteHealth struct {
	known func(site string) bool
	read  func(context.Context) ([]report.Health, error)

	mu   sync.Mutex // guards the fields below
	last map[string]float64
	at   time.Time
}

// healthEvery is the maximum age of the health of sites, which takes several commands per site to read.
const healthEvery = 30 * time.Second

var siteHealthDesc = prometheus.NewDesc("muster_site_health", "Health of a site after its last scrape: 0 healthy, 1 degraded, 2 critical. A failed scrape is critical. Sites without a definition in the process are labeled other, with the worst of their values.", []string{"site"}, nil)

// Describe implements prometheus.Collector.
func (h *siteHealth) Describe(ch chan<- *prometheus.Desc) { ch <- siteHealthDesc }

// Collect implements prometheus.Collector. While Redis is unavailable, it returns the last values.
func (h *siteHealth) Collect(ch chan<- prometheus.Metric) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.at) >= healthEvery {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if all, err := h.read(ctx); err == nil {
			h.last, h.at = map[string]float64{}, time.Now()
			for _, one := range all {
				site := one.Site
				if !h.known(site) {
					site = "other"
				}
				h.last[site] = max(h.last[site], float64(one.Status.Severity()-report.Healthy.Severity()))
			}
		}
	}
	for site, v := range h.last {
		ch <- prometheus.MustNewConstMetric(siteHealthDesc, prometheus.GaugeValue, v, site)
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

// add counts an attempt. Delayed pages were not requested and are not counted.
func (m *scrapeMetrics) add(site string, v observed.End) {
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
