package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"muster/orchestrator/access"
	"muster/orchestrator/archive"
	"muster/tasks/api"
	"muster/tasks/workqueue"
)

// QueuePath is the path of an artifact queue.
type QueuePath struct {
	Queue string `path:"queue" cli:"queue=default" maxLength:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"the name of a queue" doc:"name of the queue" example:"default"`
}

// Enqueue is the input of EnqueueArtifact.
type Enqueue struct {
	QueuePath
	Body NewArtifact
}

// QueueRetry is the input of RetryItems.
type QueueRetry struct {
	QueuePath
	Body ItemRetry
}

// QueueChange is the input of PauseQueue and ResumeQueue.
type QueueChange struct {
	QueuePath
	Body *struct{} `nameHint:"Pause"`
}

// QueueForget is the input of ForgetItems.
type QueueForget struct {
	QueuePath
	Body ItemForget
}

// ItemForget selects ended items of a queue: IDs, EndedFor or both.
type ItemForget struct {
	IDs      []string `json:"ids,omitempty" cli:"args" maxItems:"1000" maxLength:"2048" doc:"items to delete; those that have not ended stay"`
	EndedFor string   `json:"ended_for,omitempty" cli:"ended-for" maxLength:"20" doc:"delete all items that ended longer ago than this duration" example:"168h"`
}

// ForgottenItems is the result of ForgetItems.
type ForgottenItems struct {
	Forgotten int `json:"forgotten" doc:"items that are no longer in the queue"`
}

// Operations on artifact queues; see also Client.Import.
var (
	GetQueue        = Declare[QueuePath, workqueue.Stats]("GET /v1/queues/{queue}", "getQueue", "queues", "Count the items of an artifact queue")
	EnqueueArtifact = Declare[Enqueue, EnqueuedArtifact]("POST /v1/queues/{queue}/items", "enqueue", "queues", "Add an artifact to a queue, unless it is in the queue")
	RetryItems      = Declare[QueueRetry, RetriedItems]("POST /v1/queues/{queue}/retry", "retryItems", "queues", "Put failed items of a queue back into it, with all their attempts")
	ForgetItems     = Declare[QueueForget, ForgottenItems]("POST /v1/queues/{queue}/forget", "forgetItems", "queues", "Delete ended items of a queue; they can be added again")
	DeleteQueue     = Declare[QueuePath, None]("DELETE /v1/queues/{queue}", "deleteQueue", "queues", "Delete an artifact queue with all its items", Fails(http.StatusNotFound, http.StatusConflict))
	PauseQueue      = Declare[QueueChange, PausedQueue]("POST /v1/queues/{queue}/pause", "pauseQueue", "queues", "Pause a queue: no process starts another item", Fails(http.StatusNotFound))
	ResumeQueue     = Declare[QueueChange, PausedQueue]("POST /v1/queues/{queue}/resume", "resumeQueue", "queues", "Resume a paused queue", Fails(http.StatusNotFound))
)

// NewArtifact is an artifact to add to a queue.
type NewArtifact struct {
	ID   string `json:"id" cli:"arg" minLength:"1" maxLength:"2048" doc:"unique in the queue" example:"doi:10.1000/1"`
	Data Object `json:"data,omitempty" doc:"an object, usually with url, and where they are known with type, size and sha256 of the content"`
}

// EnqueuedArtifact is the result of Enqueue.
type EnqueuedArtifact struct {
	ID      string `json:"id"`
	New     bool   `json:"new" doc:"false: the artifact was in the queue"`
	Warning string `json:"warning,omitempty" doc:"a likely mistake; the artifact was added nevertheless"`
}

// ImportReport counts the lines of an import.
type ImportReport struct {
	New       int          `json:"new"`
	Duplicate int          `json:"duplicate" doc:"artifacts that were in the queue"`
	Errors    int          `json:"errors" doc:"invalid lines, which were skipped"`
	Lines     int64        `json:"lines"`
	Problems  []ImportLine `json:"problems,omitempty" doc:"the first 1000 invalid lines and warnings"`
}

// ImportLine is a problem with a line of an import.
type ImportLine struct {
	Line    int64  `json:"line"`
	Message string `json:"message"`
	Warning bool   `json:"warning,omitempty" doc:"the artifact was added nevertheless"`
}

// ItemRetry selects failed items of a queue.
type ItemRetry struct {
	MaxRetried int  `json:"max_retried,omitempty" cli:"max-attempts=3" minimum:"0" maximum:"1000000" doc:"only items that were retried fewer times. Defaults to all."`
	DryRun     bool `json:"dry_run,omitempty" cli:"dry-run" doc:"only count them"`
}

// RetriedItems is the result of a retry.
type RetriedItems struct {
	Found   int          `json:"found"`
	Retried int          `json:"retried"`
	Left    int64        `json:"left" doc:"items that are still failed"`
	Items   []FailedItem `json:"items" doc:"the first 20"`
}

// FailedItem is an item that failed.
type FailedItem struct {
	ID   string `json:"id"`
	Note string `json:"note"`
}

// PausedQueue is the result of a pause or a resume.
type PausedQueue struct {
	Queue   string `json:"queue"`
	Paused  bool   `json:"paused"`
	Changed bool   `json:"changed" doc:"false: it was so before"`
}

// Import adds the artifacts of r to a queue: one JSON object with an ID per line, plain or gzip. limit is the number
// of artifacts to read; 0 means all. An interrupted import can be repeated: the artifacts already sent stay in the
// queue.
func (c *Client) Import(ctx context.Context, queue string, r io.Reader, limit int) (rep ImportReport, err error) {
	query := url.Values{}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	res, err := c.send(ctx, http.MethodPost, "/v1/queues/"+url.PathEscape(queue)+"/import", query, nil, "application/jsonl", r)
	if err != nil {
		return rep, err
	}
	return rep, c.decode(res, &rep)
}

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
