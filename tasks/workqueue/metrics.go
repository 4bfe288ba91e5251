package workqueue

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Collector collects the metrics of a queue, and of a pool that works on it. Its
// label values are the queue's name, states, and the kinds that have a handler:
// there are never many.
type Collector struct {
	q    *Queue
	pool *Pool
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("muster_queue_"+name, help, append([]string{"queue"}, labels...), nil)
}

var (
	descUp      = desc("up", "1 if Redis could be asked for the queue, else 0.")
	descItems   = desc("items", "Items by state: queued, in_progress, done, skipped or error.", "state")
	descDelayed = desc("delayed_items", "Queued items that wait for their time.")
	descWaiting = desc("next_waiting_seconds", "How long the next item has been ready for a worker.")
	descPaused  = desc("paused", "1 if the queue is paused, else 0.")
	descOutputs = desc("outputs", "Outputs of items that were not yet read and acknowledged.")
	descExpired = desc("leases_expired_total", "Leases that ran out, or whose worker died.")
	descEnded   = desc("runs_total", "Runs in this process by how they ended: done, skipped, error, retried, returned or lost.", "outcome")
	descRunning = desc("leases", "Items that this process holds.")
	descWorkers = desc("workers", "Items that this process works on at a time, at most.")
)

// NewCollector returns the collector of a queue, and of a pool that works on
// it; nil for none.
func NewCollector(q *Queue, pool *Pool) *Collector { return &Collector{q: q, pool: pool} }

// MetricsHandler serves the metrics of collectors.
func MetricsHandler(collectors ...prometheus.Collector) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors...)
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descUp, descItems, descDelayed, descWaiting, descPaused, descOutputs, descExpired} {
		ch <- d
	}
	if c.pool != nil {
		for _, d := range []*prometheus.Desc{descEnded, descRunning, descWorkers} {
			ch <- d
		}
		c.pool.waited.Describe(ch)
		c.pool.took.Describe(ch)
	}
}

// Collect implements prometheus.Collector. It reads Redis, for at most 2 s.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, append([]string{c.q.name}, labels...)...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) { send(d, prometheus.GaugeValue, v, labels...) }
	yes := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	s, err := c.q.Stats(ctx)
	gauge(descUp, yes(err == nil))
	if err == nil {
		for state, n := range map[State]int64{
			StateQueued: s.Queued, StateInProgress: s.InProgress, StateDone: s.Done, StateSkipped: s.Skipped, StateError: s.Error,
		} {
			gauge(descItems, float64(n), string(state))
		}
		gauge(descDelayed, float64(s.Delayed))
		gauge(descWaiting, s.Waiting)
		gauge(descPaused, yes(s.Paused))
		gauge(descOutputs, float64(s.Outputs))
		send(descExpired, prometheus.CounterValue, float64(s.Expired))
	}
	if c.pool == nil {
		return
	}
	p := c.pool.Stats()
	for outcome, n := range map[string]int64{
		"done": p.Done, "skipped": p.Skipped, "error": p.Failed, "retried": p.Retried, "returned": p.Returned, "lost": p.Lost,
	} {
		send(descEnded, prometheus.CounterValue, float64(n), outcome)
	}
	gauge(descRunning, float64(p.Running))
	gauge(descWorkers, float64(c.pool.cfg.Workers))
	c.pool.waited.Collect(ch)
	c.pool.took.Collect(ch)
}

// newWaited returns the histogram of how long items were ready.
func newWaited(queue string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "muster_queue_wait_seconds", Help: "How long items were ready before this process leased them.",
		ConstLabels: prometheus.Labels{"queue": queue}, Buckets: prometheus.ExponentialBuckets(0.005, 4, 10),
	})
}

// newTook returns the histogram of how long handlers ran.
func newTook(queue string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "muster_queue_run_seconds", Help: "How long handlers took in this process, by kind of item.",
		ConstLabels: prometheus.Labels{"queue": queue}, Buckets: prometheus.ExponentialBuckets(0.005, 4, 10),
	}, []string{"kind"})
}
