package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"time"

	"muster/tasks/internal/engine"
	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// Workflow is the handle of a workflow of any type: it reads and changes its state. It may be used by many goroutines at once.
type Workflow struct {
	client *Client
	ref    string // of the send; an id means the latest send with it
}

// Run is the handle of a workflow that yields an O.
type Run[O any] struct {
	Workflow
	sent *graph.Sig // for ValueOf; nil if it is not known
}

// Send stores s in Redis as a workflow and returns its handle. The tasks that can run at once are ready then. If Send
// returns no error the workflow runs, even if the sender dies. With [ErrDuplicate], the handle refers to the workflow
// with the same id or unique key; with other errors it is nil.
func (s Signature[O]) Send(ctx context.Context, c *Client, opts ...SendOption) (*Run[O], error) {
	ref, err := c.eng.Sender.Send(ctx, s.sig, collect(opts, SendOption.forSend))
	if err != nil && !errors.Is(err, ErrDuplicate) {
		return nil, fmt.Errorf("send workflow: %w", err)
	}
	if err != nil {
		return Attach[O](c, ref), fmt.Errorf("send workflow: %w", err)
	}
	return &Run[O]{Workflow{c, ref}, s.sig}, nil
}

// Do sends s and waits for its value: it is Send, then [Run.Wait]. The end of ctx ends the wait, not the workflow.
// Inside a handler it sends nothing and returns [ErrWaitInTask].
func (s Signature[O]) Do(ctx context.Context, c *Client, opts ...SendOption) (O, error) {
	var none O
	if engine.RunFrom(ctx) != nil {
		return none, ErrWaitInTask
	}
	run, err := s.Send(ctx, c, opts...)
	if err != nil {
		return none, err
	}
	return run.Wait(ctx)
}

// Workflow returns the handle of the latest workflow with this id. It does no I/O: if there is no such workflow, the methods of
// the handle return [ErrNotFound].
func (c *Client) Workflow(id string) *Workflow { return &Workflow{c, id} }

// Attach is [Client.Workflow] for a workflow that yields an O.
func Attach[O any](c *Client, id string) *Run[O] { return &Run[O]{Workflow: Workflow{c, id}} }

// ID returns the id of the workflow.
func (w *Workflow) ID() string { return store.IDOf(w.ref) }

// failed returns err with the operation on the workflow that has failed; nil for nil.
func (w *Workflow) failed(err error, operation string) error {
	return wrap(err, "%s workflow %s", operation, w.ID())
}

// Wait blocks until the workflow has its value or can no longer have one, and returns the value or
// a *[Failure]. It returns the first failure at once, while other tasks may still run. The end of ctx ends the wait,
// not the workflow. Inside a handler it returns [ErrWaitInTask].
func (r *Run[O]) Wait(ctx context.Context) (O, error) {
	var out O
	if engine.RunFrom(ctx) != nil {
		return out, ErrWaitInTask
	}
	raw, fail, err := r.client.eng.Results.Wait(ctx, r.ref)
	if err != nil {
		return out, fmt.Errorf("wait for workflow %s: %w%s", r.ID(), err, r.unfinished(ctx))
	}
	if fail != nil {
		return out, fail
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, fmt.Errorf("result of workflow %s is not a %s: %w", r.ID(), reflect.TypeFor[O](), err)
	}
	return out, nil
}

// ValueOf blocks until a part of the workflow has its value or can no longer have one, and returns the value or a
// *[Failure], about 100 ms later. r must come from Send, and part must be the signature that was sent or one
// that it was built from. A part that is used in several places is one node. For a part of a plan, and for a handle
// from [Attach], use [Workflow.NodeValue]. The end of ctx ends the wait, not the workflow. Inside a handler it returns
// [ErrWaitInTask].
//
// For this, a handle from Send keeps the signature in memory.
func ValueOf[P, O any](ctx context.Context, r *Run[O], part Signature[P]) (P, error) {
	var none P
	if r.sent == nil {
		return none, fmt.Errorf("value of %s: this handle of workflow %s is not from Send; use NodeValue with the id of the node, as Nodes lists it",
			part, r.ID())
	}
	i, ok := graph.Find(r.sent, part.sig)
	if !ok {
		return none, fmt.Errorf("value of %s: it is not a part of the signature that was sent as workflow %s; use NodeValue with the id of the node, as Nodes lists it",
			part, r.ID())
	}
	raw, err := r.NodeValue(ctx, strconv.Itoa(i))
	if err == nil {
		if err = json.Unmarshal(raw, &none); err != nil {
			err = fmt.Errorf("value of node %d of workflow %s is not a %s: %w", i, r.ID(), reflect.TypeFor[P](), err)
		}
	}
	return none, err
}

