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

// AsyncResult is the handle of a workflow that was sent. It may be used by many goroutines at once.
type AsyncResult[O any] struct {
	client *Client
	ref    string     // of the send; the id after Attach, which means the latest send with it
	sent   *graph.Sig // for ValueOf; nil if it is not known
}

// Send stores s in Redis as a workflow and returns its handle. The tasks that can run at once are ready then. If Send
// returns no error the workflow runs, even if the sender dies. With [ErrDuplicate], the handle refers to the workflow
// with the same id or unique key; with other errors it is nil.
func (s Signature[O]) Send(ctx context.Context, c *Client, opts ...SendOption) (*AsyncResult[O], error) {
	ref, err := c.eng.Sender.Send(ctx, s.sig, collect(opts, SendOption.forSend))
	if err != nil && !errors.Is(err, ErrDuplicate) {
		return nil, fmt.Errorf("send workflow: %w", err)
	}
	if err != nil {
		return Attach[O](c, ref), fmt.Errorf("send workflow: %w", err)
	}
	return &AsyncResult[O]{c, ref, s.sig}, nil
}

// Do sends s and waits for its value: it is Send, then [AsyncResult.Wait]. The end of ctx ends the wait, not the workflow.
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

// Attach returns the handle of the latest workflow with this id. It does no I/O: if there is no such workflow, the methods of
// the handle return [ErrUnknown].
func Attach[O any](c *Client, id string) *AsyncResult[O] { return &AsyncResult[O]{client: c, ref: id} }

// ID returns the id of the workflow.
func (r *AsyncResult[O]) ID() string { return store.IDOf(r.ref) }

