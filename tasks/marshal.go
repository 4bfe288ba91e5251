package tasks

import "errors"

var (
	errSignature = errors.New("a Signature has no JSON: send it, or answer with it from a handler that HandlePlan binds")
	errResult    = errors.New("an AsyncResult has no JSON: keep its ID, and use Attach with that")
)

// MarshalJSON returns an error: work is sent, and is no value of a task.
func (s Signature[O]) MarshalJSON() ([]byte, error) { return nil, errSignature }

// UnmarshalJSON returns an error, as MarshalJSON does.
func (s *Signature[O]) UnmarshalJSON([]byte) error { return errSignature }

// MarshalJSON returns an error: what can be stored is the ID, from which [Attach] makes a handle.
func (r AsyncResult[O]) MarshalJSON() ([]byte, error) { return nil, errResult }

// UnmarshalJSON returns an error, as MarshalJSON does.
func (r *AsyncResult[O]) UnmarshalJSON([]byte) error { return errResult }
