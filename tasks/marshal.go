package tasks

import "errors"

var (
	errSignature = errors.New("a Signature cannot be encoded as JSON; send it, or return it from a handler bound with HandlePlan")
	errResult    = errors.New("a handle of a workflow has no JSON: keep its ID, and use Attach with that")
)

// MarshalJSON returns an error: a signature can be sent, but cannot be an input or a result.
func (s Signature[O]) MarshalJSON() ([]byte, error) { return nil, errSignature }

// UnmarshalJSON returns the same error as MarshalJSON.
func (s *Signature[O]) UnmarshalJSON([]byte) error { return errSignature }

// MarshalJSON returns an error: store the ID, and make a handle from it with [Attach].
func (w Workflow) MarshalJSON() ([]byte, error) { return nil, errResult }

// UnmarshalJSON returns the same error as MarshalJSON.
func (w *Workflow) UnmarshalJSON([]byte) error { return errResult }
