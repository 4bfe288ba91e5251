package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"muster/internal/httpproblem"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// Reference names a workflow in a path.
type Reference struct {
	ID string `path:"id" maxLength:"100" pattern:"^[A-Za-z0-9_-]+$" patternDescription:"the ID of a workflow" doc:"ID of the workflow"`
}

// NodeReference names a node in a path.
type NodeReference struct {
	Reference
	Node string `path:"node" maxLength:"4000" pattern:"^[0-9][0-9:.]*$" patternDescription:"the ID of a node" doc:"ID of the node within the workflow"`
}

type sendInput struct{ Body NewWorkflow }

type sendOutput struct {
	Location string `header:"Location"`
	Status   int
	Body     SentWorkflow
}

type listInput struct {
	State    string    `query:"state" enum:"running,success,failure,revoked" doc:"only workflows in this state"`
	Name     string    `query:"name" maxLength:"200" doc:"only workflows with this name, or whose first or last task it is"`
	Contains string    `query:"contains" maxLength:"200" doc:"only workflows with this text in their name or task names"`
	Label    []string  `query:"label,explode" maxItems:"20" doc:"only workflows with this label, KEY=VALUE; may be repeated"`
	After    time.Time `query:"after" doc:"only workflows that ended, or if they run were sent, at this time or later"`
	Before   time.Time `query:"before" doc:"only workflows that ended, or if they run were sent, before this time"`
	Limit    int       `query:"limit" default:"100" minimum:"1" maximum:"1000" doc:"workflows per page"`
	Cursor   string    `query:"cursor" maxLength:"300" doc:"next of the previous page"`
}

type listOutput struct{ Body page[ListedWorkflow] }

type statusOutput struct{ Body WorkflowStatus }

type resultInput struct {
	Reference
	Wait string `query:"wait" maxLength:"50" doc:"how long to wait for the outcome, up to 1m" example:"30s"`
}

type resultOutput struct{ Body WorkflowResult }

type nodesOutput struct{ Body page[Node] }

type nodeOutput struct{ Body NodeValues }

type logOutput struct{ Body page[tasktype.LogLine] }

type emptyInput struct {
	Reference
	Body *struct{}
}

type retryInput struct {
	Reference
	Body *RetryWorkflow
}

type selectInput struct{ Body SelectWorkflows }

type changedOutput struct{ Body ChangedWorkflows }

type emptyNodeInput struct {
	NodeReference
	Body *struct{}
}

// addWorkflows adds the operations on workflows and their nodes.
func (s *service) addWorkflows() {
	route(s, Change, http.MethodPost, "/v1/workflows", "sendWorkflow", "Send a task by its name", s.send, http.StatusConflict)
	route(s, Read, http.MethodGet, "/v1/workflows", "listWorkflows", "List workflows, the latest first", s.list)
	route(s, Read, http.MethodGet, "/v1/workflows/{id}", "getWorkflow", "Get the state and progress of a workflow", s.status, http.StatusNotFound)
	route(s, ReadValues, http.MethodGet, "/v1/workflows/{id}/result", "getWorkflowResult", "Get the result or the failure of a workflow", s.result, http.StatusNotFound)
	route(s, Read, http.MethodGet, "/v1/workflows/{id}/nodes", "listNodes", "List the nodes of a workflow", s.nodes, http.StatusNotFound)
	route(s, ReadValues, http.MethodGet, "/v1/workflows/{id}/nodes/{node}", "getNode", "Get a node with its input and result", s.node, http.StatusNotFound)
	route(s, ReadValues, http.MethodGet, "/v1/workflows/{id}/log", "getWorkflowLog", "List the last log lines of the tasks of a workflow, the oldest first", s.workflowLog, http.StatusNotFound)
	route(s, Change, http.MethodPost, "/v1/workflows/{id}/cancel", "cancelWorkflow", "Fail the tasks of a workflow that have not ended; tasks that handle failures run", s.cancel, http.StatusNotFound, http.StatusConflict)
	route(s, Change, http.MethodPost, "/v1/workflows/{id}/pause", "pauseWorkflow", "Keep the tasks of a workflow from starting until it is resumed; running attempts continue", s.pauseWorkflow, http.StatusNotFound, http.StatusConflict)
	route(s, Change, http.MethodPost, "/v1/workflows/{id}/resume", "resumeWorkflow", "End the pause of a workflow", s.resumeWorkflow, http.StatusNotFound, http.StatusConflict)
	route(s, Change, http.MethodPost, "/v1/workflows/{id}/retry", "retryWorkflow", "Run the failed and skipped tasks of an ended workflow again", s.retry, http.StatusNotFound, http.StatusConflict)
	route(s, Change, http.MethodPost, "/v1/workflows/retry", "retryWorkflows", "Retry a page of failed workflows", s.retryAll)
	route(s, Change, http.MethodPost, "/v1/workflows/cancel", "cancelWorkflows", "Cancel a page of running workflows", s.cancelAll)
	route(s, Change, http.MethodPost, "/v1/workflows/{id}/revoke", "revokeWorkflow", "Stop a workflow: tasks that have not begun do not run", s.revoke, http.StatusNotFound)
	route(s, Change, http.MethodPost, "/v1/workflows/{id}/nodes/{node}/revoke", "revokeNode", "Stop one task of a workflow", s.revokeNode, http.StatusNotFound)
	route(s, Change, http.MethodDelete, "/v1/workflows/{id}", "deleteWorkflow", "Delete an ended workflow with its results", s.forget, http.StatusNotFound, http.StatusConflict)
}

