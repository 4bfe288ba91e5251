package api

import (
	"encoding/json"
	"time"

	"muster/tasks/tasktype"
)

// NewWorkflow is a task or work to send.
type NewWorkflow struct {
	Task             string            `json:"task,omitempty" cli:"arg" maxLength:"100" doc:"name of the task; absent with work" example:"text.count"`
	Input            json.RawMessage   `json:"input,omitempty" cli:"arg" doc:"input of the task, any JSON value"`
	Work             *Work             `json:"work,omitempty" doc:"several tasks, instead of task"`
	RequireHandlers  bool              `json:"require_handlers,omitempty" doc:"400 unless a live worker has a handler for each task"`
	Queue            string            `json:"queue,omitempty" cli:"queue=default" maxLength:"100" doc:"defaults to default"`
	ID               string            `json:"id,omitempty" maxLength:"100" pattern:"^[A-Za-z0-9_-]+$" patternDescription:"letters, digits, _ and -" doc:"ID of the workflow; 409 if a workflow has it. Defaults to a random ID."`
	Name             string            `json:"name,omitempty" cli:"name" maxLength:"200" doc:"name of the workflow in listings; defaults to the name of the task"`
	Labels           map[string]string `json:"labels,omitempty" cli:"label" doc:"labels by which the workflow is found, 1 KiB in total"`
	Headers          map[string]string `json:"headers,omitempty" doc:"values for the handler, 8 KiB in total"`
	FairnessKey      string            `json:"fairness_key,omitempty" maxLength:"100" doc:"owner of the work; owners take turns"`
	Unique           string            `json:"unique,omitempty" maxLength:"1024" doc:"one running workflow with this key; another send returns 409, unless overlap says otherwise. Needs unique_for."`
	Overlap          string            `json:"overlap,omitempty" enum:"skip,queue,replace,cancel" doc:"if another workflow has the unique key: return 409; wait for its end, unless another one waits; wait, in place of another one of which no task has begun; or cancel it and wait. Defaults to skip."`
	UniqueFor        string            `json:"unique_for,omitempty" maxLength:"50" doc:"how long unique counts" example:"10m"`
	Priority         int               `json:"priority,omitempty" minimum:"0" maximum:"255" doc:"above 0: before all others of its queue"`
	MaxRetry         int               `json:"max_retry,omitempty" minimum:"0" maximum:"1000" doc:"attempts after the first"`
	Timeout          string            `json:"timeout,omitempty" maxLength:"50" doc:"time limit of an attempt" example:"30s"`
	Delay            string            `json:"delay,omitempty" cli:"in" maxLength:"50" doc:"time until its start" example:"5m"`
	StartAt          time.Time         `json:"start_at,omitzero" doc:"time of its start, instead of delay"`
	DeadlineAt       time.Time         `json:"deadline_at,omitzero" cli:"deadline" doc:"time at which the workflow is cancelled unless it has ended"`
	Retention        string            `json:"retention,omitempty" maxLength:"50" doc:"how long the result is kept; defaults to 24h" example:"1h"`
	FailureRetention string            `json:"failure_retention,omitempty" maxLength:"50" doc:"how long the workflow is kept after a failure; defaults to 168h" example:"72h"`
	External         bool              `json:"external,omitempty" cli:"external" doc:"no worker runs it: it is completed externally"`
}

// Retry has the corrected inputs of a retry.
type Retry struct {
	Inputs map[string]json.RawMessage `json:"inputs,omitempty" cli:"input" doc:"inputs by ID of the node, any JSON values; each node must run again"`

	DropSteps map[string][]string `json:"drop_steps,omitempty" cli:"drop-steps" doc:"names of stored steps to delete, by ID of a node that runs again; an empty list means all steps and the saved value"`
}

// RunAgain has the options of another run.
type RunAgain struct {
	From   string                     `json:"from,omitempty" cli:"from" maxLength:"4000" doc:"ID of a node: only it and the nodes that depend on it or have not succeeded run; defaults to all"`
	Inputs map[string]json.RawMessage `json:"inputs,omitempty" cli:"input" doc:"inputs by ID of the node, any JSON values; each node must run"`
}

