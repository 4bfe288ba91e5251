package orchestrator

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promcollectors "github.com/prometheus/client_golang/prometheus/collectors"

	"muster/internal/limit"
	"muster/jobs/agent"
	"muster/orchestrator/api"
	"muster/orchestrator/webhook"
	"muster/proxies"
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
		s.Metrics, s.scrapes, s.times.jobs, s.times.items, &siteHealth{known: s.scrapes.known, read: s.Sites.Health}, metrics.NewFleet(s.Client), proxies.NewMetrics(s.Pool), agent.NewMetrics(s.Agents), api.NewMetrics(served), served.Timing,
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
