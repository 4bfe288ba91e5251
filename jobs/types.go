package jobs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"muster/jobs/pipeline"
)

// Status is the state of a job.
type Status string

// The states of a job. The last three are terminal: they never change.
const (
	Created    Status = "created"    // not begun: it waits for its time, for other jobs or for a worker
	Processing Status = "processing" // its first stage has begun
	Completed  Status = "completed"
	Failed     Status = "failed"
	Cancelled  Status = "cancelled"
)

// Statuses are all states of a job.
var Statuses = []Status{Created, Processing, Completed, Failed, Cancelled}

// Open are the states of a job that has not ended.
var Open = []Status{Created, Processing}

// Terminal reports whether a job in this state has ended.
func (s Status) Terminal() bool { return s == Completed || s == Failed || s == Cancelled }

// StageStatus is the state of a stage of a job.
type StageStatus string

// The states of a stage.
const (
	StagePending    StageStatus = "pending"
	StageProcessing StageStatus = "processing"
	StageCompleted  StageStatus = "completed"
	StageFailed     StageStatus = "failed"
	StageCancelled  StageStatus = "cancelled"
)

// ItemStatus is the state of an item.
type ItemStatus string

// The states of an item.
const (
	ItemPending    ItemStatus = "pending"
	ItemValidating ItemStatus = "validating" // an agent works on it
	ItemIntegrated ItemStatus = "integrated"
	ItemRejected   ItemStatus = "rejected"
	ItemFailed     ItemStatus = "failed"
	ItemReview     ItemStatus = "review" // failed for the last time, and waits for a person to decide
)

// ItemStatuses are all states of an item.
var ItemStatuses = []ItemStatus{ItemPending, ItemValidating, ItemIntegrated, ItemRejected, ItemFailed, ItemReview}

// KindPipeline is the kind of all jobs.
const KindPipeline = "pipeline"

// Errors that callers branch on.
var (
	ErrNotFound   = errors.New("no such job")
	ErrNoItem     = errors.New("no such item")
	ErrStale      = errors.New("the job has changed since this version; read it again")
	ErrTerminal   = errors.New("the job has ended")
	ErrLeaseLost  = errors.New("the assignment was lost: its lease or deadline has passed, or the job has ended")
	ErrMismatch   = errors.New("the Idempotency-Key was used with another request")
	ErrExists     = errors.New("there is a job with the same prompt, document, context and pipeline")
	ErrNotEnded   = errors.New("the job has not ended; cancel it first")
	ErrStageEnded = errors.New("the stage has ended")
	ErrNotReview  = errors.New("the item does not wait for a decision")
)

// A FieldError is a value of a request that cannot be used.
type FieldError struct {
	Field string // path from the request, as in context.customer
	Why   string // the problem and the remedy
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Why }

func bad(field, format string, args ...any) error {
	return &FieldError{Field: field, Why: fmt.Sprintf(format, args...)}
}

// Document is a file that a job is about.
type Document struct {
	Name   string `json:"name"`   // as the user named it, without folders
	Hash   string `json:"sha256"` // of its content; its name in the folder of documents
	Size   int64  `json:"size"`
	Type   string `json:"type,omitempty"`   // media type
	Source string `json:"source,omitempty"` // path or URL that it was read from
}

// The effects of an incomplete dependency on a job.
const (
	OnFailureCancel = "cancel"
	OnFailureRun    = "run"
)

// The actions of Create if the same work was requested before.
const (
	DedupeAllow  = "allow"  // creates another job
	DedupeJoin   = "join"   // returns the job that there is, unless it failed or was cancelled
	DedupeReject = "reject" // returns ErrExists
)

// Request describes a job to create.
type Request struct {
	Pipeline   string          // Defaults to pipeline.Default.
	Prompt     string          // Required.
	Document   *Document       // stored already. Defaults to none.
	Context    json.RawMessage // a JSON object. Defaults to {}.
	Priority   int             // from -100 to 100; a step is worth a minute of waiting. Defaults to 0.
	Labels     []string        // for people and lists. Defaults to none.
	After      []string        // jobs that must have ended before it begins. Defaults to none.
	OnFailure  string          // OnFailureCancel or OnFailureRun. Defaults to cancel.
	At         time.Time       // when it begins. Defaults to now.
	StuckAfter time.Duration   // Defaults to the pipeline's.
	VersionOf  string          // the job whose next version it is. Defaults to none.
	Dedupe     string          // DedupeAllow, DedupeJoin or DedupeReject. Defaults to the setting jobs.dedupe.

	IdempotencyKey string // for 24 hours, the same key is the same job. Defaults to none.
}

