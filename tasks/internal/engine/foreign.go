package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"muster/tasks/internal/errtree"
	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// peers is what a worker knows of the other live workers.
type peers struct {
	mu    sync.Mutex // guards the fields below, and held while they are read
	asked time.Time
	live  []tasktype.Worker
}

// peersFor is how long a worker uses what it knows of the others before it asks again.
const peersFor = time.Second

// another reports whether another live worker takes from a queue ("" for any) and meets ok.
func (w *Worker) another(ctx context.Context, queue string, ok func(*tasktype.Worker) bool) bool {
	p := &w.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.e.clock.Now().Sub(p.asked) > peersFor {
		live, err := w.e.Workers(ctx)
		if err != nil {
			w.log.Warn("live workers cannot be listed", "error", err)
			return false
		}
		p.asked, p.live = w.e.clock.Now(), live
	}
	for i := range p.live {
		o := &p.live[i]
		if o.Name != w.cfg.Name && (queue == "" || o.Queues[queue] > 0) && ok(o) {
			return true
		}
	}
	return false
}

// unreadable deals with a node whose workflow this worker cannot read. A node of a newer release is put back: as long
// as a live worker can read it or, if none can, for about a minute. A damaged workflow is given up.
func (w *Worker) unreadable(ctx context.Context, b *batch, it *item, cause error) error {
	var v *graph.VersionError
	known := errors.As(cause, &v)
	theirs := known && v.V > graph.Version && w.another(ctx, "", func(o *tasktype.Worker) bool { return o.Version >= v.V })
	if !known || !w.patient(it.lost) && !theirs {
		return w.e.giveUp(ctx, it.fl.Flow, cause)
	}
	r := result{item: it, kind: store.ChangeAgain, attempts: it.rec.Attempts, lost: it.lost, delay: jitter(unknownPause), state: "D",
		message: clip(fmt.Sprintf("worker %s cannot read it: %v", w.cfg.Name, cause))}
	if !theirs {
		r.delay = unknownPause << it.lost
		r.lost++
	}
	w.log.Warn("node of a workflow of another release is put back", "workflow", it.fl.ID, "node", it.node, "error", cause)
	b.end(r, true)
	return nil
}

// errStopped gives a task back to asynq that arrived while the worker stops.
var errStopped = errors.New("worker stops")

// oldHeader marked the tasks of the first edition.
const oldHeader = "muster"

// oldError is the error of a task of the first edition. It waits in asynq for a worker of the old release.
type oldError struct{ task string }

func (e oldError) Error() string {
	return fmt.Sprintf("task %s was sent by the first edition: drain its workflows with workers of the old release", e.task)
}

// foreign runs a task of asynq that is not a wake-task, or returns why it cannot be run.
func (w *Worker) foreign(ctx context.Context, t *asynq.Task) error {
	switch {
	case t.Headers()[oldHeader] != "":
		return oldError{t.Type()}
	case w.cfg.Plain != nil:
		return w.plain(ctx, t)
	}
	return fmt.Errorf("task %s was not sent by this release's client: %w", t.Type(), asynq.SkipRetry)
}

// plainError is the error of a task that was sent with asynq's own client: asynq retries those by its own rules. Asynq
// does not catch a panic of an error's methods, so this error has none of the handler's.
type plainError struct {
	message string
	is      error // asynq.SkipRetry, asynq.RevokeTask or nil
}

func (e plainError) Error() string { return e.message }

func (e plainError) Unwrap() error { return e.is }

// plain runs a task that was sent with asynq's own client.
func (w *Worker) plain(ctx context.Context, t *asynq.Task) error {
	err := w.cfg.Plain.ProcessTask(ctx, t)
	if err == nil {
		return nil
	}
	e := plainError{message: err.Error()}
	all := errtree.All(err)
	for _, is := range []error{asynq.RevokeTask, asynq.SkipRetry} {
		if errtree.Is(all, is) {
			e.is = is
			break
		}
	}
	return e
}

// isPlain reports whether a failed attempt counts as one of asynq's retries. Only those of tasks of asynq's own clients
// do, with the panics that asynq catches; panics of our handlers do not reach it.
func isPlain(err error) bool { return errors.As(err, new(plainError)) || asynq.IsPanicError(err) }

func retryDelay(n int, err error, t *asynq.Task) time.Duration {
	switch {
	case errors.As(err, new(oldError)):
		return time.Minute
	case isPlain(err):
		return asynq.DefaultRetryDelayFunc(n, err, t)
	}
	return time.Second
}
