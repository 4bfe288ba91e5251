package ui

import (
	"context"
	"fmt"
	"slices"
	"time"

	"muster/internal/webui"
	"muster/tasks/tasktype"
)

// keepHistory is the maximum age of cached series: workers store one value per minute.
const keepHistory = 30 * time.Second

// hours are series of values by minute.
type hours struct {
	pending map[string][]int64 // by queue; "" for all
	running []int64
}

// Waiting returns a line of the waiting tasks of a queue in the last hour; "" for all queues.
func (s *site) Waiting(ctx context.Context, queue string) (webui.Line, error) {
	h, err := s.lastHour(ctx)
	return hourLine("Waiting tasks", h.pending[queue]), err
}

// Running returns a line of the running tasks in the last hour.
func (s *site) Running(ctx context.Context) (webui.Line, error) {
	h, err := s.lastHour(ctx)
	return hourLine("Running tasks", h.running), err
}

// lastHour returns the series of the last hour from the cache or from Redis.
func (s *site) lastHour(ctx context.Context) (hours, error) {
	return s.history.Get(ctx, "", func(ctx context.Context) (hours, time.Duration, error) {
		d, until := hours{pending: map[string][]int64{}}, time.Now().Truncate(time.Minute)
		since := until.Add(-time.Hour)
		list, err := s.History(ctx, tasktype.HistoryFilter{Measure: tasktype.PendingTasks, Since: since, Until: until})
		if err != nil {
			return d, 0, err
		}
		for _, s := range list {
			d.pending[s.Name] = spread(s.Values, since)
		}
		list, err = s.History(ctx, tasktype.HistoryFilter{Measure: tasktype.ActiveTasks, Names: []string{""}, Since: since, Until: until})
		for _, s := range list {
			d.running = spread(s.Values, since)
		}
		return d, keepHistory, err
	})
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

// hourLine returns a line of the values of an hour. Its title has the lowest and the highest value.
func hourLine(what string, counts []int64) webui.Line {
	known := slices.DeleteFunc(slices.Clone(counts), func(n int64) bool { return n < 0 })
	bounds := "not known"
	if len(known) > 0 {
		bounds = fmt.Sprintf("%s to %s", webui.Number(slices.Min(known)), webui.Number(slices.Max(known)))
	}
	l := webui.Line{Title: what + " in the last hour: " + bounds, Top: 1}
	for _, n := range counts {
		l.Values, l.Top = append(l.Values, float64(n)), max(l.Top, float64(n))
	}
	return l
}
