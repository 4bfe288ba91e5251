package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/clip"
	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

const (
	newest      = 8  // workflows on the overview
	mostFailing = 10 // failures on it
)

// Extra is what a program adds to the overview.
type Extra struct {
	Alerts   []Alert
	Tiles    []Tile
	Failures []FailureGroup
}

// Alert is something that needs attention, with a link to the page where something can be done.
type Alert struct {
	Bad                  bool // otherwise a warning
	Subject, Reason, URL string
}

// Tile is a number of the overview with the URL of its page.
type Tile struct {
	Title, URL, Value, Note string
	Tone                    string // "bad", "warn" or "person"; else ""
}

// FailureGroup are failures with one cause.
type FailureGroup struct {
	Subject, URL, Error string
	Count               int64
	Last                time.Time // zero if unknown
	LastURL             string    // may be ""
}

// overviewData is the start page: what needs attention, the state of the fleet, and its work.
type overviewData struct {
	Extra
	Workers, Slots, Busy int
	Queues               []tasktype.Queue // with waiting tasks, the longest wait first
	Waiting              int64            // tasks
	Hour                 *webui.Chart
	Total                taskRow                // of all tasks in the last hour
	Failing              webui.Line             // failed tasks by minute
	Running              int64                  // workflows
	Shown                tasktype.WorkflowState // of Flows: running, or "" for all if none is running
	Flows                []flowRow              // the newest ones
}

func (s *site) overview(ctx context.Context, _ *http.Request) (webui.View, error) {
	var d overviewData
	for _, read := range []func(context.Context, *overviewData) error{s.readFleet, s.readHour, s.readFlows, s.readExtra} {
		if err := read(ctx, &d); err != nil {
			return webui.View{}, err
		}
	}
	slices.SortStableFunc(d.Alerts, func(a, b Alert) int { return rank[b.Bad] - rank[a.Bad] })
	slices.SortStableFunc(d.Failures, func(a, b FailureGroup) int { return b.Last.Compare(a.Last) })
	d.Failures = d.Failures[:min(len(d.Failures), mostFailing)]
	return webui.View{Name: "Overview", At: s.cfg.Home, Data: d, Every: 5 * time.Second}, nil
}

func (s *site) readFleet(ctx context.Context, d *overviewData) error {
	workers, err := s.Workers(ctx)
	if err != nil {
		return err
	}
	d.Workers = len(workers)
	for i := range workers {
		d.Slots, d.Busy = d.Slots+workers[i].Concurrency, d.Busy+workers[i].Active
	}
	queues, err := s.Queues(ctx)
	d.Alerts = queueAlerts(s.cfg.Prefix, queues)
	for _, q := range queues {
		if q.Pending > 0 {
			d.Waiting += q.Pending
			d.Queues = append(d.Queues, q)
		}
	}
	slices.SortStableFunc(d.Queues, func(a, b tasktype.Queue) int {
		return cmp.Or(cmp.Compare(b.Latency, a.Latency), cmp.Compare(a.Name, b.Name))
	})
	return err
}

// queueAlerts returns paused and stalled queues with waiting tasks, the longest first.
func queueAlerts(prefix string, queues []tasktype.Queue) (alerts []Alert) {
	queues = slices.Clone(queues)
	slices.SortStableFunc(queues, func(a, b tasktype.Queue) int { return cmp.Compare(b.Pending, a.Pending) })
	for _, q := range queues {
		a := Alert{Subject: "Queue " + q.Name, URL: prefix + "/queues/" + url.PathEscape(q.Name)}
		switch {
		case q.Paused:
			a.Reason = fmt.Sprintf("paused; %s waiting", tasksOf(q.Pending))
		case q.Pending > 0 && q.Workers == 0:
			a.Bad, a.Reason = true, fmt.Sprintf("no live workers; %s waiting, stalled for %s", tasksOf(q.Pending), webui.Took(q.Latency))
		case len(q.Unhandled) > 0:
			a.Bad, a.Reason = true, "no live worker has a handler for "+q.UnhandledTasks()
		default:
			continue
		}
		alerts = append(alerts, a)
	}
	return alerts
}

func tasksOf(n int64) string {
	if n == 1 {
		return "1 task"
	}
	return webui.Number(n) + " tasks"
}

