package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// actions returns the actions of the pages by path.
func (s *site) actions() map[string]webui.Action {
	queues := s.cfg.Prefix + "/queues"
	workflow := func(r *http.Request) string { return s.cfg.Prefix + "/workflows/" + url.PathEscape(r.PathValue("id")) }
	return map[string]webui.Action{
		"/workflows/{id}/cancel": {
			Class: webui.Operate,
			Confirm: func(_ context.Context, r *http.Request) (webui.Question, error) {
				return webui.Question{
					Title: "Cancel workflow " + r.PathValue("id"), Button: "Cancel the workflow", Danger: true, Back: workflow(r), At: s.cfg.Prefix + "/workflows",
					Text: "Running and pending tasks fail with the code cancelled. Tasks that handle failures run. This cannot be undone.",
				}, nil
			},
			Do: func(ctx context.Context, r *http.Request) (webui.Result, error) {
				err := s.client.Workflow(r.PathValue("id")).Cancel(ctx)
				if errors.Is(err, tasks.ErrEnded) || errors.Is(err, tasks.ErrRevoked) {
					err = nil // the page of the workflow shows how it ended
				}
				return webui.Result{To: workflow(r)}, err
			},
		},
		"/workflows/{id}/retry": {
			Class: webui.Operate,
			Confirm: func(_ context.Context, r *http.Request) (webui.Question, error) {
				return webui.Question{
					Title: "Retry workflow " + r.PathValue("id"), Button: "Retry the workflow", Back: workflow(r), At: s.cfg.Prefix + "/workflows",
					Text: "Failed and skipped tasks run again, and tasks that depend on their outcome. Completed tasks keep their results.",
				}, nil
			},
			Do: func(ctx context.Context, r *http.Request) (webui.Result, error) {
				err := s.client.Workflow(r.PathValue("id")).Retry(ctx)
				switch {
				case errors.Is(err, tasks.ErrRevoked), errors.Is(err, tasks.ErrEnded), errors.Is(err, tasks.ErrDamaged), errors.Is(err, tasks.ErrCompensated), errors.Is(err, tasks.ErrInvalid):
					err = webui.Invalid("%v", err)
				case errors.Is(err, tasks.ErrRunning):
					err = nil // the page of the workflow shows that
				}
				return webui.Result{To: workflow(r)}, err
			},
		},
		"/workflows/{id}/pause": s.onWorkflow("Pause workflow", "Pause the workflow",
			"No further tasks start until the workflow is resumed. Running tasks continue.", (*tasks.Workflow).Pause),
		"/workflows/{id}/resume": s.onWorkflow("Resume workflow", "Resume the workflow",
			"Tasks that became ready during the pause start.", (*tasks.Workflow).Resume),
		"/workflows/{id}/revoke": {
			Class: webui.Operate,
			Confirm: func(_ context.Context, r *http.Request) (webui.Question, error) {
				return webui.Question{
					Title: "Revoke workflow " + r.PathValue("id"), Button: "Revoke the workflow", Danger: true, Back: workflow(r), At: s.cfg.Prefix + "/workflows",
					Text: "Pending tasks will not run, running tasks are canceled, and completed tasks are unchanged. This cannot be undone.",
				}, nil
			},
			Do: func(ctx context.Context, r *http.Request) (webui.Result, error) {
				return webui.Result{To: workflow(r)}, s.client.Workflow(r.PathValue("id")).Revoke(ctx)
			},
		},
		"/todo/decide": {Class: webui.Operate, Confirm: s.askDecision, Do: s.decide},
		"/queues/{queue}/pause": {
			Class: webui.Operate,
			Confirm: func(ctx context.Context, r *http.Request) (webui.Question, error) {
				return webui.Question{
					Title: "Pause queue " + r.PathValue("queue"), Button: "Pause the queue", Back: queues, At: queues,
					Text: "Workers take no further tasks from the queue until it is resumed. Running tasks continue.",
				}, findQueue(ctx, s.client, r)
			},
			Do: func(ctx context.Context, r *http.Request) (webui.Result, error) {
				if err := findQueue(ctx, s.client, r); err != nil {
					return webui.Result{}, err
				}
				return webui.Result{To: queues}, s.client.PauseQueue(ctx, r.PathValue("queue"))
			},
		},
		"/queues/{queue}/resume": {
			Class: webui.Operate,
			Confirm: func(ctx context.Context, r *http.Request) (webui.Question, error) {
				return webui.Question{
					Title: "Resume queue " + r.PathValue("queue"), Button: "Resume the queue", Back: queues, At: queues,
					Text: "Workers resume taking tasks from the queue.",
				}, findQueue(ctx, s.client, r)
			},
			Do: func(ctx context.Context, r *http.Request) (webui.Result, error) {
				if err := findQueue(ctx, s.client, r); err != nil {
					return webui.Result{}, err
				}
				return webui.Result{To: queues}, s.client.ResumeQueue(ctx, r.PathValue("queue"))
			},
		},
		"/schedule/{entry}/pause": s.onEntry("Pause schedule", "Pause",
			"No ticks are sent until the schedule is resumed, except triggered ticks. Running workflows continue.", s.client.PauseSchedule),
		"/schedule/{entry}/resume": s.onEntry("Resume schedule", "Resume",
			"Ticks are sent again. Ticks that were due during the pause are not sent.", s.client.ResumeSchedule),
		"/schedule/{entry}/trigger": s.onEntry("Trigger schedule", "Trigger now",
			"The running scheduler sends a tick in a few seconds, also if the schedule is paused.", func(ctx context.Context, name string) error {
				_, err := s.client.TriggerSchedule(ctx, name)
				return err
			}),
		"/schedule/{entry}/delete": s.onEntry("Delete schedule", "Delete",
			"The counts, the pause and the requested ticks are deleted. Workflows that were sent continue. A schedule of a running scheduler cannot be deleted.", s.client.DeleteSchedule),
		"/workers/{worker}/concurrency": {Class: webui.Operate, Confirm: s.askConcurrency, Do: s.setConcurrency},
	}
}

