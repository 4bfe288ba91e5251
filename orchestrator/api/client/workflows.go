package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"muster/tasks/api"
	"muster/tasks/tasktype"
)

func workflowPath(id, more string) string { return "/v1/workflows/" + url.PathEscape(id) + more }

func nodePath(id, node, more string) string {
	return workflowPath(id, "/nodes/"+url.PathEscape(node)+more)
}

// post sends a request whose response has no content.
func (c *Client) post(ctx context.Context, path string, in any) error {
	return c.do(ctx, http.MethodPost, path, nil, in, nil)
}

// filled returns the parameters of a query that are not empty.
func filled(pairs ...string) url.Values {
	query := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	return query
}

// SendWorkflow sends a task, and returns the ID of its workflow.
func (c *Client) SendWorkflow(ctx context.Context, w api.NewWorkflow) (string, error) {
	var sent api.SentWorkflow
	err := c.do(ctx, http.MethodPost, "/v1/workflows", nil, w, &sent)
	return sent.ID, err
}

// WorkflowFilter selects workflows.
type WorkflowFilter struct {
	State  string    // Defaults to all.
	Name   string    // of the workflow, or of its first or last task. Defaults to all.
	Labels []string  // KEY=VALUE. Defaults to all.
	After  time.Time // when it ended or, while it runs, was sent. Defaults to all.
	Limit  int       // number of workflows. Defaults to all.
}

// Workflows lists workflows, the latest first.
func (c *Client) Workflows(ctx context.Context, f WorkflowFilter) ([]api.ListedWorkflow, error) {
	query := filled("state", f.State, "name", f.Name)
	query["label"] = f.Labels
	if !f.After.IsZero() {
		query.Set("after", f.After.Format(time.RFC3339Nano))
	}
	if f.Limit > 0 {
		query.Set("limit", strconv.Itoa(min(f.Limit, 1000)))
	}
	return all[api.ListedWorkflow](ctx, c, "/v1/workflows", query, f.Limit)
}

// Workflow returns the state and progress of a workflow.
func (c *Client) Workflow(ctx context.Context, id string) (w api.WorkflowStatus, err error) {
	err = c.do(ctx, http.MethodGet, workflowPath(id, ""), nil, nil, &w)
	return w, err
}

// Nodes lists the nodes of a workflow.
func (c *Client) Nodes(ctx context.Context, id string) ([]api.Node, error) {
	return all[api.Node](ctx, c, workflowPath(id, "/nodes"), nil, 0)
}

// WorkflowResult returns the outcome of a workflow. It waits for the outcome for up to wait, at most a minute.
func (c *Client) WorkflowResult(ctx context.Context, id string, wait time.Duration) (r api.WorkflowResult, err error) {
	err = c.do(ctx, http.MethodGet, workflowPath(id, "/result"), url.Values{"wait": {wait.String()}}, nil, &r)
	return r, err
}

// CancelWorkflow cancels a workflow; tasks that handle failures run.
func (c *Client) CancelWorkflow(ctx context.Context, id string) error {
	return c.post(ctx, workflowPath(id, "/cancel"), nil)
}

// PauseWorkflow keeps the tasks of a workflow from starting.
func (c *Client) PauseWorkflow(ctx context.Context, id string) error {
	return c.post(ctx, workflowPath(id, "/pause"), nil)
}

// ResumeWorkflow ends a pause of PauseWorkflow.
func (c *Client) ResumeWorkflow(ctx context.Context, id string) error {
	return c.post(ctx, workflowPath(id, "/resume"), nil)
}

// RetryWorkflow runs the failed and skipped tasks of an ended workflow again.
func (c *Client) RetryWorkflow(ctx context.Context, id string, r api.RetryWorkflow) error {
	return c.post(ctx, workflowPath(id, "/retry"), r)
}

// RetryWorkflows retries a page of failed workflows.
func (c *Client) RetryWorkflows(ctx context.Context, w api.SelectWorkflows) (out api.ChangedWorkflows, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/workflows/retry", nil, w, &out)
	return out, err
}

// CancelWorkflows cancels a page of running workflows.
func (c *Client) CancelWorkflows(ctx context.Context, w api.SelectWorkflows) (out api.ChangedWorkflows, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/workflows/cancel", nil, w, &out)
	return out, err
}

// RevokeWorkflow stops a workflow.
func (c *Client) RevokeWorkflow(ctx context.Context, id string) error {
	return c.post(ctx, workflowPath(id, "/revoke"), nil)
}