// NodeValue is [ValueOf] for the node with this id, as [Workflow.Nodes] lists it, and returns the value as JSON. It returns an
// error if the workflow has no such node yet, or did not need it, such as the task of an [OnError] whose signature has succeeded.
func (w *Workflow) NodeValue(ctx context.Context, node string) (json.RawMessage, error) {
	if engine.RunFrom(ctx) != nil {
		return nil, ErrWaitInTask
	}
	raw, fail, err := w.client.eng.Results.NodeValue(ctx, w.ref, node)
	if err != nil {
		return nil, fmt.Errorf("value of node %s of workflow %s: %w%s", node, w.ID(), err, w.unfinished(ctx))
	}
	if fail != nil {
		return nil, fail
	}
	return raw, nil
}

// Status returns the state of the workflow.
func (w *Workflow) Status(ctx context.Context) (tasktype.Status, error) {
	p, err := w.Progress(ctx)
	return p.Status, err
}

// Progress returns how many tasks of the workflow there are, and how many have ended.
func (w *Workflow) Progress(ctx context.Context) (tasktype.Progress, error) {
	p, err := w.client.eng.Results.Progress(ctx, w.ref)
	return p, w.failed(err, "progress of")
}

// Detail returns the workflow with its progress and its nodes, those in the order of its definition. It has ended once
// all its tasks have, and did so at the time of the last. It returns [ErrNotFound] for a workflow that never was, or whose
// results are no longer kept.
func (w *Workflow) Detail(ctx context.Context) (tasktype.WorkflowDetail, error) {
	d, err := w.client.eng.Inspector.Workflow(ctx, w.ref)
	return d, w.failed(err, "read")
}

// Info is Detail without the nodes, and costs the same however many there are. A workflow that has ended did so at
// the time of the task that yields its value; that is zero if this was skipped.
func (w *Workflow) Info(ctx context.Context) (tasktype.WorkflowDetail, error) {
	d, err := w.client.eng.Inspector.Summary(ctx, w.ref)
	return d, w.failed(err, "read")
}

// Nodes returns the nodes of the workflow in the order of its definition, with states and times. For a node that could
// run, but that no live worker can take, Waits has the reason.
func (w *Workflow) Nodes(ctx context.Context) ([]tasktype.Node, error) {
	nodes, err := w.client.eng.Inspector.Nodes(ctx, w.ref)
	return nodes, w.failed(err, "nodes of")
}

// Node returns a node of the workflow with its input and its attempts, however large the workflow is. It does not set fields
// that depend on other nodes: Needs and Side, and Waits unless the node waits for external completion. It returns
// [ErrNotFound].
//
// The input of a node that comes after others is their value. An input that the workflow was sent with is kept while
// its node has not ended, and when it fails. After success it is kept if all such inputs of the workflow have at most
// 4 KiB together.
func (w *Workflow) Node(ctx context.Context, node string) (tasktype.NodeDetail, error) {
	d, err := w.client.eng.Inspector.Node(ctx, w.ref, node)
	return d, wrap(err, "node %.100s of workflow %s", node, w.ID())
}

// Log returns the last log lines of the tasks of the workflow, the oldest first: those of programs with a [LogHandler]. It
// returns [ErrNotFound].
func (w *Workflow) Log(ctx context.Context) ([]tasktype.LogLine, error) {
	lines, err := w.client.eng.Inspector.Log(ctx, w.ref)
	return lines, w.failed(err, "read log of")
}

