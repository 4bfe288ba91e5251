package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// While a fleet changes from one release to the next, workers come across what they cannot read: graphs of
// another version, and tasks handed over in another way. What a live worker can read is left to it, however
// long that takes; what none can is put back for some minutes, and then given up with a reason.

// carried is a task of ours as asynq delivered it.
type carried struct{ id, task, queue string }

// peers is who else is live, as of a moment ago.
type peers struct {
	mu    sync.Mutex // guards the fields below, and held while they are read
	asked time.Time
	live  []WorkerInfo
}

// peersFor is how long a worker goes by what it knows of the others.
const peersFor = time.Second

// another reports whether another live worker takes from a queue ("" for any) and is as ok says.
func (w *Worker) another(ctx context.Context, queue string, ok func(*WorkerInfo) bool) bool {
	p := &w.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.asked) > peersFor {
		live, err := w.e.Workers(ctx)
		if err != nil {
			w.log.Warn("live workers are not known", "error", err)
			return false
		}
		p.asked, p.live = time.Now(), live
	}
	for i := range p.live {
		o := &p.live[i]
		if o.Name != w.cfg.Name && (queue == "" || o.Queues[queue] > 0) && ok(o) {
			return true
		}
	}
	return false
}

// readElsewhere reports whether another live worker of a queue reads what this one could not, because of cause.
func (w *Worker) readElsewhere(ctx context.Context, queue string, cause error) bool {
	var v *graph.VersionError
	return errors.As(cause, &v) && v.V > graph.Version &&
		w.another(ctx, queue, func(o *WorkerInfo) bool { return o.Version >= v.V })
}

// jitter is d, and up to as much again.
func jitter(d time.Duration) time.Duration { return d + rand.N(d) }

// passPause is how long, about, a slot keeps what others can read before it puts that back: else a worker
// that is idle would take it again and again.
const passPause = 150 * time.Millisecond

// pass puts a node back that was begun here and cannot be read here. Who can read it finds it in its queue
// again or, if nobody can for now, in the agenda.
func (w *Worker) pass(ctx context.Context, f store.Flow, node string, epoch int, tk carried, cause error) error {
	if !w.readElsewhere(ctx, tk.queue, cause) {
		w.log.Error("workflow cannot be read", "workflow", f.ID, "error", cause)
		return w.giveUp(ctx, f, node, epoch, cause)
	}
	w.log.Warn("workflow is left to workers of a newer release", "workflow", f.ID, "node", node, "error", cause)
	select {
	case <-time.After(jitter(passPause)):
	case <-w.seam.closed:
	}
	r, err := w.e.store.Repeat(ctx, f, node, strconv.Itoa(epoch), w.cfg.Name, 0, store.RepeatAgain, w.says(cause), mostLost)
	if err != nil || r.Status != "ok" {
		return err
	}
	return w.e.deliver(ctx, &flow{Flow: f}, []delivery{{flow: &flow{Flow: f}, node: node, epoch: r.Epoch, task: tk.task, queue: tk.queue}})
}

func (w *Worker) says(cause error) string {
	return clip(fmt.Sprintf("worker %s cannot read it: %v", w.cfg.Name, cause))
}

// giveUp ends a workflow that cannot be read. One of a newer release may find a worker that can read it: its
// node is put back before, a little longer each time. What is damaged is so for everybody.
func (w *Worker) giveUp(ctx context.Context, f store.Flow, node string, epoch int, cause error) error {
	raws, err := w.e.store.Fields(ctx, f, []string{node})
	if err != nil {
		return err
	}
	failure := &Failure{Node: node, Attempts: 1, Code: CodeDamaged, Message: clip("what Redis holds of it is damaged: " + cause.Error())}
	most := 0
	if errors.As(cause, new(*graph.VersionError)) {
		failure = &Failure{Node: node, Attempts: mostLost + 1, Code: CodeVersion, Message: clip("no worker that came across it can read it: " + cause.Error())}
		most = mostLost
	}
	wait := min(time.Second<<store.ParseRecord(raws[0], 0).Lost, time.Minute)
	r, err := w.e.store.Repeat(ctx, f, node, strconv.Itoa(epoch), w.cfg.Name, wait, store.RepeatLost, w.says(cause), most)
	if err != nil || r.Status != "poison" {
		return err
	}
	return w.e.store.Abort(ctx, f, node, encodeFailure(failure))
}

// unreadable does for a line of the agenda what pass does for a delivery, and reports whether it left the
// line to others.
func (w *Worker) unreadable(ctx context.Context, en store.Entry, cause error) (left bool, err error) {
	if w.readElsewhere(ctx, "", cause) {
		return true, w.e.store.Later(ctx, en.Flow, en.Node, w.e.now()) // it is due for whoever looks next
	}
	if _, err := graph.ParseID(en.Node); err != nil {
		return false, nil // a note for who can read it
	}
	state, epoch, err := w.e.due(ctx, en)
	if err != nil || state != "run" && state != "Q" && state != "W" {
		return false, err
	}
	b, err := w.e.store.Begin(ctx, en.Flow, en.Node, epoch, w.cfg.Name, nil)
	if err != nil || b.Status != "run" {
		return false, err
	}
	return false, w.giveUp(ctx, en.Flow, en.Node, epoch, cause)
}

// newerError is the error of a task that a newer release handed over; asynq keeps it for later.
type newerError struct{ task, version string }

func (e newerError) Error() string {
	return fmt.Sprintf("task %s was handed over by a newer release (%s, this one is %s): start workers of that release", e.task, e.version, headerVersion)
}

// foreign does with a task that this release did not hand over what can be done. A node of a workflow that
// can be read is handed over again, as this release does. What a newer release sent waits in asynq for a
// worker of that release, and is archived when none has come for some minutes: an operator can run it from
// there. What nobody of ours sent is archived.
func (w *Worker) foreign(ctx context.Context, t *asynq.Task, id, queue string) error {
	if w.disown(carried{id, t.Type(), queue}) {
		return nil
	}
	version := t.Headers()[header]
	ours, _ := strconv.Atoi(headerVersion)
	if v, err := strconv.Atoi(version); err == nil && v > ours {
		newer := newerError{t.Type(), version}
		if n, _ := asynq.GetRetryCount(ctx); n < mostLost {
			return newer
		}
		return fmt.Errorf("%w: %w", newer, asynq.SkipRetry)
	}
	return fmt.Errorf("task %s was not sent by this release's client: %w", t.Type(), asynq.SkipRetry)
}

// disown puts a node back that was begun for a task that another release handed over, and reports whether
// there was one.
func (w *Worker) disown(tk carried) bool {
	b := w.startAhead(tk.id)
	if b == nil {
		return false
	}
	wfID, node, epoch, err := parseDelivery(tk.id)
	if err != nil {
		return false
	}
	defer w.unclaim(wfID, node, epoch)
	if b.Status != "run" {
		return false
	}
	return w.insist(wfID, node, func(ctx context.Context) error {
		if b.bad == nil {
			return w.putBack(ctx, wfID, node, epoch)
		}
		f, err := w.e.store.Flow(ctx, wfID)
		if err != nil {
			return err
		}
		return w.pass(ctx, f, node, epoch, tk, b.bad)
	}) == nil
}