// Stage is a stage of a job.
type Stage struct {
	Name        string      `json:"name"`
	Role        string      `json:"role,omitempty"`
	Task        string      `json:"task,omitempty"`
	Takes       string      `json:"takes"`
	Status      StageStatus `json:"status"`
	Attempts    int         `json:"attempts,omitempty"` // failed attempts of a stage that takes the job
	Error       string      `json:"error,omitempty"`    // of the last attempt that failed
	Agent       string      `json:"agent,omitempty"`    // of a stage that takes the job: who works on it
	Pending     int64       `json:"pending"`            // items that wait for this stage
	Processing  int64       `json:"processing"`         // items that agents work on
	CompletedAt time.Time   `json:"completed_at,omitzero"`
	// Result is the result of a stage that takes the job. Lists of jobs leave it out.
	Result json.RawMessage `json:"result,omitempty"`
}

// Counts are the items of a job by state.
type Counts struct {
	Total      int64 `json:"total"`
	Pending    int64 `json:"pending"`
	Validating int64 `json:"validating"`
	Integrated int64 `json:"integrated"`
	Rejected   int64 `json:"rejected"`
	Failed     int64 `json:"failed"`
	Review     int64 `json:"review"`
}

// Of returns the counter of a state.
func (c *Counts) Of(state ItemStatus) *int64 {
	return map[ItemStatus]*int64{
		ItemPending: &c.Pending, ItemValidating: &c.Validating, ItemIntegrated: &c.Integrated,
		ItemRejected: &c.Rejected, ItemFailed: &c.Failed, ItemReview: &c.Review,
	}[state]
}

// Processed is how many items have reached a final state.
func (c Counts) Processed() int64 { return c.Integrated + c.Rejected + c.Failed }

// Job is a job with the state of its stages and items.
type Job struct {
	ID           string                      `json:"id"`
	Kind         string                      `json:"kind"`
	Name         string                      `json:"name"` // of the pipeline
	Status       Status                      `json:"status"`
	Version      int64                       `json:"version"`          // moves with each change of the job itself; for Edit
	Prompt       string                      `json:"prompt,omitempty"` // in lists, the beginning of one above MaxInline
	Document     *Document                   `json:"document,omitempty"`
	Context      json.RawMessage             `json:"context,omitempty"` // lists leave out one above MaxInline
	Priority     int                         `json:"priority"`
	Labels       []string                    `json:"labels,omitempty"`
	Stages       []Stage                     `json:"stages,omitempty"`
	Items        Counts                      `json:"items"`
	Usage        map[string]int64            `json:"usage,omitempty"`          // totals, as agents reported them
	AgentUsage   map[string]map[string]int64 `json:"usage_by_agent,omitempty"` // by agent; "assignments" counts the assignments that it completed
	CreatedAt    time.Time                   `json:"created_at"`
	UpdatedAt    time.Time                   `json:"updated_at"`
	StartedAt    time.Time                   `json:"started_at,omitzero"`
	CompletedAt  time.Time                   `json:"completed_at,omitzero"`
	ErrorMessage string                      `json:"error_message,omitempty"`
	ErrorDetails json.RawMessage             `json:"error_details,omitempty"`
	Waiting      string                      `json:"waiting,omitempty"` // why nothing happens, as in "no agent of role creator"
	After        []string                    `json:"after,omitempty"`
	OnFailure    string                      `json:"on_failure,omitempty"`
	At           time.Time                   `json:"at,omitzero"`
	VersionOf    string                      `json:"version_of,omitempty"` // the job whose next version it is
	Generation   int                         `json:"generation"`           // 1, and one more than the job that it is the next version of
	Recoveries   int                         `json:"recoveries,omitempty"` // how often it was stuck and recovered
	Paused       bool                        `json:"paused,omitempty"`     // no agent gets its work
	StuckAfter   time.Duration               `json:"-"`
	Timeout      time.Duration               `json:"-"`
	Pipeline     *pipeline.Pipeline          `json:"-"` // as it was when the job was created
}

// Progress is how far a job is.
type Progress struct {
	JobID          string  `json:"job_id"`
	Kind           string  `json:"kind"`
	Status         Status  `json:"status"`
	Stages         []Stage `json:"stages,omitempty"`
	Items          Counts  `json:"items"`
	Percent        float64 `json:"progress_percent"`
	ElapsedSeconds float64 `json:"elapsed_seconds"`
	PerMinute      float64 `json:"items_per_minute"` // since it began
	// ETASeconds is how long the rest will take at the pace so far; nil while no item has ended.
	ETASeconds *float64 `json:"eta_seconds"`
	Waiting    string   `json:"waiting,omitempty"`
	Stuck      *Stuck   `json:"stuck,omitempty"`
}

// Stuck is a job without progress for longer than its threshold.
type Stuck struct {
	JobID      string    `json:"job_id"`
	Name       string    `json:"name"`
	Stage      string    `json:"stage"`  // with outstanding work; several are joined with a comma
	Reason     string    `json:"reason"` // the cause, as far as it is known
	Since      time.Time `json:"since"`  // of the last progress
	Recoveries int       `json:"recoveries"`
}

