package tasks

import (
	"context"
	"encoding/json"
	"fmt"

	"muster/tasks/internal/engine"
	"muster/tasks/tasktype"
)

// Retry runs the tasks of the ended workflow again that have failed, were revoked or were skipped. Tasks that have succeeded
// keep their values, with one exception: a task that runs on failures or outcomes of tasks that run again, as tasks of
// [Signature.Rescue], [OnError] and receivers of [Settle], and a task that depends on one of these, starts
// anew. So after Retry the workflow is in the state in which these tasks have not begun.
//
// The attempts of a task start at 1 again. Tasks that can run at once do so without their [In]; [At] and [Expires] apply. A
// task that has returned a plan does not run again unless its input changes: the failed tasks of the plan do. A step of
// [Compensate] that was undone runs again, and so do the tasks that depend on it. A unique key that no other workflow has taken blocks again for the rest of its time.
//
// Retry needs no worker. It is possible until the retention of the failure is over; see [FailureRetention]. It returns
// [ErrNotFound] for an unknown workflow, [ErrRunning] for one that runs, [ErrEnded] for one with the status SUCCESS unless
// it was cancelled, [ErrRevoked] for one that [Workflow.Revoke] stopped, [ErrDamaged], [ErrCompensated] if a step would run again whose compensation has failed, and [ErrInvalid] for an invalid option. Of several calls at once, one has
// an effect and the others return ErrRunning.
func (w *Workflow) Retry(ctx context.Context, opts ...RetryOption) error {
	var how engine.Rerun
	for _, opt := range opts {
		if err := opt(&how); err != nil {
			return w.failed(err, "retry")
		}
	}
	return w.failed(w.client.eng.Operator.Retry(ctx, w.ref, &how), "retry")
}

// RetryAll retries the failed workflows that f selects, as [Workflow.Retry] does, and returns how many it has retried. The State
// of f is empty or failure; its Limit is ignored. RetryAll continues after a workflow that cannot be retried, and returns the first
// 20 errors, joined. It reads the index in pages: its memory does not depend on the number of workflows. Workflows that fail
// again during the call are not retried twice. [Inspector.Workflows] says which workflows the index has.
func (c *Client) RetryAll(ctx context.Context, f tasktype.WorkflowFilter) (retried int, err error) {
	retried, err = c.eng.Inspector.RetryAll(ctx, f, func(ctx context.Context, ref string) error { return c.Workflow(ref).Retry(ctx) })
	return retried, wrap(err, "retry workflows")
}

// RetryOption is an option of [Workflow.Retry]: [RetryInput], [RetryInputJSON] and [DropSteps].
type RetryOption func(*engine.Rerun) error

// DropSteps lets a node that runs again begin without the stored values of these steps or, without names, of all its steps and without
// its saved value; see [Step] and [Save]. Without the option, Retry keeps them unless the input of the node depends on tasks that run again.
func DropSteps(node string, names ...string) RetryOption {
	return func(how *engine.Rerun) error {
		how.Drop = append(how.Drop, engine.DropSteps{Node: node, Names: names})
		return nil
	}
}

// RetryInput gives a node that runs again another input. The node, as [Workflow.Nodes] lists it, must be of task t; without a
// node, it is the only node of t that has failed. If the workflow uses a [Bind] of the task, the second half of the input must
// be the bound one; t may also be the bound task.
func RetryInput[I, O any](t Task[I, O], node string, input I) RetryOption {
	return func(how *engine.Rerun) error {
		raw, err := marshal(input)
		if err != nil {
			return fmt.Errorf("%w: input of node %s does not marshal to JSON: %w", engine.ErrRetryInput, node, err)
		}
		how.Inputs = append(how.Inputs, engine.Corrected{Node: node, Task: t.name, Input: engine.Bound(t.opts.Bind, raw)})
		return nil
	}
}

// RetryInputJSON is [RetryInput] with the whole input in JSON, as [Workflow.Node] returns it. If the worker cannot decode the input, the node fails again.
func RetryInputJSON(node string, input json.RawMessage) RetryOption {
	return func(how *engine.Rerun) error {
		switch {
		case node == "":
			return fmt.Errorf("%w: the node of an input is missing", engine.ErrRetryInput)
		case !json.Valid(input):
			return fmt.Errorf("%w: input of node %s: it is not JSON", engine.ErrRetryInput, node)
		}
		how.Inputs = append(how.Inputs, engine.Corrected{Node: node, Input: input})
		return nil
	}
}