// onWorkflow returns an action on a workflow that has not ended.
func (s *site) onWorkflow(title, button, text string, do func(*tasks.Workflow, context.Context) error) webui.Action {
	page := func(r *http.Request) string { return s.cfg.Prefix + "/workflows/" + url.PathEscape(r.PathValue("id")) }
	return webui.Action{
		Class: webui.Operate,
		Confirm: func(_ context.Context, r *http.Request) (webui.Question, error) {
			return webui.Question{Title: title + " " + r.PathValue("id"), Button: button, Text: text, Back: page(r), At: s.cfg.Prefix + "/workflows"}, nil
		},
		Do: func(ctx context.Context, r *http.Request) (webui.Result, error) {
			err := do(s.client.Workflow(r.PathValue("id")), ctx)
			if errors.Is(err, tasks.ErrEnded) || errors.Is(err, tasks.ErrRevoked) || errors.Is(err, tasks.ErrCancelled) {
				err = nil // the page of the workflow shows that
			}
			return webui.Result{To: page(r)}, err
		},
	}
}

// onEntry returns an action on an entry of the schedule.
func (s *site) onEntry(title, button, text string, do func(context.Context, string) error) webui.Action {
	back := s.cfg.Prefix + "/schedule"
	return webui.Action{
		Class: webui.Operate,
		Confirm: func(ctx context.Context, r *http.Request) (webui.Question, error) {
			_, err := s.client.Inspect().Schedule(ctx, r.PathValue("entry"))
			return webui.Question{Title: title + " " + r.PathValue("entry"), Button: button, Text: text, Back: back, At: back}, err
		},
		Do: func(ctx context.Context, r *http.Request) (webui.Result, error) {
			err := do(ctx, r.PathValue("entry"))
			if errors.Is(err, tasks.ErrRunning) || errors.Is(err, tasks.ErrFull) {
				err = webui.Invalid("%v", err)
			}
			return webui.Result{To: back}, err
		},
	}
}

// findQueue returns an error if the queue of a request has no tasks and no workers.
func findQueue(ctx context.Context, client *tasks.Client, r *http.Request) error {
	name := r.PathValue("queue")
	all, err := client.Inspect().Queues(ctx)
	if err != nil || slices.ContainsFunc(all, func(q tasktype.Queue) bool { return q.Name == name }) {
		return err
	}
	live, err := client.Inspect().Workers(ctx)
	if err != nil || slices.ContainsFunc(live, func(w tasktype.Worker) bool { return w.Queues[name] > 0 }) {
		return err
	}
	return webui.NotFound("Queue not found.")
}

func (s *site) askConcurrency(ctx context.Context, r *http.Request) (webui.Question, error) {
	live, err := s.client.Inspect().Workers(ctx)
	if err != nil {
		return webui.Question{}, err
	}
	for i := range live {
		if w := &live[i]; w.Name == r.PathValue("worker") {
			return webui.Question{
				Title: "Concurrency of worker " + w.Name, Text: "The setting applies until the worker restarts.", Button: "Set concurrency",
				Back: s.cfg.Prefix + "/workers", At: s.cfg.Prefix + "/workers",
				Fields: []webui.Field{{
					Name: "number", Type: "number", Label: fmt.Sprintf("Concurrent tasks, 1 to %d", w.MaxConcurrency),
					Value: strconv.Itoa(w.Concurrency), Min: 1, Max: w.MaxConcurrency, Required: true,
				}},
			}, nil
		}
	}
	return webui.Question{}, webui.NotFound("No live worker has this name.")
}

func (s *site) setConcurrency(ctx context.Context, r *http.Request) (webui.Result, error) {
	n, err := strconv.Atoi(r.PostFormValue("number"))
	if err != nil || n < 1 {
		return webui.Result{}, webui.Invalid("The number must be at least 1.")
	}
	return webui.Result{To: s.cfg.Prefix + "/workers"}, s.client.SetConcurrency(ctx, r.PathValue("worker"), n)
}
