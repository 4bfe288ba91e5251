package ui

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// mostReserved is the maximum number of listed nodes of a queue.
const mostReserved = 20

type queuesData struct {
	Queues []queueRow
	Limits []tasktype.Limit // at most mostLimits
	Due    []tasktype.DueNode
	Outbox tasktype.Outbox
}

// mostLimits is the maximum number of listed keys of limits.
const mostLimits = 100

func (s *site) queues(ctx context.Context, r *http.Request) (webui.View, error) {
	var d queuesData
	all, err := s.client.Inspect().Queues(ctx)
	if err != nil {
		return webui.View{}, err
	}
	hour, err := s.lastHour(ctx)
	if err != nil {
		return webui.View{}, err
	}
	for _, q := range all {
		d.Queues = append(d.Queues, hour.row(q))
	}
	if d.Limits, err = s.client.Inspect().Limits(ctx, ""); err != nil {
		return webui.View{}, err
	}
	slices.SortStableFunc(d.Limits, func(a, b tasktype.Limit) int { return cmp.Compare(b.Waiting, a.Waiting) })
	d.Limits = d.Limits[:min(len(d.Limits), mostLimits)]
	if d.Due, err = s.client.Inspect().Due(ctx, mostReserved); err != nil {
		return webui.View{}, err
	}
	if d.Outbox, err = s.client.Inspect().Outbox(ctx); err != nil {
		return webui.View{}, err
	}
	return webui.View{Name: "Queues", Data: d, Every: 4 * time.Second}, nil
}

// queueData is a queue with its waiting tasks and its statistics.
type queueData struct {
	tasktype.Queue
	Line    webui.Line // waiting tasks in the last hour
	Rows    []taskRow
	Hour    webui.Chart
	Day     webui.Chart
	Ready   []tasktype.ReservedNode // the next nodes
	Monitor string                  // URL of the queue in asynqmon; empty without it
	Workers []tasktype.Worker       // workers of the queue
}

// queue shows a queue.
func (s *site) queue(ctx context.Context, r *http.Request) (webui.View, error) {
	d, name := queueData{}, r.PathValue("queue")
	all, err := s.client.Inspect().Queues(ctx)
	if err != nil {
		return webui.View{}, err
	}
	for _, q := range all {
		if q.Name == name {
			d.Queue = q
		}
	}
	last, err := s.lastDay(ctx, name, "")
	if err != nil {
		return webui.View{}, err
	}
	if d.Name == "" && len(last.rows) == 0 {
		return webui.View{}, webui.NotFound("Queue not found: no task was sent to it in the last day.")
	}
	d.Name = name
	if s.cfg.Asynq != "" && d.Queue.Asynq > 0 {
		d.Monitor = s.cfg.Asynq + "/queues/" + url.PathEscape(name)
	}
	hour, err := s.lastHour(ctx)
	if err != nil {
		return webui.View{}, err
	}
	d.Line = hour.row(d.Queue).Hour
	d.Rows, d.Day = last.rows, newChart("Completed tasks of the queue in the last day, by hour", last.points, last.since, last.now, time.Hour)
	since := last.now.Add(-time.Hour)
	points, err := s.client.Inspect().Rates(ctx, tasktype.RateFilter{Queue: d.Name, Since: since})
	if err != nil {
		return webui.View{}, err
	}
	d.Hour = newChart("Completed tasks of the queue in the last hour, by minute", points, since, last.now, time.Minute)
	if d.Ready, err = s.client.Inspect().Reserved(ctx, name, mostReserved); err != nil {
		return webui.View{}, err
	}
	live, err := s.client.Inspect().Workers(ctx)
	if err != nil {
		return webui.View{}, err
	}
	for i := range live {
		if live[i].Queues[d.Name] > 0 {
			d.Workers = append(d.Workers, live[i])
		}
	}
	return webui.View{Name: "Queue " + d.Name, Data: d, Every: 5 * time.Second}, nil
}

type workersData struct {
	Workers []workerRow
}

// workerRow is a worker with its running tasks.
type workerRow struct {
	tasktype.Worker
	Runs []tasktype.ActiveNode // at most mostRuns
	More int
}

const mostRuns = 10

func (s *site) workers(ctx context.Context, r *http.Request) (webui.View, error) {
	live, err := s.client.Inspect().Workers(ctx)
	if err != nil {
		return webui.View{}, err
	}
	active, err := s.client.Inspect().Active(ctx)
	if err != nil {
		return webui.View{}, err
	}
	byWorker := map[string][]tasktype.ActiveNode{}
	for _, a := range active {
		byWorker[a.Worker] = append(byWorker[a.Worker], a)
	}
	var d workersData
	for _, w := range live {
		row := workerRow{Worker: w, Runs: byWorker[w.Name]}
		row.More = max(len(row.Runs)-mostRuns, 0)
		row.Runs = row.Runs[:len(row.Runs)-row.More]
		d.Workers = append(d.Workers, row)
	}
	return webui.View{Name: "Workers", Data: d}, nil
}

// mostSchedules is the number of schedules on a page.
const mostSchedules = 50

type schedulesData struct {
	Filter *webui.Filter
	Next   string
	Rows   []scheduleRow
}

// scheduleRow is a schedule with the workflow of its last tick.
type scheduleRow struct {
	tasktype.ScheduleEntry
	Result *tasktype.Workflow // nil if unknown
}

func (s *site) schedule(ctx context.Context, r *http.Request) (webui.View, error) {
	q := r.URL.Query()
	d := schedulesData{Filter: webui.NewFilter(q, webui.Field{Name: "prefix", Label: "Name", Hint: "its beginning"}, webui.Field{Name: "label", Label: "Label", Hint: "key=value", Max: 300})}
	f := tasktype.ScheduleFilter{Prefix: q.Get("prefix"), Limit: mostSchedules, Cursor: q.Get("after")}
	var err error
	if label := q.Get("label"); label != "" {
		if f.Labels, err = tasktype.ParseLabels([]string{label}); err != nil {
			return webui.View{}, webui.Invalid("%v", err)
		}
	}
	entries, next, err := s.client.Inspect().Schedules(ctx, f)
	if err != nil {
		return webui.View{}, err
	}
	if next != "" {
		q.Set("after", next)
		d.Next = "?" + q.Encode()
	}
	d.Rows = make([]scheduleRow, len(entries))
	for i, e := range entries {
		d.Rows[i].ScheduleEntry = e
		if e.Workflow == "" {
			continue
		}
		w, err := s.client.Workflow(e.Workflow).Info(ctx)
		if errors.Is(err, tasks.ErrNotFound) {
			continue // no longer retained
		}
		if err != nil {
			return webui.View{}, err
		}
		d.Rows[i].Result = &w.Workflow
	}
	return webui.View{Name: "Schedules", Data: d}, nil
}
