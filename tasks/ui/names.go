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

// URL returns the path of the task's page without the prefix.
func (t taskRow) URL() string { return nameURL(t.Task) }

func nameURL(task string) string { return "/names/" + url.PathEscape(task) }

// day holds the statistics of tasks for the last day.
type day struct {
	points []tasktype.RatePoint
	since  time.Time
	now    time.Time
	rows   []taskRow // sorted by activity
}

// lastDay reads the statistics of one or all tasks for the last 24 hours. It reads about 50 hashes in a few round
// trips.
func (s *site) lastDay(ctx context.Context, queue, task string) (day, error) {
	d := day{now: time.Now()}
	d.since = d.now.Add(-23 * time.Hour).Truncate(time.Hour)
	var err error
	if d.points, err = s.client.Inspect().Rates(ctx, tasktype.RateFilter{Queue: queue, Task: task, Since: d.since, Step: time.Hour}); err != nil {
		return d, err
	}
	times, err := s.client.Inspect().Durations(ctx, tasktype.DurationFilter{Queue: queue, Task: task, Since: d.since})
	if err != nil {
		return d, err
	}
	rows := map[[2]string]*taskRow{}
	row := func(task, queue string) *taskRow {
		t := rows[[2]string{task, queue}]
		if t == nil {
			t = &taskRow{Task: task, Queue: queue}
			rows[[2]string{task, queue}] = t
		}
		return t
	}
	for _, p := range d.points {
		t := row(p.Task, p.Queue)
		t.Succeeded, t.Failed, t.Revoked, t.Retried, t.Busy = t.Succeeded+p.Succeeded, t.Failed+p.Failed, t.Revoked+p.Revoked, t.Retried+p.Retried, t.Busy+p.Busy
	}
	for _, p := range times {
		row(p.Task, p.Queue).Durations.Add(p.Durations)
	}
	for _, t := range rows {
		d.rows = append(d.rows, *t)
	}
	slices.SortFunc(d.rows, func(a, b taskRow) int {
		return cmp.Or(cmp.Compare(b.Busy, a.Busy), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Queue, b.Queue))
	})
	return d, nil
}

// mostNames is the maximum number of listed tasks.
const mostNames = 500

type tasksData struct {
	Rows []taskRow
	More int
	Day  webui.Chart
}

// taskNames lists the tasks of the last day, the most active first.
func (s *site) taskNames(ctx context.Context, r *http.Request) (webui.View, error) {
	all, err := s.lastDay(ctx, "", "")
	if err != nil {
		return webui.View{}, err
	}
	d := tasksData{Rows: all.rows, Day: newChart("Completed tasks in the last day, by hour", all.points, all.since, all.now, time.Hour)}
	d.More = max(len(d.Rows)-mostNames, 0)
	d.Rows = d.Rows[:len(d.Rows)-d.More]
	return webui.View{Name: "Tasks", Data: d, Every: 5 * time.Second}, nil
}

// lastFailures is the maximum number of failed nodes read for a task.
const lastFailures = 100

// rateName is the maximum length in bytes of a task name in the statistics.
const rateName = 100

type nameData struct {
	Task     string
	Rows     []taskRow // by queue
	Day      webui.Chart
	Hour     webui.Chart
	Errors   []errorGroup
	Failures int                   // number of grouped failures
	Error    string                // key of the selected group; empty for all
	List     []tasktype.FailedNode // failures of the selected group
	Workers  int                   // live workers with a handler
	Open     int64
}

// errorGroup is a group of failures of a task with the same code and similar messages.
type errorGroup struct {
	Key   string
	Last  tasktype.FailedNode
	Count int
}

// Query returns the query of the page and actions of the group.
func (g errorGroup) Query() string { return "?" + url.Values{"error": {g.Key}}.Encode() }

// Retry returns the query of the action that retries the workflows of the group.
func (d nameData) Retry(key string) string {
	return "?" + url.Values{"failed": {d.Task}, "group": {key}}.Encode()
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
	list, err := s.client.Inspect().Failures(ctx, task, lastFailures)
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
	all, err := s.lastDay(ctx, "", d.Task)
	if err != nil {
		return webui.View{}, err
	}
	d.Rows, d.Day = all.rows, newChart("Completed tasks in the last day, by hour", all.points, all.since, all.now, time.Hour)
	since := all.now.Add(-time.Hour)
	points, err := s.client.Inspect().Rates(ctx, tasktype.RateFilter{Task: d.Task, Since: since})
	if err != nil {
		return webui.View{}, err
	}
	d.Hour = newChart("Completed tasks in the last hour, by minute", points, since, all.now, time.Minute)
	failed, err := s.failures(ctx, d.Task, "")
	if err != nil {
		return webui.View{}, err
	}
	d.Errors, d.Failures, d.Error = grouped(failed), len(failed), r.URL.Query().Get("error")
	for _, n := range failed {
		if d.Error == "" || groupOf(n.Failure) == d.Error {
			d.List = append(d.List, n)
		}
	}
	live, err := s.client.Inspect().Workers(ctx)
	if err != nil {
		return webui.View{}, err
	}
	for i := range live {
		if slices.ContainsFunc(live[i].Tasks, func(task string) bool { return task == d.Task || clip.Bytes(task, rateName) == d.Task }) {
			d.Workers++
		}
	}
	open, err := s.client.Inspect().OpenTasks(ctx)
	if err != nil {
		return webui.View{}, err
	}
	for _, o := range open {
		if o.Task == d.Task {
			d.Open = o.Open
		}
	}
	return webui.View{Name: d.Task, Data: d, Every: 5 * time.Second}, nil
}

// grouped groups failures, the most frequent first.
func grouped(failed []tasktype.FailedNode) (out []errorGroup) {
	at := map[string]int{}
	for _, n := range failed {
		key := groupOf(n.Failure)
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, errorGroup{Key: key, Last: n})
		}
		out[i].Count++
	}
	slices.SortStableFunc(out, func(a, b errorGroup) int { return cmp.Compare(b.Count, a.Count) })
	return out
}
