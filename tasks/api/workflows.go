package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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

type sendOutput struct {
	Location string `header:"Location"`
	Status   int
	Body     SentWorkflow
}

// WorkflowFilter selects workflows.
type WorkflowFilter struct {
	State    string    `query:"state" enum:"running,success,failure,revoked" doc:"only workflows in this state"`
	Name     string    `query:"name" maxLength:"200" doc:"only workflows with this name, or whose first or last task it is"`
	Contains string    `query:"contains" cli:"-" maxLength:"200" doc:"only workflows with this text in their name or task names"`
	Labels   []string  `query:"label,explode" maxItems:"20" doc:"only workflows with this label, KEY=VALUE; may be repeated"`
	Origin   string    `query:"origin" cli:"-" maxLength:"100" doc:"only workflows that run the workflow with this ID again"`
	After    time.Time `query:"after" cli:"since" doc:"only workflows that ended, or if they run were sent, at this time or later"`
	Before   time.Time `query:"before" cli:"until" doc:"only workflows that ended, or if they run were sent, before this time"`
	Limit    int       `query:"limit" default:"100" minimum:"1" maximum:"1000" doc:"workflows per page"`
	Cursor   string    `query:"cursor" maxLength:"300" doc:"next of the previous page"`
}

// ResultWait is the input of GetWorkflowResult.
type ResultWait struct {
	Reference
	Wait string `query:"wait" maxLength:"50" doc:"how long to wait for the outcome, up to 1m" example:"30s"`
}

// WorkflowChange is a change of a workflow without parameters.
type WorkflowChange struct {
	Reference
	Body *struct{}
}

// NodeChange is a change of a node without parameters.
type NodeChange struct {
	NodeReference
	Body *struct{}
}

// ToWorkflow is the input of an operation on a workflow.
type ToWorkflow[T any] struct {
	Reference
	Body T
}

// ToNode is the input of an operation on a node.
type ToNode[T any] struct {
	NodeReference
	Body T
}

// Operations on workflows and their nodes.
var (
	SendWorkflow      = declare[With[NewWorkflow], SentWorkflow](Change, "POST /v1/workflows", "sendWorkflow", "Send a task by its name, or several tasks", http.StatusConflict)
	ListWorkflows     = declare[WorkflowFilter, Page[ListedWorkflow]](Read, "GET /v1/workflows", "listWorkflows", "List workflows, the latest first")
	GetWorkflow       = declare[Reference, WorkflowStatus](Read, "GET /v1/workflows/{id}", "getWorkflow", "Get the state and progress of a workflow", http.StatusNotFound)
	GetWorkflowResult = declare[ResultWait, WorkflowResult](ReadValues, "GET /v1/workflows/{id}/result", "getWorkflowResult", "Get the result or the failure of a workflow", http.StatusNotFound)
	ListNodes         = declare[Reference, Page[tasktype.Node]](Read, "GET /v1/workflows/{id}/nodes", "listNodes", "List the nodes of a workflow", http.StatusNotFound)
	GetNode           = declare[NodeReference, NodeValues](ReadValues, "GET /v1/workflows/{id}/nodes/{node}", "getNode", "Get a node with its input and result", http.StatusNotFound)
	GetWorkflowLog    = declare[Reference, Page[tasktype.LogLine]](ReadValues, "GET /v1/workflows/{id}/log", "getWorkflowLog", "List the last log lines of the tasks of a workflow, the oldest first", http.StatusNotFound)
	CancelWorkflow    = declare[WorkflowChange, None](Change, "POST /v1/workflows/{id}/cancel", "cancelWorkflow", "Fail the tasks of a workflow that have not ended; tasks that handle failures run", http.StatusNotFound, http.StatusConflict)
	PauseWorkflow     = declare[WorkflowChange, None](Change, "POST /v1/workflows/{id}/pause", "pauseWorkflow", "Keep the tasks of a workflow from starting until it is resumed; running attempts continue", http.StatusNotFound, http.StatusConflict)
	ResumeWorkflow    = declare[WorkflowChange, None](Change, "POST /v1/workflows/{id}/resume", "resumeWorkflow", "End the pause of a workflow", http.StatusNotFound, http.StatusConflict)
	RetryWorkflow     = declare[ToWorkflow[*Retry], None](Change, "POST /v1/workflows/{id}/retry", "retryWorkflow", "Run the failed and skipped tasks of an ended workflow again", http.StatusNotFound, http.StatusConflict)
	RunWorkflowAgain  = declare[ToWorkflow[*RunAgain], SentWorkflow](Change, "POST /v1/workflows/{id}/run-again", "runWorkflowAgain", "Send a new workflow with the tasks and inputs of an ended one", http.StatusNotFound, http.StatusConflict)
	RetryWorkflows    = declare[With[SelectWorkflows], ChangedWorkflows](Change, "POST /v1/workflows/retry", "retryWorkflows", "Retry a page of failed workflows")
	CancelWorkflows   = declare[With[SelectWorkflows], ChangedWorkflows](Change, "POST /v1/workflows/cancel", "cancelWorkflows", "Cancel a page of running workflows")
	RevokeWorkflow    = declare[WorkflowChange, None](Change, "POST /v1/workflows/{id}/revoke", "revokeWorkflow", "Stop a workflow: tasks that have not begun do not run", http.StatusNotFound)
	RevokeNode        = declare[NodeChange, None](Change, "POST /v1/workflows/{id}/nodes/{node}/revoke", "revokeNode", "Stop one task of a workflow", http.StatusNotFound)
	DeleteWorkflow    = declare[Reference, None](Change, "DELETE /v1/workflows/{id}", "deleteWorkflow", "Delete an ended workflow with its results", http.StatusNotFound, http.StatusConflict)
)

