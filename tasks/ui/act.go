package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// actions are what can be changed, by path.
func (s *site) actions() map[string]webui.Action {
	queues := s.cfg.Prefix + "/queues"
	workflow := func(r *http.Request) string { return s.cfg.Prefix + "/workflows/" + url.PathEscape(r.PathValue("id")) }
	return map[string]webui.Action{
		"/workflows/{id}/revoke": {
			Class: webui.Operate,
			Says: func(_ context.Context, r *http.Request) (webui.Question, error) {
				return webui.Question{
					Title: "Revoke workflow " + r.PathValue("id"), Button: "Revoke the workflow", Danger: true, Back: workflow(r), At: s.cfg.Prefix + "/workflows",
					Text: "Tasks that have not begun will not run. Those that run are told to stop. What has ended stays. This cannot be undone.",
				}, nil
			},
			Do: func(ctx context.Context, r *http.Request) (webui.Done, error) {
				return webui.Done{To: workflow(r)}, s.client.Revoke(ctx, r.PathValue("id"))
			},
		},
		"/revoke":                            {Class: webui.Operate, Says: s.askRevokeMany, Do: s.revokeMany},
		"/workflows/{id}/complete/{node...}": {Class: webui.Operate, Says: answers{s}.askComplete, Do: answers{s}.complete},
		"/workflows/{id}/fail/{node...}":     {Class: webui.Operate, Says: answers{s}.askFail, Do: answers{s}.fail},
		"/queues/{queue}/pause": {
			Class: webui.Operate,
			Says: func(ctx context.Context, r *http.Request) (webui.Question, error) {
				return webui.Question{
					Title: "Pause queue " + r.PathValue("queue"), Button: "Pause the queue", Back: queues, At: queues,
					Text: "Workers take no more tasks from it until it is resumed. Those that are running continue.",
				}, findQueue(ctx, s.client, r)
			},
			Do: func(ctx context.Context, r *http.Request) (webui.Done, error) {
				if err := findQueue(ctx, s.client, r); err != nil {
					return webui.Done{}, err
				}
				return webui.Done{To: queues}, s.client.PauseQueue(ctx, r.PathValue("queue"))
			},
		},
		"/queues/{queue}/resume": {
			Class: webui.Operate,
			Says: func(ctx context.Context, r *http.Request) (webui.Question, error) {
				return webui.Question{
					Title: "Resume queue " + r.PathValue("queue"), Button: "Resume the queue", Back: queues, At: queues,
					Text: "Workers take tasks from it again.",
				}, findQueue(ctx, s.client, r)
			},
			Do: func(ctx context.Context, r *http.Request) (webui.Done, error) {
				if err := findQueue(ctx, s.client, r); err != nil {
					return webui.Done{}, err
				}
				return webui.Done{To: queues}, s.client.ResumeQueue(ctx, r.PathValue("queue"))
			},
		},
		"/workers/{worker}/concurrency": {Class: webui.Operate, Says: s.askConcurrency, Do: s.setConcurrency},
	}
}

// findQueue returns an error if nothing was sent to the queue of a request and no worker takes from it.
func findQueue(ctx context.Context, client *tasks.Client, r *http.Request) error {
	name := r.PathValue("queue")
	all, err := client.Queues(ctx)
	if err != nil || slices.ContainsFunc(all, func(q tasktype.Queue) bool { return q.Name == name }) {
		return err
	}
	live, err := client.Workers(ctx)
	if err != nil || slices.ContainsFunc(live, func(w tasktype.Worker) bool { return w.Queues[name] > 0 }) {
		return err
	}
	return webui.NotFound("There is no queue of this name.")
}

func (s *site) askConcurrency(ctx context.Context, r *http.Request) (webui.Question, error) {
	live, err := s.client.Workers(ctx)
	if err != nil {
		return webui.Question{}, err
	}
	for i := range live {
		if w := &live[i]; w.Name == r.PathValue("worker") {
			return webui.Question{
				Title: "Tasks at once of worker " + w.Name, Text: "It holds until the worker restarts.", Button: "Set it",
				Back: s.cfg.Prefix + "/workers", At: s.cfg.Prefix + "/workers",
				Fields: []webui.Field{{
					Name: "number", Type: "number", Label: fmt.Sprintf("Tasks at once, 1 to %d", w.MaxConcurrency),
					Value: strconv.Itoa(w.Concurrency), Min: 1, Max: w.MaxConcurrency, Required: true,
				}},
			}, nil
		}
	}
	return webui.Question{}, webui.NotFound("There is no live worker of this name.")
}

func (s *site) setConcurrency(ctx context.Context, r *http.Request) (webui.Done, error) {
	n, err := strconv.Atoi(r.PostFormValue("number"))
	if err != nil || n < 1 {
		return webui.Done{}, webui.Invalid("Give a number from 1 on.")
	}
	return webui.Done{To: s.cfg.Prefix + "/workers"}, s.client.SetConcurrency(ctx, r.PathValue("worker"), n)
}
