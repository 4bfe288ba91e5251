package webhook

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"muster/internal/webhook"
	"muster/orchestrator/event"
)

var (
	metricUp        = prometheus.NewDesc("muster_webhooks_up", "1 if the webhooks could be read.", nil, nil)
	metricEndpoints = prometheus.NewDesc("muster_webhooks", "Webhooks: active, failing or disabled.", []string{"state"}, nil)
	metricPending   = prometheus.NewDesc("muster_webhook_deliveries_pending", "Deliveries that wait or are being sent.", nil, nil)
	metricBehind    = prometheus.NewDesc("muster_webhook_waiting_events", "Events of which no deliveries have been queued yet; 1000 for more.", nil, nil)
)

// counts are the metrics of this process.
type counts struct {
	attempts *prometheus.CounterVec
	ended    *prometheus.CounterVec
	took     prometheus.Histogram
}

func newCounts() counts {
	c := counts{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_webhook_attempts_total", Help: "Requests of this process to webhooks: delivered, gone, refused, failed or unreachable.",
		}, []string{"outcome"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_webhook_deliveries_total", Help: "Deliveries that this process ended: delivered, given_up or skipped.",
		}, []string{"outcome"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "muster_webhook_attempt_seconds", Help: "Response times of webhooks to this process.", Buckets: prometheus.ExponentialBuckets(0.005, 4, 8),
		}),
	}
	for _, outcome := range webhook.Outcomes {
		c.attempts.WithLabelValues(string(outcome))
	}
	for _, outcome := range []string{noteDelivered, noteGivenUp, noteSkipped} {
		c.ended.WithLabelValues(outcome)
	}
	return c
}

// Metrics collects the metrics of webhooks for Prometheus. It is safe for concurrent use.
type Metrics struct{ s *Service }

// NewMetrics returns the collector of a service.
func NewMetrics(s *Service) *Metrics { return &Metrics{s} }

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{metricUp, metricEndpoints, metricPending, metricBehind} {
		ch <- d
	}
	for _, c := range []prometheus.Collector{m.s.counts.attempts, m.s.counts.ended, m.s.counts.took} {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector. It reads Redis, for at most five seconds.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, c := range []prometheus.Collector{m.s.counts.attempts, m.s.counts.ended, m.s.counts.took} {
		c.Collect(ch)
	}
	list, err := m.s.List(ctx)
	if err != nil {
		gauge(metricUp, 0)
		return
	}
	stats, err := m.s.queue.Stats(ctx)
	behind, err2 := m.s.backlog(ctx)
	if err != nil || err2 != nil {
		gauge(metricUp, 0)
		return
	}
	gauge(metricUp, 1)
	states := map[string]int{}
	for _, e := range list {
		states[e.State]++
	}
	for _, state := range States {
		gauge(metricEndpoints, float64(states[state]), state)
	}
	gauge(metricPending, float64(stats.Open()))
	gauge(metricBehind, float64(behind))
}

// backlog returns the number of events without deliveries, at most 1000.
func (s *Service) backlog(ctx context.Context) (int, error) {
	last, err := s.rdb.Get(ctx, event.RelayedKey()).Result()
	if err != nil {
		return 0, ignoreNil(err)
	}
	read, err := s.rdb.XRead(ctx, &redis.XReadArgs{Streams: []string{event.AllKey(), last}, Count: 1000, Block: -1}).Result()
	if ignoreNil(err) != nil || len(read) == 0 {
		return 0, ignoreNil(err)
	}
	return len(read[0].Messages), nil
}
