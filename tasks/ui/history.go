package ui

import (
	"context"
	"fmt"
	"slices"
	"time"

	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// keepHistory is the maximum age of cached series: workers store one value per minute.
const keepHistory = 30 * time.Second

// History caches the last hour of a fleet. Its zero value is an empty cache. It is safe for
// concurrent use.
type History struct{ cache webui.Cache[hours] }

// hours are series of values by minute.
type hours struct {
	until   time.Time
	pending map[string][]int64 // by queue; "" for all
	running []int64
}

// Hour is the last hour of a fleet as lines.
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
	return Hour{
		Waiting: hourLine("Waiting tasks", d.pending[""]),
		Running: hourLine("Running tasks", d.running),
		Failed:  hourLine("Failed tasks per minute", failures(points, d.until)),
		pending: d.pending,
	}, nil
}

// Rows adds the last hour to queues.
func (h Hour) Rows(queues []tasktype.Queue) []QueueRow {
	var out []QueueRow
	for _, q := range queues {
		out = append(out, QueueRow{q, hourLine("Waiting tasks", h.pending[q.Name])})
	}
	return out
}

func readHours(ctx context.Context, client *tasks.Client) (hours, error) {
	d := hours{until: time.Now().Truncate(time.Minute), pending: map[string][]int64{}}
	since := d.until.Add(-time.Hour)
	list, err := client.Inspect().History(ctx, tasktype.HistoryFilter{Measure: tasktype.PendingTasks, Since: since, Until: d.until})
	if err != nil {
		return d, err
	}
	for _, s := range list {
		d.pending[s.Name] = spread(s.Values, since)
	}
	list, err = client.Inspect().History(ctx, tasktype.HistoryFilter{Measure: tasktype.ActiveTasks, Names: []string{""}, Since: since, Until: d.until})
	for _, s := range list {
		d.running = spread(s.Values, since)
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

// spread returns the value of each minute of the hour since a time, -1 where there is none.
func spread(values []tasktype.Sample, since time.Time) []int64 {
	out := slices.Repeat([]int64{-1}, 61)
	for _, v := range values {
		if i := int(v.Time.Sub(since) / time.Minute); i >= 0 && i < len(out) {
			out[i] = v.Value
		}
	}
	return out
}

// hourLine returns a line of the values of an hour.
func hourLine(what string, counts []int64) webui.Line {
	return webui.NewLine(what+" in the last hour: "+bounds(counts), counts)
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