// readHour reads the outcomes of the last hour: by minute, and the failing tasks. Tasks of which all nodes failed need attention.
func (s *site) readHour(ctx context.Context, d *overviewData) error {
	now := time.Now()
	since := now.Add(-time.Hour)
	points, err := s.Rates(ctx, tasktype.RateFilter{Since: since})
	if err != nil {
		return err
	}
	durations, err := s.Durations(ctx, tasktype.DurationFilter{Since: since})
	if err != nil {
		return err
	}
	d.Hour = newChart("Completed tasks in the last hour, by minute", points, since, now, time.Minute)
	var byMinute []int64
	for _, b := range d.Hour.Bars {
		byMinute = append(byMinute, b.Bad)
	}
	for i := range points { // of all queues
		points[i].Queue = ""
	}
	for _, p := range durations {
		d.Total.Durations.Add(p.Durations)
	}
	failing := tally(points, nil)
	for _, t := range failing {
		d.Total.Failed, d.Total.Succeeded = d.Total.Failed+t.Failed, d.Total.Succeeded+t.Succeeded
	}
	d.Failing = hourLine("Failed tasks per minute", byMinute)
	failing = slices.DeleteFunc(failing, func(t taskRow) bool { return t.Failed == 0 })
	slices.SortStableFunc(failing, func(a, b taskRow) int { return cmp.Or(cmp.Compare(b.Failed, a.Failed), cmp.Compare(a.Task, b.Task)) })
	for _, t := range failing[:min(len(failing), mostFailing)] {
		last, err := s.Failures(ctx, t.Task, 1)
		if err != nil {
			return err
		}
		g, why := FailureGroup{Subject: t.Task, URL: s.cfg.Prefix + nameURL(t.Task), Count: t.Failed}, ""
		if len(last) > 0 {
			n := last[0]
			g.Error, g.Last = clip.Line(n.Failure.Code+": "+n.Failure.Message, 200), n.Ended
			g.LastURL, why = s.cfg.Prefix+"/workflows/"+n.Workflow+"/nodes/"+n.Node, "; last error: "+g.Error
		}
		d.Failures = append(d.Failures, g)
		if t.Succeeded == 0 {
			d.Alerts = append(d.Alerts, Alert{true, t.Task, fmt.Sprintf("all of %s failed in the last hour%s", tasksOf(t.Failed), why), g.URL})
		}
	}
	return nil
}

// readFlows reads the newest workflows.
func (s *site) readFlows(ctx context.Context, d *overviewData) error {
	counts, err := s.CountWorkflows(ctx)
	if err != nil {
		return err
	}
	d.Running = counts[tasktype.WorkflowRunning]
	f := tasktype.WorkflowFilter{Limit: newest}
	if d.Running > 0 {
		f.State = tasktype.WorkflowRunning
	}
	list, _, err := s.Workflows(ctx, f)
	if err == nil {
		d.Shown = f.State
		d.Flows, err = s.rows(ctx, list)
	}
	return err
}

func (s *site) readExtra(ctx context.Context, d *overviewData) error {
	if s.cfg.Overview == nil {
		return nil
	}
	more, err := s.cfg.Overview(ctx)
	d.Alerts, d.Tiles, d.Failures = append(d.Alerts, more.Alerts...), append(d.Tiles, more.Tiles...), append(d.Failures, more.Failures...)
	return err
}

// ToDos returns the number of nodes that wait for external completion, and of decisions of the program.
func (s *site) ToDos(ctx context.Context) (int64, error) {
	n, err := s.Open(ctx, "")
	if err != nil || s.cfg.Decisions == nil {
		return n, err
	}
	more, err := s.cfg.Decisions.Count(ctx)
	return n + more, err
}

// Counts returns counts for the navigation by the URLs of [Links]: failed workflows, and open tasks with the decisions of the program.
func Counts(ctx context.Context, client *tasks.Client, prefix string, d Decisions) (map[string]webui.Count, error) {
	s := &site{Inspector: client.Inspect(), cfg: Config{Decisions: d}}
	open, err := s.ToDos(ctx)
	if err != nil {
		return nil, err
	}
	flows, err := s.CountWorkflows(ctx)
	prefix = strings.TrimRight(prefix, "/")
	return map[string]webui.Count{
		prefix + "/workflows": {N: flows[tasktype.WorkflowFailed], Unit: "failed", Bad: true},
		prefix + "/todo":      {N: open, Unit: "open"},
	}, err
}
