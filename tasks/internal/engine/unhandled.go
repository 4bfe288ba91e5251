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

// A node whose task its worker has no handler for is ready again after handlerPause, and each further time after as long as it has
// waited so far, at most handlerPauseMost: a worker with a handler may take it then.
const (
	handlerPause     = 50 * time.Millisecond
	handlerPauseMost = 2 * time.Second
)

// unhandled returns the result of a node whose task this worker has no handler for. It is delayed for a short time if a live worker
// of its queue has one, and else until one starts. It fails after HandlerWait. The agenda has the end of the delay.
func (rn *runner) unhandled(ctx context.Context, r *Run) (result, error) {
	handled, err := rn.peers.handle(ctx, r.Info.Queue, r.Info.Task)
	if err != nil {
		return result{}, err
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
	if handled {
		waited, state := rn.cfg.HandlerWait-left, store.AgainUnhandled
		if r.it.gathered() { // else it would gather again, and come here again
			state = store.AgainGathering
		}
		return r.waits(state, min(left, max(handlerPause, min(waited, handlerPauseMost)))), nil
	}
	rn.log.WarnContext(ctx, "task waits for a worker with a handler", "task", r.Info.Task, "queue", r.Info.Queue, "workflow", r.Info.Workflow, "node", r.Info.Node)
	return r.waits(store.AgainUnhandled, left), nil
}

// peers knows the other live workers.
type peers struct {
	*local
	fleet *Fleet

	asking lock // held while the live workers are read; it guards the fields below
	asked  time.Time
	live   []tasktype.Worker
}

// peersFor is how long the list of live workers is used.
const peersFor = time.Second

// handle reports whether another live worker of a queue has a handler for a task.
func (p *peers) handle(ctx context.Context, queue, task string) (bool, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	if now := p.clock.Now(); now.Sub(p.asked) > peersFor {
		live, err := p.fleet.Workers(ctx)
		if err != nil {
			return false, err
		}
		p.asked, p.live = now, live
	}
	return slices.ContainsFunc(p.live, func(w tasktype.Worker) bool {
		return w.Name != p.cfg.Name && w.Queues[queue] > 0 && slices.Contains(w.Tasks, task)
	}), nil
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

// releaseHandled makes nodes ready that wait for a worker with one of the handlers of this worker.
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
	}
	return nil
}