// Watch yields the progress of the workflow, and again whenever it has changed: at once when it has ended, about 100 ms
// after tasks have ended, were added, or have called [SetProgress], and within a second when the first task has started. The sequence ends when all
// tasks have ended, with a progress that has Ended set, or with an error, such as ctx.Err(). Percent never falls within a sequence,
// even if maps and plans add tasks or a task with [SetProgress] is retried.
func (w *Workflow) Watch(ctx context.Context) iter.Seq2[tasktype.Progress, error] {
	return func(yield func(tasktype.Progress, error) bool) {
		var last tasktype.Progress
		first, stopped := true, false
		err := w.client.eng.Results.Follow(ctx, w.ref, func(ref string) (bool, error) {
			p, err := w.client.eng.Results.Progress(ctx, ref)
			if err != nil {
				return false, err
			}
			p.Percent = max(p.Percent, last.Percent)
			if first || p != last {
				stopped = !yield(p, nil)
			}
			first, last = false, p
			return stopped || p.Ended, nil
		})
		if err != nil {
			yield(tasktype.Progress{}, fmt.Errorf("watch workflow %s: %w", w.ID(), err))
		}
	}
}

// WaitAll blocks until all tasks of the workflow have ended, also those for which Wait does not wait: callbacks, and the
// other tasks after a failure. It returns no error for tasks that failed. The end of ctx ends the wait, not the
// workflow. Inside a handler it returns [ErrWaitInTask].
func (w *Workflow) WaitAll(ctx context.Context) error {
	if engine.RunFrom(ctx) != nil {
		return ErrWaitInTask
	}
	for _, err := range w.Watch(ctx) {
		if err != nil {
			return fmt.Errorf("%w%s", err, w.unfinished(ctx))
		}
	}
	return nil
}

// unfinished returns why a workflow has not ended, as the end of the message of a wait that its context has ended; "" if the
// context has not ended or the reason cannot be read in time.
func (w *Workflow) unfinished(ctx context.Context) string {
	if ctx.Err() == nil {
		return ""
	}
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), 500*time.Millisecond)
	defer cancel()
	p, err := w.client.eng.Results.Progress(brief, w.ref)
	if err != nil || p.Total > 1000 { // the nodes are read as a whole
		return ""
	}
	nodes, err := w.client.eng.Inspector.Nodes(brief, w.ref)
	if err != nil {
		return ""
	}
	why := ""
	for i := range nodes {
		switch n := &nodes[i]; {
		case n.Waits != "":
			return fmt.Sprintf("; node %s (%s) waits: %s", n.ID, n.Task, n.Waits)
		case n.Status == tasktype.Started && n.Worker != "":
			why = fmt.Sprintf("; node %s (%s) is running", n.ID, n.Task)
		}
	}
	return why
}

// Revoke stops the workflow: tasks that wait never run, and the contexts of running handlers end. It
// needs no worker. For a workflow that has ended it does nothing.
func (w *Workflow) Revoke(ctx context.Context) error {
	return w.failed(w.client.eng.Operator.Revoke(ctx, w.ref), "revoke")
}

// RevokeNode stops one node. The nodes that need its value are skipped. It returns [ErrNotFound].
func (w *Workflow) RevokeNode(ctx context.Context, node string) error {
	return wrap(w.client.eng.Operator.Node(ctx, w.ref, node), "revoke node %s of workflow %s", node, w.ID())
}

// Cancel cancels the workflow: its tasks that have not begun fail with the code "cancelled". The contexts of
// running handlers are cancelled with the cause [ErrCancelled]; an attempt that returns an error fails with that code and is
// not repeated, one that succeeds counts. Failures are handled as always: tasks of [Signature.Rescue] and [OnError],
// and tasks that receive the outcomes of [Settle], run with their plans, but not the tasks that follow them. The
// status of the workflow is FAILURE, unless its last task handles failures.
//
// Cancel needs no worker, and does nothing for a workflow that was cancelled before. It returns [ErrNotFound], [ErrEnded] for a
// workflow that has ended otherwise, and [ErrRevoked] for one that was revoked. Revoke stops a workflow without
// handling failures, also a cancelled one.
func (w *Workflow) Cancel(ctx context.Context) error {
	return w.failed(w.client.eng.Operator.Cancel(ctx, w.ref), "cancel")
}

