package ui

import (
	"context"
	"net/http"
	"time"

	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

const newest = 10 // workflows of a kind on the overview

// overviewData is the first page: whether the fleet works, and what it works on.
type overviewData struct {
	Workers                []tasktype.Worker
	Slots, Busy            int
	Queues                 []tasktype.Queue
	Waiting                int64
	Oldest                 time.Duration
	Paused                 int
	Outbox                 tasktype.Outbox
	Hour                   webui.Chart
	Succeeded, Failed      int64 // in the last hour
	Running, Failing, Last []tasktype.Workflow
}

// Idle reports whether nothing was ever sent.
func (d overviewData) Idle() bool { return len(d.Running)+len(d.Failing)+len(d.Last) == 0 }

func (s *site) overview(ctx context.Context, r *http.Request) (webui.View, error) {
	var d overviewData
	var err error
	if d.Workers, err = s.client.Workers(ctx); err != nil {
		return webui.View{}, err
	}
	for i := range d.Workers {
		d.Slots += d.Workers[i].Concurrency
		d.Busy += d.Workers[i].Active
	}
	if d.Queues, err = s.client.Queues(ctx); err != nil {
		return webui.View{}, err
	}
	for _, q := range d.Queues {
		d.Waiting += q.Pending
		d.Oldest = max(d.Oldest, q.Latency)
		if q.Paused {
			d.Paused++
		}
	}
	if d.Outbox, err = s.client.Outbox(ctx); err != nil {
		return webui.View{}, err
	}
	now := time.Now()
	points, err := s.client.Rates(ctx, tasks.RateFilter{Since: now.Add(-time.Hour)})
	if err != nil {
		return webui.View{}, err
	}
	d.Hour = newChart("Tasks that ended in the last hour, by minute", points, now.Add(-time.Hour), now, time.Minute)
	for _, p := range points {
		d.Succeeded += p.Succeeded
		d.Failed += p.Failed
	}
	for state, into := range map[tasktype.WorkflowState]*[]tasktype.Workflow{
		tasktype.WorkflowRunning: &d.Running, tasktype.WorkflowFailed: &d.Failing, tasktype.WorkflowSucceeded: &d.Last,
	} {
		if *into, _, err = s.client.Workflows(ctx, tasks.WorkflowFilter{State: state, Limit: newest}); err != nil {
			return webui.View{}, err
		}
	}
	return webui.View{Name: "Overview", At: s.cfg.Prefix + "/", Data: d, Cost: queueCost*len(d.Queues) + ratesCost + 3*listCost}, nil
}
