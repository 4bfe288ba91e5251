package orchestrator

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	promcollectors "github.com/prometheus/client_golang/prometheus/collectors"

	"muster/jobs/agent"
	"muster/orchestrator/api"
	"muster/orchestrator/webhook"
	"muster/proxies"
	"muster/tasks/limit"
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
		s.Metrics, s.scrapes, &siteHealth{known: s.scrapes.known, read: s.Sites.Health}, metrics.NewFleet(s.Client), proxies.NewMetrics(s.Pool), agent.NewMetrics(s.Agents), api.NewMetrics(served), served.Timing,
		webhook.NewMetrics(s.Webhooks), limit.NewCollector(nil, s.Breakers.Hosts()), RuntimeMetrics(),
	}
}
