package tasktype

import (
	"encoding/json"
	"errors"
	"fmt"
)

// A Failure is the reason why a node has no value. It is the error of a Wait, and the input of handlers of failures.
type Failure struct {
	Task     string          `json:"task"`            // name of the failed task; empty if the workflow failed as a whole
	Node     string          `json:"node"`            // ID of its node in the workflow
	Attempts int             `json:"attempts"`        // number of attempts, including the last one
	Message  string          `json:"message"`         // message of the last error, truncated to 4096 bytes
	Code     string          `json:"code"`            // a code below, or one chosen by the handler
	Input    json.RawMessage `json:"input,omitempty"` // input of the task, only in the input of a handler of the failure
	Cause    error           `json:"-"`               // error of a node, only in an outcome that the handler of a batch returns
}

// ErrRevoked matches the failure of a workflow or task that was revoked, or that expired before its start.
var ErrRevoked = errors.New("revoked")

// ErrCancelled matches the failure of a task that was cancelled with its workflow, by a client or by the deadline.
var ErrCancelled = errors.New("cancelled")

// ErrDeadline matches the failure of a task whose workflow was cancelled because its deadline has passed. It is an
// [ErrCancelled].
var ErrDeadline = fmt.Errorf("%w: the deadline of the workflow has passed", ErrCancelled)

// Error returns the message, with the name of the task and the number of attempts.
func (f *Failure) Error() string {
	switch {
	case f.Task == "":
		return "workflow failed: " + f.Message
	case f.Attempts > 1:
		return fmt.Sprintf("task %s failed after %d attempts: %s", f.Task, f.Attempts, f.Message)
	}
	return fmt.Sprintf("task %s failed: %s", f.Task, f.Message)
}

// Is reports whether target is [ErrRevoked] and f has the code of a task that was revoked or has expired, or target is
// [ErrCancelled] or [ErrDeadline] and f has the code of a task that was cancelled.
func (f *Failure) Is(target error) bool {
	return target == ErrCancelled && (f.Code == CodeCancelled || f.Code == CodeDeadline) || target == ErrDeadline && f.Code == CodeDeadline ||
		target == ErrRevoked && (f.Code == CodeRevoked || f.Code == CodeExpired)
}

// Failure codes. Handlers may use other codes.
const (
	CodeError        = "error"        // the handler returned an error
	CodePermanent    = "permanent"    // the handler returned a permanent error
	CodeTimeout      = "timeout"      // the soft time limit was exceeded
	CodeHardTimeout  = "hard_timeout" // the hard time limit was exceeded
	CodePanic        = "panic"        // the handler panicked
	CodeExpired      = "expired"      // the node expired before its start
	CodeRevoked      = "revoked"      // a client or a failed group revoked it
	CodeCancelled    = "cancelled"    // the workflow was cancelled before it succeeded
	CodeDeadline     = "deadline"     // the deadline of the workflow passed before it succeeded
	CodeLost         = "lost"         // too many workers died while it ran
	CodeInput        = "input"        // the input cannot be decoded
	CodeResult       = "result"       // the result cannot be encoded or is too large
	CodeUnregistered = "unregistered" // no worker of the queue has a handler
	CodePlan         = "plan"         // the plan is invalid
	CodeDamaged      = "damaged"      // the data of the workflow in Redis is unreadable
)