// SelectWorkflows selects workflows to retry or to cancel.
type SelectWorkflows struct {
	Name     string            `json:"name,omitempty" cli:"name" maxLength:"200" doc:"only workflows with this name, or whose first or last task it is"`
	Contains string            `json:"contains,omitempty" maxLength:"200" doc:"only workflows with this text in their name or task names"`
	Labels   map[string]string `json:"labels,omitempty" cli:"label" doc:"only workflows with these labels"`
	After    time.Time         `json:"after,omitzero" cli:"since" doc:"only workflows that ended, or if they run were sent, at this time or later"`
	Before   time.Time         `json:"before,omitzero" doc:"only workflows that ended, or if they run were sent, before this time"`
	Limit    int               `json:"limit,omitempty" minimum:"1" maximum:"1000" doc:"workflows per call; defaults to 100"`
	Cursor   string            `json:"cursor,omitempty" maxLength:"300" doc:"next of the previous call"`
}

// ChangedWorkflows is the result of a call that retries or cancels workflows.
type ChangedWorkflows struct {
	Changed int          `json:"changed" doc:"number of workflows that were retried or cancelled"`
	Failed  []NotChanged `json:"failed" doc:"other workflows of the selection"`
	Next    string       `json:"next" doc:"cursor of the next call; empty after the last workflow"`
}

// NotChanged is a workflow that was not changed.
type NotChanged struct {
	ID   string `json:"id"`
	Code string `json:"code" doc:"code of the problem that a call for this workflow alone returns"`
}

// SentWorkflow is a workflow that was sent.
type SentWorkflow struct {
	ID string `json:"id"`
}

// Workflow is a workflow without its progress.
type Workflow struct {
	ID        string            `json:"id"`
	Name      string            `json:"name" doc:"its name or, without one, its tasks"`
	Labels    map[string]string `json:"labels,omitempty"`
	Origin    string            `json:"origin,omitempty" doc:"ID of the workflow that it runs again"`
	State     string            `json:"state" enum:"running,success,failure,revoked"`
	CreatedAt time.Time         `json:"created_at"`
	EndedAt   time.Time         `json:"ended_at,omitzero"`
}

// WorkflowOf returns a listed workflow as the API has it.
func WorkflowOf(w tasktype.Workflow) Workflow {
	return Workflow{w.ID, w.Name, w.Labels, w.Origin, string(w.State), w.Created.UTC(), utc(w.Ended)}
}

// ListedWorkflow is a workflow in a list.
type ListedWorkflow struct {
	Workflow
	Paused bool `json:"paused" doc:"no task begins until the workflow is resumed"`
	Queued bool `json:"queued" doc:"no task begins until an earlier workflow with the same unique key has ended"`
}

// WorkflowStatus is a workflow with its progress.
type WorkflowStatus struct {
	Workflow
	tasktype.Progress
}

// WorkflowResult is the outcome of a workflow, if it has one.
type WorkflowResult struct {
	Status  tasktype.Status   `json:"status" doc:"SUCCESS: result is set. FAILURE or REVOKED: failure is set. Other: not finished."`
	Result  json.RawMessage   `json:"result,omitempty"`
	Failure *tasktype.Failure `json:"failure,omitempty"`
}

// NodeValues is a node with its input and result, as far as they are kept.
type NodeValues struct {
	tasktype.Node
	Input   json.RawMessage   `json:"input,omitempty"`
	Result  json.RawMessage   `json:"result,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Steps   []tasktype.Step   `json:"steps,omitempty" doc:"stored steps of its handler"`
	Saved   *tasktype.Step    `json:"saved,omitempty" doc:"saved value of its handler"`
	Output  []tasktype.Chunk  `json:"output,omitempty" doc:"kept output of its handler"`
}

// Page is a list of which more may follow.
type Page[T any] struct {
	Data []T    `json:"data"`
	Next string `json:"next,omitempty" doc:"cursor of the next page; absent on the last page"`
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}