// options returns the options of a send.
func (n *NewWorkflow) options() ([]tasks.TaskOption, []tasks.SendOption, error) {
	var declared []tasks.TaskOption
	var opts []tasks.SendOption
	if n.External {
		declared = append(declared, tasks.External())
	}
	if n.Queue != "" {
		opts = append(opts, tasks.Queue(n.Queue))
	}
	if n.ID != "" {
		opts = append(opts, tasks.ID(n.ID))
	}
	if n.Name != "" {
		opts = append(opts, tasks.Name(n.Name))
	}
	if n.Overlap != "" {
		opts = append(opts, tasks.Overlap(tasks.OverlapPolicy(n.Overlap)))
	}
	if n.FairnessKey != "" {
		opts = append(opts, tasks.FairnessKey(n.FairnessKey))
	}
	opts = append(opts, tasks.Labels(n.Labels), tasks.Headers(n.Headers), tasks.Priority(n.Priority), tasks.MaxRetry(n.MaxRetry))
	if (n.Unique == "") != (n.UniqueFor == "") {
		return nil, nil, httpproblem.BadField("body.unique_for", "unique and unique_for need each other")
	}
	if !n.StartAt.IsZero() {
		if n.Delay != "" {
			return nil, nil, httpproblem.BadField("body.start_at", "delay is set too; give one of them")
		}
		opts = append(opts, tasks.At(n.StartAt))
	}
	if !n.DeadlineAt.IsZero() {
		opts = append(opts, tasks.Deadline(n.DeadlineAt))
	}
	for _, d := range []struct {
		field, text string
		option      func(time.Duration) tasks.SendOption
	}{
		{"body.unique_for", n.UniqueFor, func(d time.Duration) tasks.SendOption { return tasks.Unique(n.Unique, d) }},
		{"body.timeout", n.Timeout, func(d time.Duration) tasks.SendOption { return tasks.Timeout(d) }},
		{"body.delay", n.Delay, func(d time.Duration) tasks.SendOption { return tasks.In(d) }},
		{"body.retention", n.Retention, func(d time.Duration) tasks.SendOption { return tasks.Retention(d) }},
		{"body.failure_retention", n.FailureRetention, func(d time.Duration) tasks.SendOption { return tasks.FailureRetention(d) }},
	} {
		if d.text == "" {
			continue
		}
		value, err := durationOf(d.field, d.text)
		if err != nil {
			return nil, nil, err
		}
		opts = append(opts, d.option(value))
	}
	return declared, opts, nil
}

