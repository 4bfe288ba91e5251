package tasks

import (
	"context"
	"encoding/json"
	"fmt"
)

// Signal completes an external task of a workflow with the value out. The sender needs the ID of the workflow, but no token. See
// [Workflow.Signal].
func Signal[I, O any](ctx context.Context, c *Client, id string, t Task[I, O], out O) error {
	value, err := marshal(out)
	if err != nil {
		return fmt.Errorf("encode signal for task %s as JSON: %w", t.name, err)
	}
	return c.Workflow(id).Signal(ctx, t.name, value)
}

// Signal completes a task of the workflow that waits for an external result, by the name of the task. value is the result in JSON,
// of at most 16 MiB; whether it has the type of the task is not checked: the function [Signal] does.
//
// A signal may come early: if no node of the task waits, the workflow keeps the signal, and the next node of the task that opens
// receives it. So a chain of three nodes receives three signals in the order in which they were sent. If several nodes wait,
// the first by node ID receives it. Kept signals are deleted with the workflow. A signal for a task of the workflow that is
// declared neither with [External] nor with [Choice] is [ErrInvalid] unless one of its nodes waits because of [ResultPending].
//
// Once Signal has returned nil, the signal is stored in Redis, and is delivered once even if all processes are killed. It
// returns [ErrInvalid] for a value or a name that cannot be sent, [ErrNotFound], [ErrEnded] or [ErrFull].
func (w *Workflow) Signal(ctx context.Context, task string, value json.RawMessage) error {
	return wrap(w.client.eng.Completer.Signal(ctx, w.ref, task, value), "signal task %s of workflow %s", task, w.ID())
}
