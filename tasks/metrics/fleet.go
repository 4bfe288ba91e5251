package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster/tasks"
	"muster/tasks/tasktype"
)

// scrapeTimeout limits the Redis calls of a scrape.
const scrapeTimeout = 5 * time.Second

// maxDue is the maximum number of scheduled tasks of workflows that a scrape counts.
const maxDue = 2000

var (
	fleetUp      = desc("fleet_up", "1 if the state of the fleet is readable in Redis.")
	fleetTasks   = desc("fleet_tasks", "Tasks, including asynq's own tasks. Pending tasks are ready to run. Active tasks are those that workers have. Scheduled and retry tasks wait for their time, before the first attempt or after a failed one; for workflows, at most 2000 of both are counted.", "queue", "state")
	fleetLatency = desc("fleet_latency_seconds", "Time since a worker last took a task from the queue while tasks are pending; for tasks of asynq's own client, the age of the oldest pending task.", "queue")
	fleetPaused  = desc("fleet_paused", "1 if the queue is paused.", "queue")
	fleetWorkers = desc("fleet_workers", "Live workers.")
	fleetSlots   = desc("fleet_slots", "Slots of all workers.")
	fleetBusy    = desc("fleet_slots_busy", "Slots in use.")
	fleetOutbox  = desc("fleet_outbox_entries", "Entries of the outbox: scheduled tasks, and steps of workflows to repeat after the death of a process. Pending tasks are not included.")
	fleetOverdue = desc("fleet_outbox_age_seconds", "Age of the earliest due entry of the outbox. More than a few seconds mean that no workers are running or that they are overloaded.")
	scheduleNext = desc("schedule_next_timestamp_seconds", "Next tick of the schedule; none while it is paused.", "schedule")
	scheduleLast = desc("schedule_last_timestamp_seconds", "Last sent tick of the schedule.", "schedule")
	scheduleSent = desc("schedule_sent_total", "Sent ticks of the schedule.", "schedule")
	scheduleMiss = desc("schedule_missed_total", "Missed ticks of the schedule.", "schedule")
)

// A Fleet collects the state of a fleet from Redis. It is safe for concurrent use.
type Fleet struct{ client *tasks.Client }

// NewFleet returns a collector for the fleet of client.
func NewFleet(client *tasks.Client) *Fleet { return &Fleet{client} }

// Describe implements prometheus.Collector.
func (f *Fleet) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{fleetUp, fleetTasks, fleetLatency, fleetPaused, fleetWorkers, fleetSlots, fleetBusy,
		fleetOutbox, fleetOverdue, scheduleNext, scheduleLast, scheduleSent, scheduleMiss} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It reads Redis with a timeout of five seconds.
func (f *Fleet) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	up := true
	for _, part := range []func(context.Context, chan<- prometheus.Metric, func(*prometheus.Desc, float64, ...string)) error{
		f.queues, f.workers, f.outbox, f.schedule,
	} {
		if err := part(ctx, ch, gauge); err != nil {
			up = false
		}
	}
	gauge(fleetUp, yes(up))
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (f *Fleet) queues(ctx context.Context, _ chan<- prometheus.Metric, gauge func(*prometheus.Desc, float64, ...string)) error {
	queues, err := f.client.Inspect().Queues(ctx)
	if err != nil {
		return err
	}
	due, err := f.client.Inspect().CountDue(ctx, maxDue)
	if err != nil {
		return err
	}
	type key struct{ queue, state string }
	count := map[key]float64{}
	latency, paused := map[string]float64{}, map[string]float64{}
	names := newLabel()
	for _, q := range queues {
		n := names.of(q.Name)
		count[key{n, "pending"}] += float64(q.Pending)
		count[key{n, "active"}] += float64(q.Active)
		count[key{n, "archived"}] += float64(q.Archived)
		latency[n] = max(latency[n], q.Latency.Seconds())
		paused[n] = max(paused[n], yes(q.Paused))
	}
	for _, d := range due {
		n := names.of(d.Queue)
		count[key{n, "scheduled"}] += float64(d.Scheduled)
		count[key{n, "retry"}] += float64(d.Retry)
	}
	for k, v := range count {
		gauge(fleetTasks, v, k.queue, k.state)
	}
	for n, v := range latency {
		gauge(fleetLatency, v, n)
		gauge(fleetPaused, paused[n], n)
	}
	return nil
}

func (f *Fleet) workers(ctx context.Context, _ chan<- prometheus.Metric, gauge func(*prometheus.Desc, float64, ...string)) error {
	workers, err := f.client.Inspect().Workers(ctx)
	if err != nil {
		return err
	}
	var slots, busy float64
	for _, w := range workers {
		slots += float64(w.Concurrency)
		busy += float64(w.Active)
	}
	gauge(fleetWorkers, float64(len(workers)))
	gauge(fleetSlots, slots)
	gauge(fleetBusy, busy)
	return nil
}

func (f *Fleet) outbox(ctx context.Context, _ chan<- prometheus.Metric, gauge func(*prometheus.Desc, float64, ...string)) error {
	o, err := f.client.Inspect().Outbox(ctx)
	if err != nil {
		return err
	}
	gauge(fleetOutbox, float64(o.Entries))
	gauge(fleetOverdue, o.Overdue.Seconds())
	return nil
}

func (f *Fleet) schedule(ctx context.Context, ch chan<- prometheus.Metric, gauge func(*prometheus.Desc, float64, ...string)) error {
	entries, _, err := f.client.Inspect().Schedules(ctx, tasktype.ScheduleFilter{Limit: MaxLabels})
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Paused.IsZero() {
			e.Next = time.Time{}
		}
		for d, t := range map[*prometheus.Desc]time.Time{scheduleNext: e.Next, scheduleLast: e.Last} {
			if !t.IsZero() {
				gauge(d, float64(t.UnixMilli())/1000, e.Name)
			}
		}
		for d, n := range map[*prometheus.Desc]int64{scheduleSent: e.Sent, scheduleMiss: e.Missed} {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), e.Name)
		}
	}
	return nil
}
