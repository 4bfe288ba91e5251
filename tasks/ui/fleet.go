package ui

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// taskRow is what became of the nodes of a task in the last day.
type taskRow struct {
	Task, Queue                         string
	Succeeded, Failed, Revoked, Retried int64
	Busy                                time.Duration
}

// Ended is how many nodes ended.
func (t taskRow) Ended() int64 { return t.Succeeded + t.Failed + t.Revoked }

// Mean is how long a handler ran for each node that ended.
func (t taskRow) Mean() time.Duration {
	if n := t.Succeeded + t.Failed; n > 0 {
		return t.Busy / time.Duration(n)
	}
	return -1
}

type tasksData struct {
	Rows []taskRow
	Day  webui.Chart
}

// taskNames lists the tasks that ran in the last day, the busiest first.
func (s *site) taskNames(ctx context.Context, r *http.Request) (webui.View, error) {
	now := time.Now()
	since := now.Add(-23 * time.Hour).Truncate(time.Hour)
	points, err := s.client.Rates(ctx, tasks.RateFilter{Since: since, Step: time.Hour})
	if err != nil {
		return webui.View{}, err
	}
	rows := map[[2]string]*taskRow{}
	for _, p := range points {
		t := rows[[2]string{p.Task, p.Queue}]
		if t == nil {
			t = &taskRow{Task: p.Task, Queue: p.Queue}
			rows[[2]string{p.Task, p.Queue}] = t
		}
		t.Succeeded, t.Failed, t.Revoked, t.Retried, t.Busy = t.Succeeded+p.Succeeded, t.Failed+p.Failed, t.Revoked+p.Revoked, t.Retried+p.Retried, t.Busy+p.Busy
	}
	d := tasksData{Day: newChart("Tasks that ended in the last day, by hour", points, since, now, time.Hour)}
	for _, t := range rows {
		d.Rows = append(d.Rows, *t)
	}
	slices.SortFunc(d.Rows, func(a, b taskRow) int {
		return cmp.Or(cmp.Compare(b.Busy, a.Busy), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Queue, b.Queue))
	})
	return webui.View{Name: "Tasks", At: s.cfg.Prefix + "/names", Data: d}, nil
}

// mostReserved is how many nodes of a queue are listed.
const mostReserved = 20

type queuesData struct {
	Queues []tasktype.Queue
	Due    []tasktype.DueNode
	Outbox tasktype.Outbox
}

func (s *site) queues(ctx context.Context, r *http.Request) (webui.View, error) {
	var d queuesData
	var err error
	if d.Queues, err = s.client.Queues(ctx); err != nil {
		return webui.View{}, err
	}
	if d.Due, err = s.client.Due(ctx, mostReserved); err != nil {
		return webui.View{}, err
	}
	if d.Outbox, err = s.client.Outbox(ctx); err != nil {
		return webui.View{}, err
	}
	return webui.View{Name: "Queues", At: s.cfg.Prefix + "/queues", Data: d}, nil
}

type workersData struct {
	Workers []workerRow
}

// workerRow is a worker and what it runs.
type workerRow struct {
	tasktype.Worker
	Runs []tasktype.ActiveNode // at most mostRuns
	More int
}

const mostRuns = 10

func (s *site) workers(ctx context.Context, r *http.Request) (webui.View, error) {
	live, err := s.client.Workers(ctx)
	if err != nil {
		return webui.View{}, err
	}
	active, err := s.client.Active(ctx)
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
	return webui.View{Name: "Workers", At: s.cfg.Prefix + "/workers", Data: d}, nil
}

func (s *site) schedule(ctx context.Context, r *http.Request) (webui.View, error) {
	entries, err := s.client.Schedule(ctx)
	if err != nil {
		return webui.View{}, err
	}
	return webui.View{Name: "Schedule", At: s.cfg.Prefix + "/schedule", Data: entries}, nil
}
