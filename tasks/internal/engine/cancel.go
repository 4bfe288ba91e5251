package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// cancelEvery is how often the nodes of a cancelled workflow are looked at while some have not ended.
const cancelEvery = 2 * time.Second

// Cancel cancels the workflow with a reference or id.
func (r *Operator) Cancel(ctx context.Context, refOrID string) error {
	f, err := r.store.Flows.Address(ctx, refOrID)
	if err != nil {
		return err
	}
	ctx, cancel, err := fromOutside(ctx, f)
	if err != nil {
		return err
	}
	defer cancel()
	state, err := r.advancer.cancel(ctx, f, store.OpCancel)
	return cmp.Or(err, stopErrors[state])
}

// cancel cancels a workflow for a client, or because its deadline has passed.
func (a *advancer) cancel(ctx context.Context, f store.Flow, op string) (state string, err error) {
	state, err = a.store.Flows.Stop(ctx, f, op)
	if err != nil || state != store.StopOK {
		return state, err
	}
	return state, a.finishCancel(ctx, f.Ref)
}

// cancelCause returns the reason why a workflow was cancelled, by the value of [store.FieldStopped].
func cancelCause(stopped string) error {
	if stopped == store.StoppedByDeadline {
		return tasktype.ErrDeadline
	}
	return tasktype.ErrCancelled
}

// cancelledNode returns the failure of a node that has not begun, or not begun again, when its workflow is cancelled.
func cancelledNode(cause error) (code, message string) {
	if errors.Is(cause, tasktype.ErrDeadline) {
		return tasktype.CodeDeadline, "the deadline of the workflow has passed"
	}
	return tasktype.CodeCancelled, "the workflow was cancelled"
}

// stopErrors are the errors of the responses of Redis to an operation on a workflow.
var stopErrors = map[string]error{store.StopEnded: ErrEnded, store.StopRevoked: fmt.Errorf("the workflow was %w", tasktype.ErrRevoked), store.StopUnknown: ErrUnknown,
	store.StopRunning: ErrRunning}

// stop makes an operation on a workflow that has not been cancelled.
func (r *Operator) stop(ctx context.Context, f store.Flow, op string) error {
	state, err := r.store.Flows.Stop(ctx, f, op)
	if state == store.StopCancelled {
		return fmt.Errorf("the workflow was %w", tasktype.ErrCancelled)
	}
	return cmp.Or(err, stopErrors[state])
}

// finishCancel fails the nodes of a cancelled workflow that no worker has, and cancels the attempts of workers. Nodes that
// become ready later fail when a worker takes them. The agenda has an entry for the workflow until all of them have ended.
func (a *advancer) finishCancel(ctx context.Context, ref string) error {
	told, stepped := false, false
	for {
		w, err := a.graphs.whole(ctx, ref)
		if err != nil {
			if errors.Is(err, ErrUnknown) {
				return nil
			}
			return err
		}
		running, err := a.store.Leases.OfFlow(ctx, w.Flow)
		if err != nil {
			return err
		}
		ready, steps, unended := w.cancellable(running)
		stopped := w.field(store.FieldStopped)
		if unended == 0 && len(steps) == 0 || w.field(store.FieldAborted) != "" || stopped != store.StoppedByCancel && stopped != store.StoppedByDeadline {
			return a.store.Agenda.Remove(ctx, w.Flow, cancelNote)
		}
		if !told && len(running) > 0 {
			if err := a.store.Tell(ctx, w.Shard(), "x "+ref); err != nil {
				return fmt.Errorf("tell workers: %w", err)
			}
			told = true
		}
		if len(steps) > 0 && !stepped {
			stepped = true
			if err := a.settle(ctx, w.flow, store.Todo{Run: steps}); err != nil {
				return err
			}
			continue // the nodes that follow them are ready
		}
		if len(ready) == 0 {
			return a.store.Agenda.Move(ctx, w.Flow, cancelNote, cancelEvery)
		}
		code, message := cancelledNode(cancelCause(stopped))
		slices.Reverse(ready) // nodes that wait for a slot of a group before nodes that hold one
		if err := a.endNodes(ctx, w.flow, ready, nil, store.ChangeFail, code, message, store.FlagIfCancelled); err != nil {
			return err
		}
	}
}

// cancellable returns the nodes that are ready, delayed or open and not leased, the delayed steps, and the number of all
// nodes that have not ended, all without nodes that handle failures and the plans of these.
func (w *whole) cancellable(running map[string]*store.NodeLease) (ready []graph.ID, steps []string, unended int) {
	handling := map[string]bool{} // scopes
	for _, id := range w.ids {
		g, node := w.graph(id), id.String()
		if handling[id.Scope] || g.Handles(id.Index) {
			handling[node] = true
			continue
		}
		k := g.Nodes[id.Index].Kind
		rec := store.ParseRecord([]byte(w.field(node)), w.Created)
		if k != graph.Task && k != graph.Each {
			if rec.State == store.StateDelayed {
				steps = append(steps, node)
			}
			continue
		}
		if rec.Terminal() {
			continue
		}
		unended++
		if running[node] != nil {
			continue
		}
		switch rec.State {
		case store.StateDelayed, store.StateRetrying, store.StateLimited, store.StateUnhandled, store.StateGathering, store.StateReady, store.StateOpen:
			ready = append(ready, id)
		case 0:
			if id.Inst >= 0 || k == graph.Task && w.succeeded(id, g.Preds(id.Index)) {
				ready = append(ready, id)
			}
		}
	}
	return ready, steps, unended
}

// succeeded reports whether nodes of the scope of id have succeeded.
func (w *whole) succeeded(id graph.ID, nodes []int) bool {
	g, seen := w.graph(id), map[int]bool{}
	for stack := slices.Clone(nodes); len(stack) > 0; {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[i] {
			continue
		}
		seen[i] = true
		if g.Passive(i) {
			stack = append(stack, g.Preds(i)...)
		} else if rec := w.field(id.At(i, -1).String()); rec == "" || rec[0] != store.StateSucceeded {
			return false
		}
	}
	return true
}

// handles reports whether a node, or one of the nodes whose plan it is in, handles failures.
func (v *values) handles(ctx context.Context, id graph.ID) (bool, error) {
	for {
		g, err := v.graph(ctx, id)
		if err != nil || g.Handles(id.Index) || id.Scope == "" {
			return err == nil && g.Handles(id.Index), err
		}
		if id, err = graph.ParseID(id.Scope); err != nil {
			return false, err
		}
	}
}
