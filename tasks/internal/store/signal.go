package store

import (
	"context"
	"fmt"
)

// The limits of the signals that are kept for a task of a workflow.
const (
	MaxSignals     = 1000
	maxSignalBytes = 16 << 20 // of their values, beyond the first
)

// The results of [Tokens.Signal].
const (
	SignalKept    = "ok"
	SignalOpen    = "open" // a node of the task is open: the caller delivers the signal
	SignalFull    = "full"
	SignalNone    = "none"  // no node of the task is open, and the signal is not to be kept
	SignalEnded   = "ended" // the workflow has
	SignalUnknown = "unknown"
)

// Signal keeps a signal for a task of a workflow, without keep only if a node of the task is open. value is JSON without line
// breaks.
func (s Tokens) Signal(ctx context.Context, f Flow, task, id string, value []byte, keep bool) (string, error) {
	res, err := s.call(ctx, "signal", f.shard, f.Ref, task, id, value, MaxSignals, maxSignalBytes, keep)
	if err != nil {
		return "", fmt.Errorf("keep a signal: %w", err)
	}
	return text(res[0]), nil
}

// Signalled is a signal and the open node that it is for.
type Signalled struct {
	Node, ID string
	Value    []byte
}

// Signalled returns the next signal of a task that can be delivered; nil if there is none.
func (s Tokens) Signalled(ctx context.Context, f Flow, task string) (*Signalled, error) {
	res, err := s.call(ctx, "signalled", f.shard, f.Ref, task)
	if err != nil {
		return nil, fmt.Errorf("read a signal: %w", err)
	}
	if len(res) < 3 {
		return nil, nil
	}
	return &Signalled{text(res[0]), text(res[1]), []byte(text(res[2]))}, nil
}
