package ui

import (
	"context"
	"net/http"
	"slices"
	"time"

	"muster/internal/webui"
	"muster/tasks/tasktype"
)

const newest = 10 // workflows per section of the overview

// overviewData is the start page: the state and work of the fleet.
type overviewData struct {
	Workers                []tasktype.Worker
	Slots, Busy            int
	Trouble                []Trouble
	Queues                 []QueueRow // with waiting tasks
	Waiting                int64
	Open                   int64 // tasks that wait for external completion
	Live                   int64 // running workflows
	FailingTasks           []FailingTask
	Outbox                 tasktype.Outbox
	Hour                   webui.Chart
	Lines                  Hour
	Succeeded, Failed      int64 // in the last hour
	Running, Failing, Last []flowRow
}

// Idle reports whether no workflow was ever sent.
func (d overviewData) Idle() bool { return len(d.Running)+len(d.Failing)+len(d.Last) == 0 }

func (s *site) overview(ctx context.Context, r *http.Request) (webui.View, error) {
	var d overviewData
	var err error
	if d.Workers, err = s.client.Inspect().Workers(ctx); err != nil {
		return webui.View{}, err
	}
	for i := range d.Workers {
		d.Slots += d.Workers[i].Concurrency
		d.Busy += d.Workers[i].Active
	}
	queues, err := s.client.Inspect().Queues(ctx)
	if err != nil {
		return webui.View{}, err
	}
	d.Trouble = Queues(queues)
	waiting, n := Waiting(queues)
	d.Waiting = n
	if d.Open, err = Open(ctx, s.client); err != nil {
		return webui.View{}, err
	}
	counts, err := s.client.Inspect().CountWorkflows(ctx)
	if err != nil {
		return webui.View{}, err
	}
	d.Live = counts[tasktype.WorkflowRunning]
	if d.Outbox, err = s.client.Inspect().Outbox(ctx); err != nil {
		return webui.View{}, err
	}
	now := time.Now()
	points, err := s.client.Inspect().Rates(ctx, tasktype.RateFilter{Since: now.Add(-time.Hour)})
	if err != nil {
		return webui.View{}, err
	}
	d.Hour = newChart("Completed tasks in the last hour, by minute", points, now.Add(-time.Hour), now, time.Minute)
	for _, p := range points {
		d.Succeeded += p.Succeeded
		d.Failed += p.Failed
	}
	if d.Lines, err = s.history.Hour(ctx, s.client, points); err != nil {
		return webui.View{}, err
	}
	d.Queues = d.Lines.Rows(waiting)
	failing, trouble, err := Failing(ctx, s.client, points)
	if err != nil {
		return webui.View{}, err
	}
	d.FailingTasks, d.Trouble = failing, append(trouble, d.Trouble...)
	slices.SortStableFunc(d.Trouble, func(a, b Trouble) int { return btoi(b.Bad) - btoi(a.Bad) })
	for state, into := range map[tasktype.WorkflowState]*[]flowRow{
		tasktype.WorkflowRunning: &d.Running, tasktype.WorkflowFailed: &d.Failing, tasktype.WorkflowSucceeded: &d.Last,
	} {
		list, _, err := s.client.Inspect().Workflows(ctx, tasktype.WorkflowFilter{State: state, Limit: newest})
		if err != nil {
			return webui.View{}, err
		}
		if *into, err = s.rows(ctx, list); err != nil {
			return webui.View{}, err
		}
	}
	return webui.View{Name: "Overview", At: s.cfg.Prefix + "/", Data: d, Every: 5 * time.Second}, nil
}
