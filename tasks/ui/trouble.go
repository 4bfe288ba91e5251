package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"muster/internal/clip"
	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// Trouble is a queue or a task that needs attention.
type Trouble struct {
	Bad     bool   // tasks are not processed; otherwise a warning
	Subject string // name of the queue or task
	Reason  string
	Path    string // path of its page without the prefix
}

// Queues returns paused and stalled queues with waiting tasks, the longest delay first.
func Queues(queues []tasktype.Queue) (out []Trouble) {
	waiting := slices.Clone(queues)
	slices.SortStableFunc(waiting, func(a, b tasktype.Queue) int { return cmp.Compare(b.Pending, a.Pending) })
	for _, q := range waiting {
		t := Trouble{Subject: "Queue " + q.Name, Path: "/queues/" + url.PathEscape(q.Name)}
		switch {
		case q.Paused:
			t.Reason = fmt.Sprintf("paused; %s waiting", tasksOf(q.Pending))
		case q.Pending > 0 && q.Workers == 0:
			t.Bad, t.Reason = true, fmt.Sprintf("no live workers; %s waiting, stalled for %s", tasksOf(q.Pending), webui.Took(q.Latency))
		case len(q.Unhandled) > 0:
			t.Bad, t.Reason = true, "no live worker has a handler for "+q.UnhandledTasks()
		default:
			continue
		}
		out = append(out, t)
	}
	return out
}

func tasksOf(n int64) string {
	if n == 1 {
		return "1 task"
	}
	return webui.Number(n) + " tasks"
}

// FailingTask is a task with failed nodes.
type FailingTask struct {
	Task          string
	Failed, Ended int64
	Last          *tasktype.FailedNode // the last failed node; nil if it has expired
}

// Path returns the path of the task's page without the prefix.
func (f FailingTask) Path() string { return nameURL(f.Task) }

// Share returns the percentage of failed nodes.
func (f FailingTask) Share() int64 { return 100 * f.Failed / max(f.Ended, 1) }

// Error returns the last error in one line, or "" if it has expired.
func (f FailingTask) Error() string {
	if f.Last == nil {
		return ""
	}
	return clip.Line(f.Last.Failure.Code+": "+f.Last.Failure.Message, 200)
}

// mostFailing is the maximum number of listed failing tasks.
const mostFailing = 10

// Failing returns the tasks with failed nodes in points, most failures first. all lists the tasks of which all nodes
// failed. It reads the last failure of each task with about two Redis commands.
func Failing(ctx context.Context, client *tasks.Client, points []tasktype.RatePoint) (list []FailingTask, all []Trouble, err error) {
	byTask := map[string]*FailingTask{}
	for _, p := range points {
		f := byTask[p.Task]
		if f == nil {
			f = &FailingTask{Task: p.Task}
			byTask[p.Task] = f
		}
		f.Failed += p.Failed
		f.Ended += p.Succeeded + p.Failed
	}
	for _, f := range byTask {
		if f.Failed > 0 {
			list = append(list, *f)
		}
	}
	slices.SortFunc(list, func(a, b FailingTask) int {
		return cmp.Or(cmp.Compare(b.Failed, a.Failed), cmp.Compare(a.Task, b.Task))
	})
	list = list[:min(len(list), mostFailing)]
	for i := range list {
		f := &list[i]
		last, err := client.Inspect().Failures(ctx, f.Task, 1)
		if err != nil {
			return nil, nil, err
		}
		why := ""
		if len(last) > 0 {
			f.Last = &last[0]
			why = "; last error: " + f.Error()
		}
		if f.Failed == f.Ended {
			all = append(all, Trouble{Bad: true, Subject: f.Task, Reason: fmt.Sprintf("all of %s failed in the last hour%s", tasksOf(f.Failed), why), Path: f.Path()})
		}
	}
	return list, all, nil
}

// Open returns the number of nodes that wait for external completion.
func Open(ctx context.Context, client *tasks.Client) (n int64, err error) {
	list, err := client.Inspect().OpenTasks(ctx)
	for _, t := range list {
		n += t.Open
	}
	return n, err
}

// Counts returns counts for the navigation by the URLs of [Links]: failed workflows, and open tasks with the decisions of the program.
func Counts(ctx context.Context, client *tasks.Client, prefix string, d Decisions) (map[string]webui.Count, error) {
	prefix = strings.TrimRight(prefix, "/")
	open, err := Open(ctx, client)
	if err != nil {
		return nil, err
	}
	if d != nil {
		n, err := d.Count(ctx)
		if err != nil {
			return nil, err
		}
		open += n
	}
	flows, err := client.Inspect().CountWorkflows(ctx)
	return map[string]webui.Count{
		prefix + "/workflows": {N: flows[tasktype.WorkflowFailed], Unit: "failed", Bad: true},
		prefix + "/todo":      {N: open, Unit: "open"},
	}, err
}

// Waiting returns the queues with waiting tasks, the longest delay first.
func Waiting(queues []tasktype.Queue) (out []tasktype.Queue, tasks int64) {
	for _, q := range queues {
		if q.Pending > 0 {
			out, tasks = append(out, q), tasks+q.Pending
		}
	}
	slices.SortStableFunc(out, func(a, b tasktype.Queue) int {
		return cmp.Or(cmp.Compare(b.Latency, a.Latency), cmp.Compare(a.Name, b.Name))
	})
	return out, tasks
}
