package ui

import (
	"context"
	"fmt"
	"time"

	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// keepHistory is the maximum age of cached series: workers store one value per minute.
const keepHistory = 30 * time.Second

// History caches the last hour of a fleet, and the same hour of the day before. Its zero value is an empty cache. It is safe for
// concurrent use.
type History struct{ cache webui.Cache[hours] }

// hours are series of values by minute, of this hour and of the same hour of the day before.
type hours struct {
	until   time.Time
	pending map[string][]int64 // by queue; "" for all
	running []int64
	before  struct{ pending, running, failed []int64 }
}

// Hour is the last hour of a fleet as lines, each with the same hour of the day before.
type Hour struct {
	Waiting, Running, Failed webui.Line
	pending                  map[string][]int64
}

// QueueRow is a queue with the number of its waiting tasks in the last hour.
type QueueRow struct {
	tasktype.Queue
	Hour webui.Line
}

// Hour returns the last hour. points are the outcomes of tasks by minute in it.
func (h *History) Hour(ctx context.Context, client *tasks.Client, points []tasktype.RatePoint) (Hour, error) {
	d, err := h.cache.Get(ctx, "", func(ctx context.Context) (hours, time.Duration, error) {
		d, err := readHours(ctx, client)
		return d, keepHistory, err
	})
	if err != nil {
		return Hour{}, err
	}
	failed := failures(points, d.until)
	return Hour{
		Waiting: hourLine("Waiting tasks", d.pending[""], d.before.pending),
		Running: hourLine("Running tasks", d.running, d.before.running),
		Failed:  hourLine("Failed tasks per minute", failed, d.before.failed),
		pending: d.pending,
	}, nil
}

// Rows adds the last hour to queues.
func (h Hour) Rows(queues []tasktype.Queue) []QueueRow {
	var out []QueueRow
	for _, q := range queues {
		out = append(out, QueueRow{q, hourLine("Waiting tasks", h.pending[q.Name], nil)})
	}
	return out
}

func readHours(ctx context.Context, client *tasks.Client) (hours, error) {
	d := hours{until: time.Now().Truncate(time.Minute), pending: map[string][]int64{}}
	yesterday := d.until.Add(-24 * time.Hour)
	for _, read := range []struct {
		measure tasktype.Measure
		names   []string
		until   time.Time
		to      func(name string, counts []int64)
	}{
		{tasktype.PendingTasks, nil, d.until, func(name string, counts []int64) { d.pending[name] = counts }},
		{tasktype.ActiveTasks, []string{""}, d.until, func(_ string, counts []int64) { d.running = counts }},
		{tasktype.PendingTasks, []string{""}, yesterday, func(_ string, counts []int64) { d.before.pending = counts }},
		{tasktype.ActiveTasks, []string{""}, yesterday, func(_ string, counts []int64) { d.before.running = counts }},
	} {
		list, err := client.Inspect().History(ctx, tasktype.HistoryFilter{Measure: read.measure, Names: read.names, Since: read.until.Add(-time.Hour), Until: read.until})
		if err != nil {
			return d, err
		}
		for _, s := range list {
			read.to(s.Name, spread(s.Values, read.until.Add(-time.Hour), time.Minute, 61))
		}
	}
	points, err := client.Inspect().Rates(ctx, tasktype.RateFilter{Since: yesterday.Add(-time.Hour), Until: yesterday})
	if len(points) > 0 {
		d.before.failed = failures(points, yesterday)
	}
	return d, err
}

// failures counts failed tasks by minute in the hour until a time.
func failures(points []tasktype.RatePoint, until time.Time) []int64 {
	counts := make([]int64, 61)
	for _, p := range points {
		if i := int(p.Time.Sub(until.Add(-time.Hour)) / time.Minute); i >= 0 && i < len(counts) {
			counts[i] += p.Failed
		}
	}
	return counts
}

// spread returns the highest value in each of n steps since a time, -1 where there is none.
func spread(values []tasktype.Sample, since time.Time, step time.Duration, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = -1
	}
	for _, v := range values {
		if i := int(v.Time.Sub(since) / step); i >= 0 && i < n {
			out[i] = max(out[i], v.Value)
		}
	}
	return out
}

// hourLine returns a line of the values of an hour.
func hourLine(what string, counts, before []int64) webui.Line {
	title := what + " in the last hour: " + bounds(counts)
	if before != nil {
		title += "; in the same hour yesterday: " + bounds(before)
	}
	return webui.NewLine(title, counts, before)
}

// bounds describes the lowest and the highest value.
func bounds(counts []int64) string {
	least, most := int64(-1), int64(-1)
	for _, n := range counts {
		if n >= 0 && (least < 0 || n < least) {
			least = n
		}
		most = max(most, n)
	}
	if most < 0 {
		return "not known"
	}
	return fmt.Sprintf("%s to %s", webui.Number(least), webui.Number(most))
}

// depth is the number of waiting tasks of a queue in the last day.
type depth struct {
	Line  webui.Line
	Most  int64
	Least int64
	Since time.Time // last time with Least tasks; zero if unknown
}

// readDepth reads the depth of a queue.
func (s *site) readDepth(ctx context.Context, queue string) (depth, error) {
	return s.depths.Get(ctx, queue, func(ctx context.Context) (d depth, keep time.Duration, err error) {
		const step, steps = 5 * time.Minute, 24*12 + 1
		since := time.Now().Add(-24 * time.Hour)
		list, err := s.client.Inspect().History(ctx, tasktype.HistoryFilter{Measure: tasktype.PendingTasks, Names: []string{queue}, Since: since})
		if err != nil || len(list) == 0 {
			return d, keepHistory, err
		}
		for _, v := range list[0].Values {
			d.Most = max(d.Most, v.Value)
			if d.Since.IsZero() || v.Value <= d.Least {
				d.Least, d.Since = v.Value, v.Time
			}
		}
		title := fmt.Sprintf("Waiting tasks in the last day: %s to %s", webui.Number(d.Least), webui.Number(d.Most))
		d.Line = webui.NewLine(title, spread(list[0].Values, since, step, steps), nil)
		return d, keepHistory, nil
	})
}

// memory is the memory of a worker since its start, within the last day.
type memory struct {
	Line  webui.Line
	First int64
	Since time.Time // time of the first value
}

// readMemory reads the memory of workers.
func (s *site) readMemory(ctx context.Context) (map[string]memory, error) {
	return s.memories.Get(ctx, "", func(ctx context.Context) (map[string]memory, time.Duration, error) {
		const most = 48 // values of a line
		now := time.Now()
		list, err := s.client.Inspect().History(ctx, tasktype.HistoryFilter{Measure: tasktype.WorkerMemory, Since: now.Add(-24 * time.Hour)})
		out := map[string]memory{}
		for _, w := range list {
			first, last := w.Values[0], w.Values[len(w.Values)-1]
			step := max(last.Time.Sub(first.Time)/(most-1)+1, time.Minute)
			n := int(last.Time.Sub(first.Time)/step) + 1
			title := fmt.Sprintf("Memory in %s: %s to %s", webui.Took(now.Sub(first.Time)), mebibytes(uint64(first.Value)), mebibytes(uint64(last.Value)))
			out[w.Name] = memory{webui.NewLine(title, spread(w.Values, first.Time, step, n), nil), first.Value, first.Time}
		}
		return out, keepHistory, err
	})
}
