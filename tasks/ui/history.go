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

// hours are series of values by minute.
type hours struct {
	until   time.Time
	pending map[string][]int64 // by queue; "" for all
	running []int64
}

// queueRow is a queue with the number of its waiting tasks in the last hour.
type queueRow struct {
	tasktype.Queue
	Hour webui.Line
}

// row returns the row of a queue.
func (h hours) row(q tasktype.Queue) queueRow {
	return queueRow{q, hourLine("Waiting tasks", h.pending[q.Name])}
}

// lastHour returns the series of the last hour from the cache or from Redis.
func (s *site) lastHour(ctx context.Context) (hours, error) {
	return s.history.Get(ctx, "", func(ctx context.Context) (hours, time.Duration, error) {
		d, err := readHours(ctx, s.client)
		return d, keepHistory, err
	})
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