// RevokeNode stops one task of a workflow.
func (c *Client) RevokeNode(ctx context.Context, id, node string) error {
	return c.post(ctx, nodePath(id, node, "/revoke"), nil)
}

// DeleteWorkflow deletes an ended workflow with its results.
func (c *Client) DeleteWorkflow(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, workflowPath(id, ""), nil, nil, nil)
}

// Tasks lists up to limit tasks that are running, ready or scheduled.
func (c *Client) Tasks(ctx context.Context, state string, limit int) ([]api.Task, error) {
	return all[api.Task](ctx, c, "/v1/tasks", filled("state", state, "limit", strconv.Itoa(limit)), limit)
}

// OpenTasks lists up to limit nodes of a task that wait for external completion; of all tasks, if task is empty.
func (c *Client) OpenTasks(ctx context.Context, task string, limit int) ([]api.OpenTask, error) {
	return all[api.OpenTask](ctx, c, "/v1/open-tasks", filled("task", task), limit)
}

// Signal completes the open task of a name in a workflow, or the next one that opens.
func (c *Client) Signal(ctx context.Context, id string, s api.Signal) error {
	return c.post(ctx, workflowPath(id, "/signals"), s)
}

// CompleteNode completes an open task with its result.
func (c *Client) CompleteNode(ctx context.Context, id, node string, r api.NodeResult) error {
	return c.post(ctx, nodePath(id, node, "/complete"), r)
}

// FailNode fails an open task.
func (c *Client) FailNode(ctx context.Context, id, node string, f api.NodeFailure) error {
	return c.post(ctx, nodePath(id, node, "/fail"), f)
}

// TaskRates counts the outcomes of tasks by step, which is minute or hour, since a time. An empty queue or task means all.
func (c *Client) TaskRates(ctx context.Context, queue, task, step string, since time.Time) ([]tasktype.RatePoint, error) {
	query := filled("queue", queue, "task", task, "step", step, "since", since.Format(time.RFC3339Nano))
	return all[tasktype.RatePoint](ctx, c, "/v1/task-rates", query, 0)
}

// Workers lists the live workers. With a ping above 0, it waits so long for their replies.
func (c *Client) Workers(ctx context.Context, ping time.Duration) ([]api.Worker, error) {
	query := url.Values{}
	if ping > 0 {
		query.Set("ping", ping.String())
	}
	return all[api.Worker](ctx, c, "/v1/workers", query, 0)
}

// SetConcurrency sets how many tasks workers run at once.
func (c *Client) SetConcurrency(ctx context.Context, n api.Concurrency) error {
	return c.post(ctx, "/v1/workers/concurrency", n)
}

// TaskQueues lists the queues of tasks.
func (c *Client) TaskQueues(ctx context.Context) ([]tasktype.Queue, error) {
	return all[tasktype.Queue](ctx, c, "/v1/task-queues", nil, 0)
}

// PauseTaskQueue pauses a queue of tasks, or resumes it.
func (c *Client) PauseTaskQueue(ctx context.Context, queue string, pause bool) (q api.TaskQueue, err error) {
	verb := "/resume"
	if pause {
		verb = "/pause"
	}
	err = c.do(ctx, http.MethodPost, "/v1/task-queues/"+url.PathEscape(queue)+verb, nil, nil, &q)
	return q, err
}

// Schedules lists the entries of all schedulers.
func (c *Client) Schedules(ctx context.Context) ([]api.Schedule, error) {
	return all[api.Schedule](ctx, c, "/v1/schedules", nil, 0)
}

// ChangeSchedule changes an entry of a scheduler: verb is pause, resume or trigger.
func (c *Client) ChangeSchedule(ctx context.Context, name, verb string) error {
	return c.post(ctx, "/v1/schedules/"+url.PathEscape(name)+"/"+verb, nil)
}

// BackfillSchedule sends the runs of an entry that were due in a period, and returns their number.
func (c *Client) BackfillSchedule(ctx context.Context, name string, b api.Backfill) (int, error) {
	var sent api.Backfilled
	err := c.do(ctx, http.MethodPost, "/v1/schedules/"+url.PathEscape(name)+"/backfill", nil, b, &sent)
	return sent.Ticks, err
}

// DeleteSchedule forgets an entry that no running scheduler has.
func (c *Client) DeleteSchedule(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/schedules/"+url.PathEscape(name), nil, nil, nil)
}
