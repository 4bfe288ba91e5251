package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster/tasks/workqueue"
)

// A Queue collects the metrics of a work queue, and of a pool that works on it. Its label values are the name of the queue,
// states, and the kinds of items that have a handler.
type Queue struct {
	q      *workqueue.Queue
	pool   *workqueue.Pool
	waited prometheus.Histogram
	took   *prometheus.HistogramVec
}

func queueDesc(name, help string, labels ...string) *prometheus.Desc {
	return desc("queue_"+name, help, append([]string{"queue"}, labels...)...)
}

var (
	descUp      = queueDesc("up", "1 if Redis could be asked for the queue.")
	descItems   = queueDesc("items", "Items: queued, in_progress, done, skipped or error.", "state")
	descDelayed = queueDesc("delayed_items", "Queued items that wait for their time.")
	descWaiting = queueDesc("next_waiting_seconds", "How long the next item has been ready for a worker.")
	descPaused  = queueDesc("paused", "1 if the queue is paused.")
	descOutputs = queueDesc("outputs", "Outputs of items that were not yet read and acknowledged.")
	descExpired = queueDesc("leases_expired_total", "Leases that ran out, or whose worker died.")
	descEnded   = queueDesc("runs_total", "Runs in this process by how they ended: done, skipped, error, retried, returned or lost.", "outcome")
	descRunning = queueDesc("leases", "Items that this process holds.")
	descWorkers = queueDesc("workers", "Items that this process works on at a time, at most.")
)

// NewQueue returns a collector of a queue. See [Queue.Observe] and [Queue.Watch].
func NewQueue(q *workqueue.Queue) *Queue {
	labels, buckets := prometheus.Labels{"queue": q.Name()}, prometheus.ExponentialBuckets(0.005, 4, 10)
	return &Queue{
		q: q,
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "muster_queue_wait_seconds",
			Help: "How long items were ready before this process leased them.", ConstLabels: labels, Buckets: buckets}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "muster_queue_run_seconds",
			Help: "How long handlers took in this process.", ConstLabels: labels, Buckets: buckets}, []string{"kind"}),
	}
}

// Observe counts a run. Set it as the Observe of a [workqueue.PoolConfig].
func (c *Queue) Observe(r workqueue.Run) {
	c.waited.Observe(r.Waited.Seconds())
	c.took.WithLabelValues(r.Kind).Observe(r.Took.Seconds())
}

// Watch adds the metrics of the pool that c observes. Call it before c is registered.
func (c *Queue) Watch(pool *workqueue.Pool) { c.pool = pool }

// Describe implements prometheus.Collector.
func (c *Queue) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descUp, descItems, descDelayed, descWaiting, descPaused, descOutputs, descExpired} {
		ch <- d
	}
	if c.pool != nil {
		for _, d := range []*prometheus.Desc{descEnded, descRunning, descWorkers} {
			ch <- d
		}
		c.waited.Describe(ch)
		c.took.Describe(ch)
	}
}

// Collect implements prometheus.Collector. It reads Redis, for at most 2 s.
func (c *Queue) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, append([]string{c.q.Name()}, labels...)...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) { send(d, prometheus.GaugeValue, v, labels...) }
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	s, err := c.q.Stats(ctx)
	gauge(descUp, yes(err == nil))
	if err == nil {
		for state, n := range map[workqueue.State]int64{
			workqueue.StateQueued: s.Queued, workqueue.StateInProgress: s.InProgress, workqueue.StateDone: s.Done, workqueue.StateSkipped: s.Skipped, workqueue.StateError: s.Error,
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
	gauge(descWorkers, float64(p.Workers))
	c.waited.Collect(ch)
	c.took.Collect(ch)
}
