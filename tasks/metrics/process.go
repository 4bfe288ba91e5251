package metrics

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"muster/tasks"
	"muster/tasks/tasktype"
)

var (
	workerBusy      = desc("worker_slots_busy", "Tasks that the workers of this process run.")
	workerSlots     = desc("worker_slots", "Tasks that the workers of this process may run at once.")
	workerRecovered = desc("worker_recovered_total", "Tasks of dead workers that this process returned to their queues.")
)

// Process counts what the workers of one process do. Its methods may be called by many goroutines at once.
type Process struct {
	attempts *prometheus.CounterVec
	failures *prometheus.CounterVec
	duration *prometheus.HistogramVec

	mu      sync.Mutex // guards the fields below
	workers []*tasks.Worker
	known   map[string]bool // names of tasks that the workers have handlers for
	tasks   label
	codes   label
}

// NewProcess returns the collector of a process; see [Process.Observe] and [Process.Watch].
func NewProcess() *Process {
	return &Process{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_task_attempts_total",
			Help: "Attempts at tasks by outcome."}, []string{"task", "outcome"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_task_errors_total",
			Help: "Attempts that failed by the code of the failure, whether or not another follows."}, []string{"task", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "muster_task_duration_seconds",
			Help: "How long handlers ran.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 10)}, []string{"task"}),
		known: map[string]bool{}, tasks: newLabel(), codes: newLabel(),
	}
}

// Observe counts an attempt. Set it as the Observe of a [tasks.WorkerConfig].
func (p *Process) Observe(a tasktype.Attempt) {
	p.mu.Lock()
	name := a.Task
	if len(p.known) > 0 && !p.known[name] {
		name = other // a sender can choose any name
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

// Watch adds a worker of this process to the metrics of slots, and its tasks to the values of the label task.
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

// label has the values of a label so far, at most MaxLabels.
type label map[string]bool

func newLabel() label { return label{} }

func (l label) of(value string) string {
	value = strings.ToValidUTF8(value, "?") // Prometheus accepts only UTF-8
	if l[value] {
		return value
	}
	if len(l) >= MaxLabels {
		return other
	}
	l[value] = true
	return value
}
