package ui

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"muster/internal/clip"
	"muster/internal/webui"
	"muster/tasks/tasktype"
)

// taskRow holds the statistics of a task for the last day.
type taskRow struct {
	Task, Queue                         string
	Succeeded, Failed, Revoked, Retried int64
	Busy                                time.Duration
	Durations                           tasktype.Durations // of attempts
}

// Ended returns the number of completed nodes.
func (t taskRow) Ended() int64 { return t.Succeeded + t.Failed + t.Revoked }

// Quantile returns a percentile of the durations of attempts; negative without attempts.
func (t taskRow) Quantile(percent int) time.Duration {
	if t.Durations.Count() == 0 {
		return -1
	}
	return t.Durations.Quantile(float64(percent) / 100)
}

func nameURL(task string) string { return "/names/" + url.PathEscape(task) }

// day holds the statistics of tasks for the last 24 hours.
type day struct {
	Rows  []taskRow // sorted by activity
	Chart *webui.Chart
}

// Day reads the statistics of one or all tasks of one or all queues. It reads about 50 hashes in a few round trips.
func (s *site) Day(ctx context.Context, queue, task string) (d day, err error) {
	now := time.Now()
	since := now.Add(-23 * time.Hour).Truncate(time.Hour)
	points, err := s.Rates(ctx, tasktype.RateFilter{Queue: queue, Task: task, Since: since, Step: time.Hour})
	if err != nil {
		return d, err
	}
	times, err := s.Durations(ctx, tasktype.DurationFilter{Queue: queue, Task: task, Since: since})
	if err != nil {
		return d, err
	}
	d.Chart = newChart("Completed tasks in the last day, by hour", points, since, now, time.Hour)
	d.Rows = tally(points, times)
	return d, nil
}

// tally returns the statistics of tasks by queue, the most active first.
func tally(points []tasktype.RatePoint, times []tasktype.DurationPoint) (all []taskRow) {
	at := map[[2]string]int{}
	row := func(task, queue string) *taskRow {
		i, ok := at[[2]string{task, queue}]
		if !ok {
			i = len(all)
			at[[2]string{task, queue}] = i
			all = append(all, taskRow{Task: task, Queue: queue})
		}
		return &all[i]
	}
	for _, p := range points {
		t := row(p.Task, p.Queue)
		t.Succeeded, t.Failed, t.Revoked, t.Retried, t.Busy = t.Succeeded+p.Succeeded, t.Failed+p.Failed, t.Revoked+p.Revoked, t.Retried+p.Retried, t.Busy+p.Busy
	}
	for _, p := range times {
		row(p.Task, p.Queue).Durations.Add(p.Durations)
	}
	slices.SortFunc(all, func(a, b taskRow) int {
		return cmp.Or(cmp.Compare(b.Busy, a.Busy), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Queue, b.Queue))
	})
	return all
}

// Hour returns a chart of the completed tasks of the last hour.
func (s *site) Hour(ctx context.Context, queue, task string) (*webui.Chart, error) {
	now := time.Now()
	since := now.Add(-time.Hour)
	points, err := s.Rates(ctx, tasktype.RateFilter{Queue: queue, Task: task, Since: since})
	return newChart("Completed tasks in the last hour, by minute", points, since, now, time.Minute), err
}

// newChart returns a chart of completed tasks with a bar for each step.
func newChart(title string, points []tasktype.RatePoint, since, until time.Time, step time.Duration) *webui.Chart {
	c := webui.NewChart(title, since, until, step)
	for _, p := range points {
		c.Add(p.Time, p.Succeeded, p.Failed)
	}
	return c
}

// lastFailures is the maximum number of failed nodes read for a task.
const lastFailures = 100

// rateName is the maximum length in bytes of a task name in the statistics.
const rateName = 100

type nameData struct {
	Task   string
	Day    day
	Failed []tasktype.FailedNode // the last ones
	Error  string                // key of the selected group; empty for all
}

// variable matches the words of a message that differ between similar failures, such as numbers and IDs.
var variable = regexp.MustCompile(`[\pL\pN_-]*\pN[\pL\pN_-]*`)

// groupOf returns the key of the group of a failure: its code and the first line of its message, without numbers and IDs.
func groupOf(f tasktype.Failure) string {
	message, _, _ := strings.Cut(clip.Bytes(f.Message, 2000), "\n")
	return clip.Bytes(f.Code+": "+variable.ReplaceAllString(message, "…"), 200)
}

// failures returns the last failures of a task, or of one group of them.
func (s *site) failures(ctx context.Context, task, group string) ([]tasktype.FailedNode, error) {
	if len(task) > 200 || len(group) > 200 {
		return nil, webui.Invalid("The name of the task or the error is too long.")
	}
	list, err := s.Failures(ctx, task, lastFailures)
	if group != "" {
		list = slices.DeleteFunc(list, func(n tasktype.FailedNode) bool { return groupOf(n.Failure) != group })
	}
	return list, err
}

// taskName shows a task with its statistics, durations and last errors.
func (s *site) taskName(ctx context.Context, r *http.Request) (webui.View, error) {
	d := nameData{Task: r.PathValue("task")}
	if len(d.Task) > 200 {
		return webui.View{}, webui.Invalid("The name is too long.")
	}
	var err error
	if d.Day, err = s.Day(ctx, "", d.Task); err != nil {
		return webui.View{}, err
	}
	d.Failed, err = s.failures(ctx, d.Task, "")
	d.Error = r.URL.Query().Get("error")
	return webui.View{Name: d.Task, Data: d, Every: 5 * time.Second}, err
}

// List returns the failures of the selected group.
func (d nameData) List() []tasktype.FailedNode {
	return slices.DeleteFunc(slices.Clone(d.Failed), func(n tasktype.FailedNode) bool { return d.Error != "" && groupOf(n.Failure) != d.Error })
}

// Handlers returns the number of live workers with a handler of a task.
func (s *site) Handlers(ctx context.Context, name string) (n int, err error) {
	live, err := s.Workers(ctx)
	for i := range live {
		if slices.ContainsFunc(live[i].Tasks, func(task string) bool { return task == name || clip.Bytes(task, rateName) == name }) {
			n++
		}
	}
	return n, err
}

// Open returns the number of nodes of a task that wait for external completion; "" for all tasks.
func (s *site) Open(ctx context.Context, task string) (n int64, err error) {
	all, err := s.OpenTasks(ctx)
	for _, o := range all {
		if task == "" || o.Task == task {
			n += o.Open
		}
	}
	return n, err
}

// Groups returns groups of failures with the same code and similar messages.
func (d nameData) Groups() []webui.Group[tasktype.FailedNode] {
	return webui.Grouped(d.Failed, func(n tasktype.FailedNode) string { return groupOf(n.Failure) })
}
