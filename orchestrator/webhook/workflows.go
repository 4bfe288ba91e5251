package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"muster/jobs/agent"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// state is whether a relay reads events of workflows.
type state int

const (
	unknown state = iota
	following
	idle
)

// lookEvery is how often a relay looks for stuck workflows.
const lookEvery = time.Minute

// reader returns the reader of events of workflows for all endpoints.
func (s *Service) reader() *tasks.EventReader { return s.cfg.Workflows.EventReader("webhooks", "$") }

// beginWorkflows begins to keep events of workflows for an endpoint, unless it gets none.
func (s *Service) beginWorkflows(ctx context.Context, r record) error {
	if s.cfg.Workflows == nil || !r.follows() {
		return nil
	}
	_, _, err := s.reader().Next(ctx, 1)
	return err
}

// endWorkflows ends the keeping of events of workflows.
func (s *Service) endWorkflows(ctx context.Context) error {
	if s.cfg.Workflows == nil {
		return nil
	}
	return s.reader().Delete(ctx)
}

// follows reports whether the endpoint gets events of workflows, which it has to name: there may be thousands of them a second.
func (r record) follows() bool {
	return !r.Disabled && slices.ContainsFunc(r.Events, func(pattern string) bool { return strings.HasPrefix(pattern, "workflow") })
}

// wantsWorkflow reports whether the endpoint gets an event of a workflow.
func (r record) wantsWorkflow(e *tasktype.WorkflowEvent) bool {
	if !r.follows() || !r.wants(e.Type) {
		return false
	}
	labels, _ := tasktype.ParseLabels(r.Labels) // they were checked
	for k, v := range labels {
		if got, ok := e.Labels[k]; !ok || got != v {
			return false
		}
	}
	if len(r.Workflows) > 0 {
		return slices.ContainsFunc(r.Workflows, func(pattern string) bool { return matches(pattern, e.Name) })
	}
	return !own(e)
}

// own reports whether a workflow belongs to a scrape, the pool, a job or a schedule, which have other events.
func own(e *tasktype.WorkflowEvent) bool {
	_, ofJob := e.Labels[agent.WorkflowLabel]
	return ofJob || slices.ContainsFunc([]string{"sites.", "proxies.", "jobs.", "orchestrator."}, func(prefix string) bool { return strings.HasPrefix(e.Tasks, prefix) })
}

// workflowDetails are the details of an event of a workflow.
type workflowDetails struct {
	tasktype.Workflow
	Failure *tasktype.Failure `json:"failure,omitempty"`
}

// failure returns the failure of a workflow; nil if it has expired or runs again.
func (r *relay) failure(ctx context.Context, id string) (*tasktype.Failure, error) {
	run := tasks.Attach[json.RawMessage](r.cfg.Workflows, id)
	p, err := run.Progress(ctx)
	if err == nil && p.Ended {
		brief, cancel := context.WithTimeout(ctx, time.Second) // it may run again meanwhile
		defer cancel()
		_, err = run.Wait(brief)
	}
	if f, ok := errors.AsType[*tasktype.Failure](err); ok {
		return f, nil
	}
	if tasks.Unavailable(err) {
		return nil, err
	}
	return nil, nil
}

// workflows creates the deliveries of a batch of events of workflows, if endpoints get some, and returns the number of events.
func (r *relay) workflows(ctx context.Context) (int, error) {
	if r.cfg.Workflows == nil {
		return 0, nil
	}
	known, err := r.records(ctx)
	if err != nil {
		return 0, err
	}
	stuck, some := false, false
	for _, rec := range known {
		some = some || rec.follows()
		stuck = stuck || rec.follows() && rec.wants(tasktype.EventStuck)
	}
	if !some {
		if r.follow == idle {
			return 0, nil
		}
		r.follow = idle
		return 0, r.endWorkflows(ctx)
	}
	r.follow = following
	if stuck && time.Since(r.looked) > lookEvery {
		r.looked = time.Now()
		if err := r.cfg.Workflows.Inspect().FindStuck(ctx, r.cfg.StuckAfter()); err != nil {
			return 0, err
		}
	}
	events, missed, err := r.reader().Next(ctx, relayBatch)
	if err != nil || len(events) == 0 {
		return 0, err
	}
	if missed > 0 {
		r.log.WarnContext(ctx, "webhooks: events of workflows were dropped before they were sent", "about", missed)
	}
	r.forgetKnown() // an endpoint that was added before an event receives it
	if known, err = r.records(ctx); err != nil {
		return 0, err
	}
	var entries []entry
	for i := range events {
		e := &events[i]
		var to []string
		for id, rec := range known {
			if rec.wantsWorkflow(e) {
				to = append(to, id)
			}
		}
		if len(to) == 0 {
			continue
		}
		d := workflowDetails{Workflow: e.Workflow}
		if e.Type == tasktype.EventFailed {
			if d.Failure, err = r.failure(ctx, e.ID); err != nil {
				return 0, err
			}
		}
		raw, _ := json.Marshal(d) // never fails
		entries = append(entries, entry{Message{Type: e.Type, Timestamp: e.Time.UTC(), Data: Data{EventID: e.Position, Details: raw}}, to})
	}
	if err := r.enqueue(ctx, entries, known); err != nil {
		return 0, err
	}
	return len(events), r.reader().Done(ctx, events[len(events)-1].Position)
}
