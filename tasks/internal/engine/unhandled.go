package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// unhandled returns the result of a node whose task this worker has no handler for. It moves to the pool of live workers of its
// queue with a handler. If there are none, the node waits until one starts, or fails after HandlerWait. The agenda has the end of that wait.
func (rn *runner) unhandled(ctx context.Context, r *Run) (result, error) {
	pool, err := rn.programs.poolFor(ctx, r.Info.Queue, r.Info.Task)
	if err != nil {
		return result{}, err
	}
	if pool != "" {
		rn.log.DebugContext(ctx, "task without a handler here moves to workers with one", "task", r.Info.Task, "workflow", r.Info.Workflow, "node", r.Info.Node)
		r.b.back = r.b.back || strings.HasSuffix(r.b.lane, ":"+pool)
		res := r.again(0, "")
		res.pool = pool
		return res, nil
	}
	left, err := rn.store.Unhandled.Wait(ctx, r.fl.Flow, r.Info.Node, r.Info.Queue, r.Info.Task, rn.cfg.HandlerWait, r.it.rec.State != store.StateReady)
	if err != nil {
		return result{}, err
	}
	if left <= 0 {
		return r.failed(tasktype.CodeUnregistered, fmt.Sprintf("no worker of queue %s has a handler for %s: is the worker older than the sender, or was Handle forgotten? %s",
			r.Info.Queue, r.Info.Task, rn.handlerList())), nil
	}
	if !r.expires.IsZero() {
		left = min(left, r.expires.Sub(rn.clock.Now())+time.Millisecond)
	}
	rn.log.WarnContext(ctx, "task waits for a worker with a handler", "task", r.Info.Task, "queue", r.Info.Queue, "workflow", r.Info.Workflow, "node", r.Info.Node)
	return r.again(left, ""), nil
}

// handlerList lists the tasks that this worker has handlers for.
func (rn *runner) handlerList() string {
	names := taskNames(rn.handlers)
	if len(names) == 0 {
		return fmt.Sprintf("Worker %s has no handlers", rn.cfg.Name)
	}
	more := ""
	if most := 20; len(names) > most {
		names, more = names[:most], ", …"
	}
	return fmt.Sprintf("Worker %s has %s%s", rn.cfg.Name, strings.Join(names, ", "), more)
}

// releaseFor bounds the time between heartbeats that the release of nodes takes; the next look releases the rest.
const releaseFor = time.Second

// releaseHandled makes nodes due that wait for a worker with one of the handlers of this worker.
func (w *watcher) releaseHandled(ctx context.Context) error {
	waiting, err := w.store.Unhandled.Names(ctx)
	if err != nil {
		return err
	}
	began := w.clock.Now()
	for _, u := range waiting {
		if w.clock.Now().Sub(began) > releaseFor {
			break
		}
		if _, handles := slices.BinarySearch(w.tasks, u.Task); !handles || w.cfg.Queues[u.Queue] == 0 {
			continue
		}
		if err := w.store.Unhandled.Release(ctx, u); err != nil {
			return err
		}
		w.agenda.setTimer(0)
	}
	return nil
}