// addWorkflows adds the operations on workflows and their nodes.
func (s *service) addWorkflows() {
	route(s, SendWorkflow.Declaration, s.send)
	serve(s, ListWorkflows, s.list)
	serve(s, GetWorkflow, s.status)
	serve(s, GetWorkflowResult, s.result)
	serve(s, ListNodes, s.nodes)
	serve(s, GetNode, s.node)
	serve(s, GetWorkflowLog, func(ctx context.Context, in *Reference) (Page[tasktype.LogLine], error) {
		lines, err := s.Client.Workflow(in.ID).Log(ctx)
		return Page[tasktype.LogLine]{Data: append([]tasktype.LogLine{}, lines...)}, err
	})
	for _, change := range []struct {
		Operation[WorkflowChange, None]
		do func(*tasks.Workflow, context.Context) error
	}{{CancelWorkflow, (*tasks.Workflow).Cancel}, {PauseWorkflow, (*tasks.Workflow).Pause}, {ResumeWorkflow, (*tasks.Workflow).Resume}, {RevokeWorkflow, (*tasks.Workflow).Revoke}} {
		serveNone(s, change.Operation, func(ctx context.Context, in *WorkflowChange) error { return change.do(s.Client.Workflow(in.ID), ctx) })
	}
	serveNone(s, RetryWorkflow, s.retry)
	route(s, RunWorkflowAgain.Declaration, s.runAgain)
	serve(s, RetryWorkflows, func(ctx context.Context, in *With[SelectWorkflows]) (ChangedWorkflows, error) {
		return s.changePage(ctx, in.Body, tasktype.WorkflowFailed, func(w *tasks.Workflow) error { return w.Retry(ctx) })
	})
	serve(s, CancelWorkflows, func(ctx context.Context, in *With[SelectWorkflows]) (ChangedWorkflows, error) {
		return s.changePage(ctx, in.Body, tasktype.WorkflowRunning, func(w *tasks.Workflow) error { return w.Cancel(ctx) })
	})
	serveNone(s, RevokeNode, func(ctx context.Context, in *NodeChange) error {
		return s.Client.Workflow(in.ID).RevokeNode(ctx, in.Node)
	})
	serveNone(s, DeleteWorkflow, func(ctx context.Context, in *Reference) error { return s.Client.Workflow(in.ID).Delete(ctx) })
}

