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
	if how.From != "" {
		return w.failed(fmt.Errorf("%w: FromNode is an option of RunAgain", engine.ErrRetryInput), "retry")
	}
	return w.failed(w.client.eng.Operator.Retry(ctx, w.ref, &how), "retry")
}

// RunAgain sends a new workflow with the graph, the inputs, the name, labels, headers and retention of this one, which must have ended, and
// returns its handle. The [tasktype.Workflow] of the new one has the Origin. Of the options of Send, a delay, an [ID], a [Deadline] and a unique key do not
// apply: the tasks run at once.
//
// All tasks run, or with [FromNode] some. [Task.RetryInput] and [RetryInputJSON] change inputs. Inputs of more than 4 KiB together are deleted when their tasks
// have succeeded: give these again. Stored steps are not copied for tasks that run.
//
// It returns [ErrNotFound] for an unknown or expired workflow, [ErrRunning], [ErrDamaged], and [ErrInvalid] for an invalid option or a missing input. A second call
// sends a second workflow.
func (w *Workflow) RunAgain(ctx context.Context, opts ...RetryOption) (*Workflow, error) {
	var how engine.Rerun
	for _, opt := range opts {
		if err := opt(&how); err != nil {
			return nil, w.failed(err, "run again")
		}
	}
	ref, err := w.client.eng.Operator.RunAgain(ctx, w.ref, &how)
	if err != nil {
		return nil, w.failed(err, "run again")
	}
	return w.client.Workflow(ref), nil
}

// RunAgain is [Workflow.RunAgain] with a handle of the same type.
func (r *Run[O]) RunAgain(ctx context.Context, opts ...RetryOption) (*Run[O], error) {
	w, err := r.Workflow.RunAgain(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return &Run[O]{Workflow: *w}, nil
}

// FromNode is an option of [Workflow.RunAgain]: only this node runs, and the nodes that depend on it or have no success. The others keep their results. The
// node can be in a plan that ran. A member of a map that has succeeded needs a [Task.RetryInput]: its input is not kept.
func FromNode(node string) RetryOption {
	return func(how *engine.Rerun) error {
		how.From = node
		return nil
	}
}

// RetryAll retries the failed workflows that f selects, as [Workflow.Retry] does, and returns how many it has retried. The State
// of f is empty or failure; its Limit is ignored. RetryAll continues after a workflow that cannot be retried, and returns the first
// 20 errors, joined. It reads the index in pages: its memory does not depend on the number of workflows. Workflows that fail
// again during the call are not retried twice. [Inspector.Workflows] says which workflows the index has.
func (c *Client) RetryAll(ctx context.Context, f tasktype.WorkflowFilter) (retried int, err error) {
	retried, err = c.eng.Inspector.ChangeAll(ctx, f, tasktype.WorkflowFailed, func(ctx context.Context, ref string) error { return c.Workflow(ref).Retry(ctx) })
	return retried, wrap(err, "retry workflows")
}

// RetryOption is an option of [Workflow.Retry] and [Workflow.RunAgain]: [Task.RetryInput], [RetryInputJSON], [DropSteps] and [FromNode].
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
func (t Task[I, O]) RetryInput(node string, input I) RetryOption {
	return func(how *engine.Rerun) error {
		raw, err := marshal(input)
		if err != nil {
			return fmt.Errorf("%w: input of node %s does not marshal to JSON: %w", engine.ErrRetryInput, node, err)
		}
		how.Inputs = append(how.Inputs, engine.Corrected{Node: node, Task: t.name, Input: engine.Bound(t.opts.Bind, raw)})
		return nil
	}
}

// RetryInputJSON is [Task.RetryInput] with the whole input in JSON, as [Workflow.Node] returns it. If the worker cannot decode the input, the node fails again.
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
