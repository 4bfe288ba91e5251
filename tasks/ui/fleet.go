package ui

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// Busiest returns the keys of limits, those with the most waiting tasks first.
func (s *site) Busiest(ctx context.Context) ([]tasktype.Limit, error) {
	all, err := s.Limits(ctx, "")
	slices.SortStableFunc(all, func(a, b tasktype.Limit) int { return cmp.Compare(b.Waiting, a.Waiting) })
	return all, err
}

// WorkersOf returns the live workers of a queue.
func (s *site) WorkersOf(ctx context.Context, queue string) ([]tasktype.Worker, error) {
	live, err := s.Workers(ctx)
	return slices.DeleteFunc(live, func(w tasktype.Worker) bool { return w.Queues[queue] == 0 }), err
}

// RunsOf returns the nodes that a worker has.
func (s *site) RunsOf(worker string, active []tasktype.Task) []tasktype.Task {
	return slices.DeleteFunc(slices.Clone(active), func(n tasktype.Task) bool { return n.Worker != worker })
}

// queueOf returns a queue by its name; the zero value if no task was sent to it.
func (s *site) queueOf(ctx context.Context, name string) (q tasktype.Queue, err error) {
	all, err := s.Queues(ctx)
	if i := slices.IndexFunc(all, func(q tasktype.Queue) bool { return q.Name == name }); i >= 0 {
		q = all[i]
	}
	return q, err
}

// queueData is a queue with its statistics.
type queueData struct {
	tasktype.Queue
	Day     day
	Monitor string // path of asynqmon
}

// queue shows a queue.
func (s *site) queue(ctx context.Context, r *http.Request) (webui.View, error) {
	name := r.PathValue("queue")
	q, err := s.queueOf(ctx, name)
	if err != nil {
		return webui.View{}, err
	}
	last, err := s.Day(ctx, name, "")
	if err == nil && q.Name == "" && len(last.Rows) == 0 {
		err = webui.NotFound("Queue not found: no task was sent to it in the last day.")
	}
	q.Name = name
	return webui.View{Name: "Queue " + name, Data: queueData{q, last, s.cfg.Asynq}, Every: 5 * time.Second}, err
}

// mostSchedules is the number of schedules on a page.
const mostSchedules = 50

type schedulesData struct {
	Filter *webui.Filter
	Next   string
	Rows   []tasktype.ScheduleEntry
}

func (s *site) schedule(ctx context.Context, r *http.Request) (webui.View, error) {
	q := r.URL.Query()
	filter, err := webui.NewFilter(q, webui.Field{Name: "prefix", Label: "Name", Hint: "its beginning"}, webui.Field{Name: "label", Label: "Label", Hint: "key=value", Max: 300})
	if err != nil {
		return webui.View{}, err
	}
	d, f := schedulesData{Filter: filter}, tasktype.ScheduleFilter{Prefix: filter.Get("prefix"), Limit: mostSchedules, Cursor: q.Get("after")}
	if f.Labels, err = labelsOf(q); err != nil {
		return webui.View{}, err
	}
	var next string
	d.Rows, next, err = s.Schedules(ctx, f)
	d.Next = webui.After(q, next)
	return webui.View{Name: "Schedules", Data: d}, err
}

// Result returns the workflow of the last tick of a schedule; nil if it is unknown or no longer retained.
func (s *site) Result(ctx context.Context, e tasktype.ScheduleEntry) (*tasktype.Workflow, error) {
	if e.Workflow == "" {
		return nil, nil
	}
	w, err := s.client.Workflow(e.Workflow).Info(ctx)
	if errors.Is(err, tasks.ErrNotFound) {
		return nil, nil
	}
	return &w.Workflow, err
}