// Wait blocks until the workflow has its value or can no longer have one, and returns the value or
// a *[Failure]. It returns the first failure at once, while other tasks may still run. The end of ctx ends the wait,
// not the workflow. Inside a handler it returns [ErrWaitInTask].
func (r *AsyncResult[O]) Wait(ctx context.Context) (O, error) {
	var out O
	if engine.RunFrom(ctx) != nil {
		return out, ErrWaitInTask
	}
	raw, fail, err := r.client.eng.Results.Wait(ctx, r.ref)
	if err != nil {
		return out, fmt.Errorf("wait for workflow %s: %w%s", r.ID(), err, r.client.unfinished(ctx, r.ref))
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
// from [Attach], use [NodeValue]. The end of ctx ends the wait, not the workflow. Inside a handler it returns
// [ErrWaitInTask].
//
// For this, a handle from Send keeps the signature in memory.
func ValueOf[P, O any](ctx context.Context, r *AsyncResult[O], part Signature[P]) (P, error) {
	var none P
	if r.sent == nil {
		return none, fmt.Errorf("value of %s: this handle of workflow %s is not from Send; use NodeValue with the id of the node, as Client.Nodes lists it",
			part, r.ID())
	}
	i, ok := graph.Find(r.sent, part.sig)
	if !ok {
		return none, fmt.Errorf("value of %s: it is not a part of the signature that was sent as workflow %s; use NodeValue with the id of the node, as Client.Nodes lists it",
			part, r.ID())
	}
	return NodeValue[P](ctx, r.client, r.ref, strconv.Itoa(i))
}

// NodeValue is [ValueOf] for the node with this id, as [Client.Nodes] lists it. It returns an error if the workflow has
// no such node yet, or did not need it, such as the task of an [OnError] whose signature has succeeded.
func NodeValue[P any](ctx context.Context, c *Client, id, node string) (P, error) {
	var out P
	if engine.RunFrom(ctx) != nil {
		return out, ErrWaitInTask
	}
	raw, fail, err := c.eng.Results.NodeValue(ctx, id, node)
	if err != nil {
		return out, fmt.Errorf("value of node %s of workflow %s: %w%s", node, store.IDOf(id), err, c.unfinished(ctx, id))
	}
	if fail != nil {
		return out, fail
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, fmt.Errorf("value of node %s of workflow %s is not a %s: %w", node, store.IDOf(id), reflect.TypeFor[P](), err)
	}
	return out, nil
}

// Status returns the state of the workflow.
func (r *AsyncResult[O]) Status(ctx context.Context) (tasktype.Status, error) {
	p, err := r.Progress(ctx)
	return p.Status, err
}

// Progress returns how many tasks of the workflow there are, and how many have ended.
func (r *AsyncResult[O]) Progress(ctx context.Context) (tasktype.Progress, error) {
	p, err := r.client.eng.Results.Progress(ctx, r.ref)
	if err != nil {
		return p, fmt.Errorf("progress of workflow %s: %w", r.ID(), err)
	}
	return p, nil
}

// Detail returns the workflow with its progress and its nodes, those in the order of its definition. It has ended once
// all its tasks have, and did so at the time of the last. It returns [ErrUnknown] for a workflow that never was, or whose
// results are no longer kept.
func (r *AsyncResult[O]) Detail(ctx context.Context) (tasktype.WorkflowDetail, error) {
	w, err := r.client.eng.Inspector.Workflow(ctx, r.ref)
	if err != nil {
		return w, fmt.Errorf("read workflow %s: %w", r.ID(), err)
	}
	return w, nil
}

// Summary is Detail without the nodes, and costs the same however many there are. A workflow that has ended did so at
// the time of the task that yields its value; that is zero if this was skipped.
func (r *AsyncResult[O]) Summary(ctx context.Context) (tasktype.WorkflowDetail, error) {
	w, err := r.client.eng.Inspector.Summary(ctx, r.ref)
	if err != nil {
		return w, fmt.Errorf("read workflow %s: %w", r.ID(), err)
	}
	return w, nil
}

// Watch yields the progress of the workflow, and again whenever it has changed: at once when it has ended, about 100 ms
// after tasks have ended, were added, or have called [SetProgress], and within a second when the first task has started. The sequence ends when all
// tasks have ended, with a progress that has Ended set, or with an error, such as ctx.Err(). Percent never falls within a sequence,
// even if maps and plans add tasks or a task with [SetProgress] is retried.
func (r *AsyncResult[O]) Watch(ctx context.Context) iter.Seq2[tasktype.Progress, error] {
	return func(yield func(tasktype.Progress, error) bool) {
		var last tasktype.Progress
		first, stopped := true, false
		err := r.client.eng.Results.Follow(ctx, r.ref, func(ref string) (bool, error) {
			p, err := r.client.eng.Results.Progress(ctx, ref)
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
			yield(tasktype.Progress{}, fmt.Errorf("watch workflow %s: %w", r.ID(), err))
		}
	}
}

// WaitAll blocks until all tasks of the workflow have ended, also those for which Wait does not wait: callbacks, and the
// other tasks after a failure. It returns no error for tasks that failed. The end of ctx ends the wait, not the
// workflow. Inside a handler it returns [ErrWaitInTask].
func (r *AsyncResult[O]) WaitAll(ctx context.Context) error {
	if engine.RunFrom(ctx) != nil {
		return ErrWaitInTask
	}
	for _, err := range r.Watch(ctx) {
		if err != nil {
			return fmt.Errorf("%w%s", err, r.client.unfinished(ctx, r.ref))
		}
	}
	return nil
}

// unfinished returns why a workflow has not ended, as the end of the message of a wait that its context has ended; "" if the
// context has not ended or the reason cannot be read in time.
func (c *Client) unfinished(ctx context.Context, ref string) string {
	if ctx.Err() == nil {
		return ""
	}
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), 500*time.Millisecond)
	defer cancel()
	p, err := c.eng.Results.Progress(brief, ref)
	if err != nil || p.Total > 1000 { // the nodes are read as a whole
		return ""
	}
	nodes, err := c.eng.Inspector.Nodes(brief, ref)
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
func (r *AsyncResult[O]) Revoke(ctx context.Context) error { return r.client.Revoke(ctx, r.ref) }

// Cancel cancels the workflow and lets the tasks that handle failures run; see [Client.Cancel].
func (r *AsyncResult[O]) Cancel(ctx context.Context) error { return r.client.Cancel(ctx, r.ref) }

// Pause keeps the tasks of the workflow from starting until Resume; see [Client.Pause].
func (r *AsyncResult[O]) Pause(ctx context.Context) error { return r.client.Pause(ctx, r.ref) }

// Resume ends a pause; see [Client.Resume].
func (r *AsyncResult[O]) Resume(ctx context.Context) error { return r.client.Resume(ctx, r.ref) }

// Forget deletes the results and states of the workflow before its retention is over. It returns an error if the
// workflow has not ended.
func (r *AsyncResult[O]) Forget(ctx context.Context) error {
	if err := r.client.eng.Operator.Forget(ctx, r.ref); err != nil {
		return fmt.Errorf("forget workflow %s: %w", r.ID(), err)
	}
	return nil
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
func AsCompleted[O any](ctx context.Context, r *AsyncResult[[]O]) iter.Seq2[Member[O], error] {
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
