package metrics

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"muster/tasks"
	"muster/tasks/tasktype"
)

var (
	workerBusy      = desc("worker_slots_busy", "Slots of this process in use.")
	workerSlots     = desc("worker_slots", "Slots of this process.")
	workerRecovered = desc("worker_recovered_total", "Tasks of dead workers requeued by this process.")
)

// A Process counts the work of the workers of one process. It is safe for concurrent use.
type Process struct {
	attempts *prometheus.CounterVec
	failures *prometheus.CounterVec
	duration *prometheus.HistogramVec

	mu      sync.Mutex // guards the fields below
	workers []*tasks.Worker
	known   map[string]bool // names of tasks with a handler
	tasks   label
	codes   label
}

// NewProcess returns a collector. See [Process.Observe] and [Process.Watch].
func NewProcess() *Process {
	return &Process{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_task_attempts_total",
			Help: "Attempts."}, []string{"task", "outcome"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_task_errors_total",
			Help: "Failed attempts, whether retried or not."}, []string{"task", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "muster_task_duration_seconds",
			Help: "Run time of handlers.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 10)}, []string{"task"}),
		known: map[string]bool{}, tasks: newLabel(), codes: newLabel(),
	}
}

// Observe counts an attempt. Set it as the Observe of a [tasks.WorkerConfig].
func (p *Process) Observe(a tasktype.Attempt) {
	p.mu.Lock()
	name := a.Task
	if len(p.known) > 0 && !p.known[name] {
		name = other // task names are chosen by senders
	}
	name = p.tasks.of(name)
	code := ""
	if a.Code != "" {
		code = p.codes.of(a.Code)
	}
	p.mu.Unlock()
	p.attempts.WithLabelValues(name, string(a.Outcome)).Inc()
	if code != "" {
		p.failures.WithLabelValues(name, code).Inc()
	}
	if !a.Began.IsZero() {
		p.duration.WithLabelValues(name).Observe(a.Took.Seconds())
	}
}

// Watch adds a worker of this process to the slot metrics, and its tasks to the values of the label task.
func (p *Process) Watch(w *tasks.Worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.workers = append(p.workers, w)
	for _, name := range w.Tasks() {
		p.known[name] = true
	}
}

// Describe implements prometheus.Collector.
func (p *Process) Describe(ch chan<- *prometheus.Desc) {
	p.attempts.Describe(ch)
	p.failures.Describe(ch)
	p.duration.Describe(ch)
	ch <- workerBusy
	ch <- workerSlots
	ch <- workerRecovered
}

// Collect implements prometheus.Collector.
func (p *Process) Collect(ch chan<- prometheus.Metric) {
	p.attempts.Collect(ch)
	p.failures.Collect(ch)
	p.duration.Collect(ch)
	p.mu.Lock()
	workers := append([]*tasks.Worker(nil), p.workers...)
	p.mu.Unlock()
	var busy, slots, recovered float64
	for _, w := range workers {
		b, s := w.Slots()
		busy, slots = busy+float64(b), slots+float64(s)
		recovered += float64(w.Stats().Recovered)
	}
	ch <- prometheus.MustNewConstMetric(workerBusy, prometheus.GaugeValue, busy)
	ch <- prometheus.MustNewConstMetric(workerSlots, prometheus.GaugeValue, slots)
	ch <- prometheus.MustNewConstMetric(workerRecovered, prometheus.CounterValue, recovered)
}

// label is the set of values of a label, at most MaxLabels.
type label map[string]bool

func newLabel() label { return label{} }

func (l label) of(value string) string {
	value = strings.ToValidUTF8(value, "?") // Prometheus requires UTF-8
	if l[value] {
		return value
	}
	if len(l) >= MaxLabels {
		return other
	}
	l[value] = true
	return value
}