func (s *service) send(ctx context.Context, in *sendInput) (*sendOutput, error) {
	declared, opts, err := in.Body.options()
	if err != nil {
		return nil, err
	}
	run, err := tasks.New[json.RawMessage, json.RawMessage](in.Body.Task, declared...).S(in.Body.Input).Send(ctx, s.Client, opts...)
	switch {
	case errors.Is(err, tasks.ErrDuplicate):
		p := httpproblem.New(http.StatusConflict, "workflow %s has this ID or unique key", run.ID())
		p.Code = "duplicate_workflow"
		return nil, p
	case errors.Is(err, tasks.ErrInvalid):
		return nil, httpproblem.BadField("body", "%v", err)
	case err != nil:
		return nil, err
	}
	return &sendOutput{"/v1/workflows/" + run.ID(), http.StatusCreated, SentWorkflow{run.ID()}}, nil
}

func (s *service) list(ctx context.Context, in *listInput) (*listOutput, error) {
	labels, err := tasktype.ParseLabels(in.Label)
	if err != nil {
		return nil, httpproblem.BadField("query.label", "%v", err)
	}
	found, next, err := s.Client.Workflows(ctx, tasktype.WorkflowFilter{State: tasktype.WorkflowState(in.State), Name: in.Name, Contains: in.Contains,
		Labels: labels, After: in.After, Before: in.Before, Cursor: in.Cursor, Limit: in.Limit})
	if err != nil {
		return nil, err
	}
	out := &listOutput{page[ListedWorkflow]{Data: []ListedWorkflow{}, Next: next}}
	for _, w := range found {
		out.Body.Data = append(out.Body.Data, ListedWorkflow{workflowOf(w), w.Paused, w.Queued})
	}
	return out, nil
}

func (s *service) status(ctx context.Context, in *Reference) (*statusOutput, error) {
	d, err := s.attach(in).Summary(ctx)
	if err != nil {
		return nil, err
	}
	return &statusOutput{WorkflowStatus{workflowOf(d.Workflow), d.Progress}}, nil
}

// attach returns the handle of a workflow.
func (s *service) attach(in *Reference) *tasks.AsyncResult[json.RawMessage] {
	return tasks.Attach[json.RawMessage](s.Client, in.ID)
}

func (s *service) result(ctx context.Context, in *resultInput) (*resultOutput, error) {
	wait, err := durationOf("query.wait", in.Wait)
	if err != nil {
		return nil, err
	}
	run := s.attach(&in.Reference)
	status, err := run.Status(ctx)
	if err != nil {
		return nil, err
	}
	if !status.Terminal() && wait == 0 {
		return &resultOutput{WorkflowResult{Status: status}}, nil
	}
	waiting, cancel := context.WithTimeout(ctx, max(time.Second, min(wait, maxWait)))
	defer cancel()
	raw, err := run.Wait(waiting)
	failure, failed := errors.AsType[*tasks.Failure](err)
	switch {
	case err == nil:
		return &resultOutput{WorkflowResult{Status: tasktype.Success, Result: raw}}, nil
	case failed && errors.Is(failure, tasks.ErrRevoked):
		return &resultOutput{WorkflowResult{Status: tasktype.Revoked, Failure: failure}}, nil
	case failed:
		return &resultOutput{WorkflowResult{Status: tasktype.Failed, Failure: failure}}, nil
	case waiting.Err() != nil && ctx.Err() == nil:
		status, err = run.Status(ctx)
		return &resultOutput{WorkflowResult{Status: status}}, err
	}
	return nil, err
}