// options returns the options of a send at a path of the request.
func (n *NewWorkflow) options(at string) ([]tasks.SendOption, error) {
	var opts []tasks.SendOption
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
	opts = append(opts, tasks.Labels(n.Labels), tasks.Headers(n.Headers))
	if n.Work == nil { // also for the tasks of its plans
		opts = append(opts, tasks.Priority(n.Priority), tasks.MaxRetry(n.MaxRetry))
	}
	if (n.Unique == "") != (n.UniqueFor == "") {
		return nil, httpproblem.BadField(at+".unique_for", "unique and unique_for need each other")
	}
	if !n.StartAt.IsZero() {
		if n.Delay != "" {
			return nil, httpproblem.BadField(at+".start_at", "delay is set too; give one of them")
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
		{".unique_for", n.UniqueFor, func(d time.Duration) tasks.SendOption { return tasks.Unique(n.Unique, d) }},
		{".timeout", n.Timeout, func(d time.Duration) tasks.SendOption { return tasks.Timeout(d) }},
		{".delay", n.Delay, func(d time.Duration) tasks.SendOption { return tasks.In(d) }},
		{".retention", n.Retention, func(d time.Duration) tasks.SendOption { return tasks.Retention(d) }},
		{".failure_retention", n.FailureRetention, func(d time.Duration) tasks.SendOption { return tasks.FailureRetention(d) }},
	} {
		if d.text == "" {
			continue
		}
		value, err := durationOf(at+d.field, d.text)
		if err != nil {
			return nil, err
		}
		opts = append(opts, d.option(value))
	}
	return opts, nil
}

func (s *service) send(ctx context.Context, in *With[NewWorkflow]) (*sendOutput, error) {
	sig, opts, err := s.signature(ctx, &in.Body, "body")
	if err != nil {
		return nil, err
	}
	run, err := sig.Send(ctx, s.Client, opts...)
	if errors.Is(err, tasks.ErrDuplicate) {
		p := httpproblem.New(http.StatusConflict, "workflow %s has this ID or unique key", run.ID())
		p.Code = "duplicate_workflow"
		err = p
	}
	if err != nil {
		return nil, err
	}
	return &sendOutput{"/v1/workflows/" + run.ID(), http.StatusCreated, SentWorkflow{run.ID()}}, nil
}

// Filter returns the filter as package tasks has it.
func (f *WorkflowFilter) Filter() (tasktype.WorkflowFilter, error) {
	labels, err := tasktype.ParseLabels(f.Labels)
	if err != nil {
		err = httpproblem.BadField("query.label", "%v", err)
	}
	return tasktype.WorkflowFilter{State: tasktype.WorkflowState(f.State), Name: f.Name, Contains: f.Contains,
		Labels: labels, Origin: f.Origin, After: f.After, Before: f.Before, Cursor: f.Cursor, Limit: f.Limit}, err
}

func (s *service) list(ctx context.Context, in *WorkflowFilter) (out Page[ListedWorkflow], err error) {
	f, err := in.Filter()
	if err != nil {
		return out, err
	}
	found, next, err := s.Client.Inspect().Workflows(ctx, f)
	out = Page[ListedWorkflow]{Data: []ListedWorkflow{}, Next: next}
	for _, w := range found {
		out.Data = append(out.Data, ListedWorkflow{WorkflowOf(w), w.Paused, w.Queued})
	}
	return out, err
}

func (s *service) status(ctx context.Context, in *Reference) (WorkflowStatus, error) {
	d, err := s.attach(in).Info(ctx)
	if err != nil {
		return WorkflowStatus{}, err
	}
	return WorkflowStatus{WorkflowOf(d.Workflow), d.Progress}, nil
}

// attach returns the handle of a workflow.
func (s *service) attach(in *Reference) *tasks.Run[json.RawMessage] {
	return tasks.Attach[json.RawMessage](s.Client, in.ID)
}

func (s *service) result(ctx context.Context, in *ResultWait) (out WorkflowResult, err error) {
	wait, err := durationOf("query.wait", in.Wait)
	if err != nil {
		return out, err
	}
	run := s.attach(&in.Reference)
	status, err := run.Status(ctx)
	if err != nil {
		return out, err
	}
	if !status.Terminal() && wait == 0 {
		return WorkflowResult{Status: status}, nil
	}
	waiting, cancel := context.WithTimeout(ctx, max(time.Second, min(wait, maxWait)))
	defer cancel()
	raw, err := run.Wait(waiting)
	failure, failed := errors.AsType[*tasks.Failure](err)
	switch {
	case err == nil:
		return WorkflowResult{Status: tasktype.Success, Result: raw}, nil
	case failed && errors.Is(failure, tasks.ErrRevoked):
		return WorkflowResult{Status: tasktype.Revoked, Failure: failure}, nil
	case failed:
		return WorkflowResult{Status: tasktype.Failed, Failure: failure}, nil
	case waiting.Err() != nil && ctx.Err() == nil:
		status, err = run.Status(ctx)
		return WorkflowResult{Status: status}, err
	}
	return out, err
}

func (s *service) nodes(ctx context.Context, in *Reference) (Page[tasktype.Node], error) {
	list, err := s.Client.Workflow(in.ID).Nodes(ctx)
	return Page[tasktype.Node]{Data: append([]tasktype.Node{}, list...)}, err
}

func (s *service) node(ctx context.Context, in *NodeReference) (out NodeValues, err error) {
	return ReadNode(ctx, s.Client.Workflow(in.ID), in.Node)
}

// ReadNode returns a node of a workflow with its values.
func ReadNode(ctx context.Context, w *tasks.Workflow, node string) (out NodeValues, err error) {
	d, err := w.Node(ctx, node)
	if err != nil {
		return out, err
	}
	out = NodeValues{Node: d.Node, Input: d.Input, Headers: d.Headers, Steps: d.Steps, Saved: d.Saved, Output: d.Output}
	if d.Status == tasktype.Success {
		out.Result, err = w.NodeValue(ctx, node)
	}
	return out, err
}

func (s *service) retry(ctx context.Context, in *ToWorkflow[*Retry]) error {
	var opts []tasks.RetryOption
	if in.Body != nil {
		for node, input := range in.Body.Inputs {
			opts = append(opts, tasks.RetryInputJSON(node, input))
		}
		for node, names := range in.Body.DropSteps {
			opts = append(opts, tasks.DropSteps(node, names...))
		}
	}
	return s.Client.Workflow(in.ID).Retry(ctx, opts...)
}

func (s *service) runAgain(ctx context.Context, in *ToWorkflow[*RunAgain]) (*sendOutput, error) {
	var opts []tasks.RetryOption
	if in.Body != nil {
		for node, input := range in.Body.Inputs {
			opts = append(opts, tasks.RetryInputJSON(node, input))
		}
		if in.Body.From != "" {
			opts = append(opts, tasks.FromNode(in.Body.From))
		}
	}
	again, err := s.Client.Workflow(in.ID).RunAgain(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return &sendOutput{"/v1/workflows/" + again.ID(), http.StatusCreated, SentWorkflow{again.ID()}}, nil
}

// changePage changes a page of workflows: a call for all could take longer than a request may.
func (s *service) changePage(ctx context.Context, b SelectWorkflows, state tasktype.WorkflowState, change func(*tasks.Workflow) error) (out ChangedWorkflows, err error) {
	for k, v := range b.Labels {
		if len(k)+len(v) > 1<<10 {
			return out, httpproblem.BadField("body.labels."+k[:min(len(k), 63)], "more than 1 KiB, which no workflow has")
		}
	}
	found, next, err := s.Client.Inspect().Workflows(ctx, tasktype.WorkflowFilter{State: state, Name: b.Name, Contains: b.Contains, Labels: b.Labels,
		After: b.After, Before: b.Before, Cursor: b.Cursor, Limit: cmp.Or(b.Limit, 100)})
	if err != nil {
		return out, err
	}
	out = ChangedWorkflows{Failed: []NotChanged{}, Next: next}
	for _, w := range found {
		switch err := change(s.Client.Workflow(w.ID)); {
		case err == nil:
			out.Changed++
		case problemOf(err).Status >= http.StatusInternalServerError:
			return out, err
		default:
			out.Failed = append(out.Failed, NotChanged{w.ID, problemOf(err).Code})
		}
	}
	return out, nil
}
