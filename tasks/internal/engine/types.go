// Package engine sends workflows and runs their nodes.
//
// A send compiles a signature to a graph. One script stores the graph and puts the nodes that can run on ready lists. A
// wake-task in asynq tells a worker that there are ready nodes. A slot of the worker takes them in batches and runs
// them; one script stores the results of a batch and takes the next one. Redis accepts results only while the batch is
// leased to the worker under its id. The agenda has the steps that a process was told to take, until they are taken.
//
// docs/engine.md describes all of it.
package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// The errors of the engine.
var (
	ErrUnknown   = store.ErrUnknown
	ErrDuplicate = errors.New("a workflow with this id or unique key exists")
	ErrShutdown  = errors.New("worker stops")
	errRevoked   = errors.New("workflow was revoked")

	errUnreadable = errors.New("cannot be read")
	errNoValue    = errors.New("has no value")
)

// The codes of failures.
const (
	CodeError        = "error"
	CodePermanent    = "permanent"
	CodeTimeout      = "timeout"
	CodeHardTimeout  = "hard_timeout"
	CodePanic        = "panic"
	CodeExpired      = "expired"
	CodeRevoked      = "revoked"
	CodeLost         = "lost"
	CodeInput        = "input"
	CodeResult       = "result"
	CodeUnregistered = "unregistered"
	CodePlan         = "plan"
	CodeArchived     = "archived"
	CodeVersion      = "version"
	CodeDamaged      = "damaged"
)

// Failure is why a node has no value.
type Failure = store.Failure

// Status is the state of a node or a workflow.
type Status string

// The states.
const (
	Pending Status = "PENDING"
	Started Status = "STARTED"
	Retry   Status = "RETRY"
	Success Status = "SUCCESS"
	Failed  Status = "FAILURE"
	Revoked Status = "REVOKED"
	Skipped Status = "SKIPPED"
)

// Terminal reports whether nothing follows s.
func (s Status) Terminal() bool {
	return s == Success || s == Failed || s == Revoked || s == Skipped
}

// Progress is how far a workflow is.
type Progress struct {
	Status     Status `json:"status"`      // of the value it yields
	Done       int    `json:"done"`        // tasks that are terminal
	Total      int    `json:"total"`       // tasks known so far; maps and plans add to it
	ChunksDone int    `json:"chunks_done"` // members of maps that are terminal
	Chunks     int    `json:"chunks"`      // members of maps known so far
	Ended      bool   `json:"ended"`       // all tasks are terminal
}

// Info is what a handler can know about its run.
type Info struct {
	Workflow string // id of the workflow, the job id
	Node     string // id of the node in the workflow
	Task     string // name of the task
	Queue    string
	Priority int
	Attempt  int // 1 for the first
	Worker   string
	// Key is the same for every attempt of this node and of no other: an idempotency key.
	Key string
	// Headers are those that the workflow was sent with. They must not be changed.
	Headers map[string]string
}

// Handler runs the tasks of one name.
type Handler struct {
	Name string
	Opts *graph.Opts
	Run  func(ctx context.Context, input []byte) (Answer, error)
	Wrap []Middleware
}

// Middleware wraps a handler.
type Middleware func(ctx context.Context, info Info, next func(context.Context) error) error

// Use adds middleware inside of what h has.
func (h *Handler) Use(mw ...Middleware) *Handler {
	h.Wrap = append(h.Wrap[:len(h.Wrap):len(h.Wrap)], mw...)
	return h
}

// Answer is what a handler returned: a value as JSON, or the plan that takes its place.
type Answer struct {
	Value   json.RawMessage
	Plan    *graph.Sig
	Planned bool
}

// NodeInfo is what is known about one node.
type NodeInfo struct {
	ID       string    `json:"id"`
	Task     string    `json:"task"` // or what joins its parts, in parentheses
	Queue    string    `json:"queue,omitempty"`
	Status   Status    `json:"status"`
	Attempts int       `json:"attempts,omitempty"`
	Worker   string    `json:"worker,omitempty"`
	Started  time.Time `json:"started,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	Due      time.Time `json:"due,omitzero"`
	Failure  *Failure  `json:"failure,omitempty"`
	Message  string    `json:"message,omitempty"` // of the last failed attempt
	Waits    string    `json:"waits,omitempty"`   // why no live worker will run it; empty if one will
	Done     int       `json:"done,omitempty"`    // its own progress
	Total    int       `json:"total,omitempty"`
	Needs    []string  `json:"needs,omitempty"`  // nodes it comes after
	Within   string    `json:"within,omitempty"` // the map or the planned task it is part of
	Side     bool      `json:"side,omitempty"`   // whether the result does not depend on it
}

var names atomic.Int64

// WorkerName returns a name no other worker has.
func WorkerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	host = strings.Map(func(r rune) rune {
		if validName.MatchString(string(r)) {
			return r
		}
		return '_'
	}, host)
	return fmt.Sprintf("%s-%d-%d", host, os.Getpid(), names.Add(1))
}

var validName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,128}$`)

// ValidName says what is wrong with the name of a worker.
func ValidName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%q: use letters, digits and _ . : -", name)
	}
	return nil
}