func (s *service) nodes(ctx context.Context, in *Reference) (*nodesOutput, error) {
	list, err := s.Client.Nodes(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	out := &nodesOutput{page[Node]{Data: make([]Node, 0, len(list))}}
	for i := range list {
		out.Body.Data = append(out.Body.Data, nodeOf(&list[i]))
	}
	return out, nil
}

func (s *service) workflowLog(ctx context.Context, in *Reference) (*logOutput, error) {
	lines, err := s.Client.Log(ctx, in.ID)
	return &logOutput{page[tasktype.LogLine]{Data: append([]tasktype.LogLine{}, lines...)}}, err
}

func (s *service) node(ctx context.Context, in *NodeReference) (*nodeOutput, error) {
	d, err := s.Client.Node(ctx, in.ID, in.Node)
	if err != nil {
		return nil, err
	}
	out := &nodeOutput{NodeValues{Node: nodeOf(&d.Node), Input: d.Input, Headers: d.Headers}}
	if d.Status == tasktype.Success {
		out.Body.Result, err = tasks.NodeValue[json.RawMessage](ctx, s.Client, in.ID, in.Node)
	}
	return out, err
}

func (s *service) cancel(ctx context.Context, in *emptyInput) (*struct{}, error) {
	return nil, s.Client.Cancel(ctx, in.ID)
}

func (s *service) pauseWorkflow(ctx context.Context, in *emptyInput) (*struct{}, error) {
	return nil, s.Client.Pause(ctx, in.ID)
}

func (s *service) resumeWorkflow(ctx context.Context, in *emptyInput) (*struct{}, error) {
	return nil, s.Client.Resume(ctx, in.ID)
}

func (s *service) retry(ctx context.Context, in *retryInput) (*struct{}, error) {
	var opts []tasks.RetryOption
	if in.Body != nil {
		for node, input := range in.Body.Inputs {
			opts = append(opts, tasks.RetryInputJSON(node, input))
		}
	}
	err := s.Client.Retry(ctx, in.ID, opts...)
	if errors.Is(err, tasks.ErrRetryInput) {
		return nil, httpproblem.BadField("body.inputs", "%v", err)
	}
	return nil, err
}

func (s *service) retryAll(ctx context.Context, in *selectInput) (*changedOutput, error) {
	return s.changePage(ctx, in.Body, tasktype.WorkflowFailed, func(ctx context.Context, id string) error { return s.Client.Retry(ctx, id) })
}

func (s *service) cancelAll(ctx context.Context, in *selectInput) (*changedOutput, error) {
	return s.changePage(ctx, in.Body, tasktype.WorkflowRunning, s.Client.Cancel)
}

// changePage changes a page of workflows: a call for all could take longer than a request may.
func (s *service) changePage(ctx context.Context, b SelectWorkflows, state tasktype.WorkflowState, change func(context.Context, string) error) (*changedOutput, error) {
	for k, v := range b.Labels {
		if len(k)+len(v) > 1<<10 {
			return nil, httpproblem.BadField("body.labels."+k[:min(len(k), 63)], "more than 1 KiB, which no workflow has")
		}
	}
	found, next, err := s.Client.Workflows(ctx, tasktype.WorkflowFilter{State: state, Name: b.Name, Contains: b.Contains, Labels: b.Labels,
		After: b.After, Before: b.Before, Cursor: b.Cursor, Limit: cmp.Or(b.Limit, 100)})
	if err != nil {
		return nil, err
	}
	out := ChangedWorkflows{Failed: []NotChanged{}, Next: next}
	for _, w := range found {
		switch err := change(ctx, w.ID); {
		case err == nil:
			out.Changed++
		case problemOf(err).Status >= http.StatusInternalServerError:
			return nil, err
		default:
			out.Failed = append(out.Failed, NotChanged{w.ID, problemOf(err).Code})
		}
	}
	return &changedOutput{out}, nil
}

func (s *service) revoke(ctx context.Context, in *emptyInput) (*struct{}, error) {
	return nil, s.Client.Revoke(ctx, in.ID)
}

func (s *service) revokeNode(ctx context.Context, in *emptyNodeInput) (*struct{}, error) {
	return nil, s.Client.RevokeNode(ctx, in.ID, in.Node)
}

func (s *service) forget(ctx context.Context, in *Reference) (*struct{}, error) {
	run := s.attach(in)
	p, err := run.Progress(ctx)
	if err != nil {
		return nil, err
	}
	if !p.Ended {
		return nil, fmt.Errorf("delete workflow %s: %w", in.ID, tasks.ErrRunning)
	}
	return nil, run.Forget(ctx)
}