// NewItem is an item that an agent emits.
type NewItem struct {
	Key               string          `json:"key" minLength:"1" maxLength:"512" doc:"unique in its job; emitting it again changes nothing" example:"req-17"`
	Text              string          `json:"text" maxLength:"1000000"`
	Name              string          `json:"name,omitempty" maxLength:"10000"`
	Type              string          `json:"type,omitempty" maxLength:"1000"`
	SourceDocument    string          `json:"source_document,omitempty" maxLength:"10000"`
	SourceLocation    string          `json:"source_location,omitempty" maxLength:"10000"`
	Labels            map[string]bool `json:"labels,omitzero" maxProperties:"100" doc:"labels that the pipeline declares"` // each of them, in items that were read
	ResearchNotes     string          `json:"research_notes,omitempty" maxLength:"1000000"`
	Citations         []string        `json:"citations,omitzero" maxItems:"10000" maxLength:"10000"`
	MentionedObjects  []string        `json:"mentioned_objects,omitzero" maxItems:"10000" maxLength:"10000"`
	MentionedMessages []string        `json:"mentioned_messages,omitzero" maxItems:"10000" maxLength:"10000"`
	Confidence        *float64        `json:"confidence_score,omitempty" minimum:"0" maximum:"1"`
	ExternalID        string          `json:"external_id,omitempty" maxLength:"1000" doc:"where it was integrated"`
	Priority          string          `json:"priority,omitempty" enum:"high,medium,low" doc:"Defaults to medium."`
	Data              json.RawMessage `json:"data,omitempty" doc:"anything else"`
}

// Item is a unit of a job.
type Item struct {
	NewItem

	ID              string     `json:"id,omitempty"` // UUID, made of the job and the key
	JobID           string     `json:"job_id,omitempty"`
	Status          ItemStatus `json:"status,omitempty"`
	Stage           string     `json:"stage,omitempty"`       // that it is in, or that ended it
	Agent           string     `json:"agent,omitempty"`       // that works on it, or that ended it
	ReviewedBy      string     `json:"reviewed_by,omitempty"` // who decided on it in its review
	RejectionReason string     `json:"rejection_reason,omitempty"`
	RetryCount      int        `json:"retry_count"`
	LastError       string     `json:"last_error,omitempty"`
	CreatedAt       time.Time  `json:"created_at,omitzero"`
	UpdatedAt       time.Time  `json:"updated_at,omitzero"`
}

// Summary returns the subject of an item, or the reason of its failure.
func (it Item) Summary() string {
	switch text := cmp.Or(it.Name, it.Text); it.Status {
	case ItemRejected:
		return cmp.Or(it.RejectionReason, text)
	case ItemFailed, ItemReview:
		return cmp.Or(it.LastError, text)
	default:
		return text
	}
}

// Filter selects the jobs that List returns. The zero value selects all.
type Filter struct {
	Name     string            // of the pipeline
	Statuses []Status          // any of these
	Context  map[string]string // values of declared keys of the context
	Label    string
	Cursor   string // next of the page before
	Offset   int    // jobs to leave out, up to MaxOffset; for callers that count pages
	Limit    int    // from 1 to 1000; 0 means 50
	NoUsage  bool   // omit the usage
}

// Page is a page of jobs, the newest first.
type Page struct {
	Jobs  []Job  `json:"jobs"`
	Total int64  `json:"total"`          // of all pages; -1 if that would take a scan
	Next  string `json:"next,omitempty"` // cursor of the next page; empty on the last
}

// ItemFilter selects items of a job.
type ItemFilter struct {
	Status ItemStatus // empty: any
	Cursor string
	Limit  int // from 1 to 1000; 0 means 100
	Looks  int // maximum number of items to examine for the state; 0 means 20,000
}

// ItemPage is a page of items, in the order of their keys within some hundreds of items, and in none beyond. A page
// can be short, or empty, although others follow it.
type ItemPage struct {
	Items []Item `json:"items"`
	Next  string `json:"next,omitempty"`
}

// Edit changes a job. Nil fields stay as they are.
type Edit struct {
	Priority *int
	Context  json.RawMessage
	Labels   *[]string
}

// Decision is the decision of a person on an item in review.
type Decision struct {
	Accept bool            // the item goes to its next stage, or is integrated by its last one; else it is rejected
	Reason string          // needed to reject
	By     string          // who decided
	Patch  json.RawMessage // fields of the item to correct, as in an Item in JSON. Defaults to none.
}

// Day is the number of jobs created and ended on a day, in UTC.
type Day struct {
	Date      string `json:"date"`
	Created   int64  `json:"jobs_created"`
	Completed int64  `json:"jobs_completed"`
	Failed    int64  `json:"jobs_failed"`
	Cancelled int64  `json:"jobs_cancelled"`
}

// Difference is how an item differs between two jobs.
type Difference struct {
	Key    string `json:"key"`
	Change string `json:"change"` // new, gone, changed or same
	A      *Item  `json:"a,omitempty"`
	B      *Item  `json:"b,omitempty"`
}
