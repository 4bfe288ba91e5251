package agent

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	metricUp      = prometheus.NewDesc("muster_agents_up", "1 if the agents could be read.", nil, nil)
	metricAgents  = prometheus.NewDesc("muster_agents", "Agents: healthy, unavailable, draining or new.", []string{"state"}, nil)
	metricHeld    = prometheus.NewDesc("muster_agents_assignments_held", "Assignments that agents work on.", nil, nil)
	metricBreaker = prometheus.NewDesc("muster_agents_breakers", "Breakers of agents with a URL: closed, open or half_open.", []string{"state"}, nil)
)

// counts holds the metrics of this process.
type counts struct {
	pushes *prometheus.CounterVec
	took   *prometheus.HistogramVec
}

func newCounts() counts {
	c := counts{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_agents_pushes_total", Help: "Requests of this process that pushed an assignment.",
	}, []string{"outcome"}), prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "muster_agents_assignment_duration_seconds", Help: "Duration of assignments that this process ended: completed, failed, released, expired (their deadline passed), lost (their lease or job ended) or moved (their agent was gone). Includes Go tasks.",
		Buckets: []float64{0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400},
	}, []string{"outcome"})}
	for _, outcome := range outcomes {
		c.took.WithLabelValues(outcome)
	}
	for _, outcome := range pushOutcomes {
		c.pushes.WithLabelValues(outcome)
	}
	return c
}

// Describe implements prometheus.Collector.
func (s *Service) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{metricUp, metricAgents, metricHeld, metricBreaker} {
		ch <- d
	}
	s.counts.pushes.Describe(ch)
	s.counts.took.Describe(ch)
}

// Collect implements prometheus.Collector. It asks Redis, for at most five seconds.
func (s *Service) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s.counts.pushes.Collect(ch)
	s.counts.took.Collect(ch)
	agents, err := s.List(ctx)
	if err != nil {
		gauge(metricUp, 0)
		return
	}
	gauge(metricUp, 1)
	states, breakers, held := map[string]int{}, map[string]int{}, 0
	for _, a := range agents {
		states[a.State]++
		held += a.Held
		if a.Breaker != "" {
			breakers[a.Breaker]++
		}
	}
	for _, state := range States {
		gauge(metricAgents, float64(states[state]), state)
	}
	for _, state := range []string{"closed", "open", "half_open"} {
		gauge(metricBreaker, float64(breakers[state]), state)
	}
	gauge(metricHeld, float64(held))
}