// Pause keeps the tasks of the workflow from starting until Resume. Running attempts continue and their
// results count; a task that a worker has taken in the last 20 ms may still start. Retries and delayed tasks that are due in the
// meantime start after Resume; [Expires] and the deadlines of external tasks apply. The progress of the workflow has Paused set.
//
// A paused workflow can be cancelled, which ends the pause, and revoked. A workflow whose last task ends during the pause has
// ended. Pause needs no worker, and does nothing for a paused workflow. It returns [ErrNotFound], [ErrEnded], and [ErrCancelled] or
// [ErrRevoked] for a workflow that was stopped.
func (w *Workflow) Pause(ctx context.Context) error {
	return w.failed(w.client.eng.Operator.Pause(ctx, w.ref, true), "pause")
}

// Resume ends a pause. It does nothing for a workflow that is not paused, and returns the errors of Pause.
func (w *Workflow) Resume(ctx context.Context) error {
	return w.failed(w.client.eng.Operator.Pause(ctx, w.ref, false), "resume")
}

// Delete deletes the results and states of the workflow before its retention is over. It returns [ErrRunning] if the
// workflow has not ended.
func (w *Workflow) Delete(ctx context.Context) error {
	return w.failed(w.client.eng.Operator.Forget(ctx, w.ref), "delete")
}

// Member is a member of a list that has ended: its index in the list, and its value or its failure.
type Member[O any] struct {
	Index int
	Outcome[O]
}

// AsCompleted yields the members of the list that the workflow yields, each about 100 ms after it has ended, and members that
// it reads together in the order in which they ended. For a task that returned a plan, the members are the members of the plan. The
// members of a [Settle] are outcomes, and all get a value. The sequence ends after the last member, even if the group has failed before, or with an error, such as ctx.Err(). If there is no list for another
// reason than a failed member, the error is the *[Failure] that Wait returns. Inside a handler it is [ErrWaitInTask].
func AsCompleted[O any](ctx context.Context, r *Run[[]O]) iter.Seq2[Member[O], error] {
	return func(yield func(Member[O], error) bool) {
		fail := func(err error) { yield(Member[O]{}, fmt.Errorf("members of workflow %s: %w", r.ID(), err)) }
		if engine.RunFrom(ctx) != nil {
			fail(ErrWaitInTask)
			return
		}
		var seen []bool
		failed, stopped := false, false
		err := r.client.eng.Results.Follow(ctx, r.ref, func(ref string) (bool, error) {
			found, lost, err := r.client.eng.Results.Members(ctx, ref, seen)
			if err != nil {
				return false, err
			}
			seen = append(seen, make([]bool, max(0, len(found.List)-len(seen)))...) // the number of members may not be known at first
			var fresh []int
			for i, m := range found.List {
				if !seen[i] && (m.Raw != nil || m.Failure != nil) {
					fresh = append(fresh, i)
				}
			}
			slices.SortStableFunc(fresh, func(a, b int) int { return found.List[a].Ended.Compare(found.List[b].Ended) })
			for _, i := range fresh {
				member, err := memberOf[O](i, found.List[i])
				if err != nil {
					return false, err
				}
				failed = failed || member.Err != nil
				if seen[i] = true; !yield(member, nil) {
					stopped = true
					return true, nil
				}
			}
			if lost != nil && !(failed && found.Ended) {
				stopped = true
				yield(Member[O]{}, lost)
			}
			return stopped || found.Ended, nil
		})
		if err != nil && !stopped {
			fail(err)
		}
	}
}

// memberOf returns member i of a list; m has ended.
func memberOf[O any](i int, m engine.Member) (Member[O], error) {
	member := Member[O]{Index: i}
	if m.Failure != nil {
		member.Err = m.Failure
		return member, nil
	}
	if err := json.Unmarshal(m.Raw, &member.Value); err != nil {
		return member, fmt.Errorf("member %d: %w", i, err)
	}
	return member, nil
}
