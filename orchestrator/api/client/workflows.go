package client

import (
	"net/http"

	"muster/orchestrator/access"
	"muster/orchestrator/archive"
	"muster/tasks/api"
)

// ofTasks returns an operation of package tasks/api.
func ofTasks[In, Out any](o api.Operation[In, Out]) Operation[In, Out] {
	return Declare[In, Out](o.Method+" "+o.Path, o.ID, "workflows", o.Summary, Fails(o.Problems...), func(d *Declaration) {
		if o.Access == api.ReadValues { // they may contain secrets
			d.Roles = []access.Role{access.Operator}
		}
	})
}

// Operations of package tasks/api.
var (
	SendWorkflow      = ofTasks(api.SendWorkflow)
	ListWorkflows     = ofTasks(api.ListWorkflows)
	GetWorkflow       = ofTasks(api.GetWorkflow)
	GetWorkflowResult = ofTasks(api.GetWorkflowResult)
	ListNodes         = ofTasks(api.ListNodes)
	CancelWorkflow    = ofTasks(api.CancelWorkflow)
	PauseWorkflow     = ofTasks(api.PauseWorkflow)
	ResumeWorkflow    = ofTasks(api.ResumeWorkflow)
	RetryWorkflow     = ofTasks(api.RetryWorkflow)
	RunWorkflowAgain  = ofTasks(api.RunWorkflowAgain)
	RetryWorkflows    = ofTasks(api.RetryWorkflows)
	CancelWorkflows   = ofTasks(api.CancelWorkflows)
	RevokeWorkflow    = ofTasks(api.RevokeWorkflow)
	RevokeNode        = ofTasks(api.RevokeNode)
	DeleteWorkflow    = ofTasks(api.DeleteWorkflow)
	ListOpenTasks     = ofTasks(api.ListOpenTasks)
	CompleteNode      = ofTasks(api.CompleteNode)
	SignalWorkflow    = ofTasks(api.SignalWorkflow)
	FailNode          = ofTasks(api.FailNode)
	LeaseTasks        = ofTasks(api.LeaseTasks)
	BeatTask          = ofTasks(api.BeatTask)
	CompleteTask      = ofTasks(api.CompleteTask)
	FailTask          = ofTasks(api.FailTask)
	ListWorkers       = ofTasks(api.ListWorkers)
	ListTaskQueues    = ofTasks(api.ListTaskQueues)
	ListLimits        = ofTasks(api.ListLimits)
	ChangeLimit       = ofTasks(api.ChangeLimit)
	PauseTaskQueue    = ofTasks(api.PauseTaskQueue)
	ResumeTaskQueue   = ofTasks(api.ResumeTaskQueue)
	ListTasks         = ofTasks(api.ListTasks)
	ListTaskRates     = ofTasks(api.ListTaskRates)
	ListSchedules     = ofTasks(api.ListSchedules)
	PutSchedule       = ofTasks(api.PutSchedule)
	PauseSchedule     = ofTasks(api.PauseSchedule)
	ResumeSchedule    = ofTasks(api.ResumeSchedule)
	TriggerSchedule   = ofTasks(api.TriggerSchedule)
	BackfillSchedule  = ofTasks(api.BackfillSchedule)
	DeleteSchedule    = ofTasks(api.DeleteSchedule)
)

// Operations on archived workflows.
var (
	ListArchive = Declare[api.WorkflowFilter, Page[api.Workflow]]("GET /v1/archive", "listArchive", "workflows", "List archived workflows, the latest first", Fails(http.StatusNotFound))
	GetArchived = Declare[api.Reference, archive.ArchivedWorkflow]("GET /v1/archive/{id}", "getArchived", "workflows", "Get an archived workflow with its nodes and their values", Roles(access.Operator), Fails(http.StatusNotFound))
)
