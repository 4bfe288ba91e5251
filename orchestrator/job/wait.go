// Package job waits for the jobs that the orchestrator started.
//
// The end of a job is learned in three ways, each taking over where the one
// before it has no answer:
//
//	event ──no answer──▶ polling ──no keys──▶ file
//
// The event of the task system is the fastest. When it does not come, or was
// lost, the job's progress keys in Redis are read every Poll. When there are
// no keys either, the version of the exported file tells that somebody has
// finished. One timeout spans all three; it is computed anew when the number
// of chunks becomes known, and passes over a job that is seen to come along.
package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"muster/tasks"
)

// Stage is the way in which the end of a job was learned.
type Stage string

// The stages, in the order in which they are preferred.
const (
	Event   Stage = "event"
	Polling Stage = "polling"
	File    Stage = "file"
)

// Status is where a job stands by its progress keys.
type Status string

// What the status key of a job may say, in this order; Unknown stands for no
// key. Jobs that have nothing to collect go from Dispatched to Processing.
const (
	Unknown     Status = ""
	Dispatched  Status = "DISPATCHED"  // sent; no worker has begun
	Collecting  Status = "COLLECTING"  // finding out what there is to do
	Processing  Status = "PROCESSING"  // the chunks are known
	Aggregating Status = "AGGREGATING" // all chunks are done
	Complete    Status = "COMPLETE"
	Failed      Status = "FAILED"
)

// Errors of Wait.
var (
	ErrTimeout   = errors.New("the job did not end in time")
	ErrNotEnough = errors.New("the job ended without enough to go on with")
	ErrFailed    = errors.New("the job failed")
)

// A Job is what Wait needs to know of one. Fields left nil are ways that this
// job does not have.
type Job struct {
	Name string

	// Event blocks until the job ended: nil for success, a *tasks.Failure
	// for failure, any other error for no answer.
	Event func(ctx context.Context) error

	// Keys reads the job's progress keys.
	Keys func(ctx context.Context) (Keys, error)

	// Moves returns a text that is another one whenever the job has come
	// further. While it keeps changing, with no more than Timeout.Unknown
	// between two changes, the job is waited for even when its Timeout is
	// over: how long a slow site takes cannot be told from its chunks.
	Moves func(ctx context.Context) (string, error)

	// Version names the version of the file that the job writes at its end.
	Version func() string

	// Enough tells whether what the job was to bring is there. Without it
	// a job that succeeded is enough.
	Enough func(ctx context.Context) (bool, error)

	// Alive returns an error when nobody works on the job and nobody can
	// be brought to. It is asked once a Poll.
	Alive func(ctx context.Context) error
}

// A Waiter waits for jobs. Its zero value is ready to use.
type Waiter struct {
	Poll    time.Duration // between two looks at the keys and the file. Defaults to 15 s
	Grace   time.Duration // how long the event may lag behind the keys. Defaults to 2 s
	Warn    time.Duration // when to warn that a job has not begun. Defaults to 120 s
	Timeout Timeout       // Defaults to DefaultTimeout
	Limit   time.Duration // the caller's own limit on the whole wait, in place of Timeout; 0 means none
	Logger  *slog.Logger  // Defaults to slog.Default
}

// Wait blocks until j has ended, and returns how that was learned. Its error
// is nil when j succeeded and Enough agrees, ErrNotEnough when it does not,
// the job's own failure or ErrFailed, ErrTimeout, what Alive said, or the
// cause of ctx.
func (w Waiter) Wait(ctx context.Context, j Job) (Stage, error) {
	w = w.withDefaults()
	ctx, cancel := context.WithCancel(ctx)
	wait := &wait{Waiter: w, job: j, started: time.Now(), stage: Event}
	defer wait.done()
	defer cancel()

	wait.listen(ctx)
	if j.Version != nil {
		wait.version = j.Version()
	}
	wait.deadline = time.NewTimer(wait.limit(0))
	defer wait.deadline.Stop()
	poll := time.NewTicker(w.Poll)
	defer poll.Stop()
	for {
		over, err := false, error(nil)
		select {
		case <-ctx.Done():
			return wait.stage, context.Cause(ctx)
		case err := <-wait.event:
			over, err = wait.heard(ctx, err)
			if over {
				return wait.stage, err
			}
		case <-wait.deadline.C:
			// One last look: the end may have come since the last poll.
			if over, err = wait.look(ctx); !over {
				if more := wait.more(); more > 0 {
					wait.deadline.Reset(more)
					continue
				}
				err = fmt.Errorf("%s: %w (%s)", j.Name, ErrTimeout, time.Since(wait.started).Round(time.Second))
			}
			return wait.stage, err
		case <-wait.grace:
			wait.grace = nil
			wait.lost("the event is late, the keys say the job has ended")
			over, err = wait.look(ctx)
		case <-poll.C:
			over, err = wait.look(ctx)
		}
		if over {
			return wait.stage, err
		}
	}
}

// wait is one call of Wait.
type wait struct {
	Waiter
	job      Job
	started  time.Time
	deadline *time.Timer
	event    chan error       // nil once the event has no answer
	heardAll chan struct{}    // closed when the listener is gone
	grace    <-chan time.Time // runs once the keys know more than the event
	stage    Stage
	chunks   int
	moves    string    // what Moves said at the last look
	moved    time.Time // when that was another than before
	warned   bool
	version  string // of the file, when the wait began or the file last was not enough
}

func (w Waiter) withDefaults() Waiter {
	if w.Poll <= 0 {
		w.Poll = 15 * time.Second
	}
	if w.Grace <= 0 {
		w.Grace = 2 * time.Second
	}
	if w.Warn <= 0 {
		w.Warn = 120 * time.Second
	}
	if w.Timeout == (Timeout{}) {
		w.Timeout = DefaultTimeout
	}
	if w.Logger == nil {
		w.Logger = slog.Default()
	}
	return w
}

func (w *wait) limit(chunks int) time.Duration {
	if w.Limit > 0 {
		return w.Limit
	}
	return w.Timeout.For(chunks)
}

func (w *wait) listen(ctx context.Context) {
	if w.job.Event == nil {
		w.stage = Polling
		return
	}
	w.event, w.heardAll = make(chan error, 1), make(chan struct{})
	event := w.event
	go func() {
		defer close(w.heardAll)
		event <- w.job.Event(ctx)
	}()
}

// done waits for the listener, whose ctx has been cancelled.
func (w *wait) done() {
	if w.heardAll != nil {
		<-w.heardAll
	}
}

// more is how long to wait on for a job that comes along although its time is
// over.
func (w *wait) more() time.Duration {
	if w.Limit > 0 || w.moved.IsZero() {
		return 0
	}
	return w.Timeout.Unknown - time.Since(w.moved)
}

// heard takes the event's answer.
func (w *wait) heard(ctx context.Context, err error) (over bool, _ error) {
	var failure *tasks.Failure
	switch {
	case err == nil:
		return true, w.enough(ctx)
	case errors.As(err, &failure):
		return true, fmt.Errorf("%s: %w", w.job.Name, err)
	case ctx.Err() != nil:
		return true, context.Cause(ctx)
	}
	w.lost(err.Error())
	return w.look(ctx)
}

// lost gives up on the event.
func (w *wait) lost(why string) {
	w.event, w.stage = nil, Polling
	w.Logger.Warn("no event of the job, polling its keys", "job", w.job.Name, "why", why)
}

// look reads the keys, and the file when there are none.
func (w *wait) look(ctx context.Context) (over bool, _ error) {
	if w.job.Alive != nil {
		if err := w.job.Alive(ctx); err != nil {
			return true, fmt.Errorf("%s: %w", w.job.Name, err)
		}
	}
	var keys Keys
	if w.job.Keys != nil {
		var err error
		if keys, err = w.job.Keys(ctx); err != nil {
			w.Logger.Warn("cannot read the keys of the job", "job", w.job.Name, "err", err)
		}
	}
	if w.job.Moves != nil {
		moves, err := w.job.Moves(ctx)
		if err != nil {
			w.Logger.Warn("cannot see whether the job comes along", "job", w.job.Name, "err", err)
		} else if moves != w.moves {
			w.moves, w.moved = moves, time.Now()
		}
	}
	if keys.TotalChunks > w.chunks {
		w.chunks = keys.TotalChunks
		w.deadline.Reset(max(0, w.limit(w.chunks)-time.Since(w.started)))
		w.Logger.Debug("dynamic timeout", "job", w.job.Name, "chunks", w.chunks, "timeout", w.limit(w.chunks))
	}
	if began := keys.Status != Unknown && keys.Status != Dispatched; !began && !w.warned && time.Since(w.started) >= w.Warn {
		w.warned = true
		w.Logger.Warn("the job has not begun; are the workers busy, and do they serve its queue?", "job", w.job.Name, "waited", time.Since(w.started).Round(time.Second))
	}
	switch {
	case keys.Status == Complete || keys.Status == Failed:
		if w.event != nil { // the event is preferred: it knows the reason
			if w.grace == nil {
				w.grace = time.After(w.Grace)
			}
			return false, nil
		}
		if keys.Status == Failed {
			return true, fmt.Errorf("%s: %w", w.job.Name, ErrFailed)
		}
		return true, w.enough(ctx)
	case keys.Status == Unknown && w.event == nil && w.job.Version != nil:
		return w.watch(ctx)
	}
	return false, nil
}

// watch looks whether the file has become another one. One that is not enough
// is the end of some other job, so it goes on watching.
func (w *wait) watch(ctx context.Context) (over bool, _ error) {
	w.stage = File
	v := w.job.Version()
	if v == w.version {
		return false, nil
	}
	w.version = v
	if err := w.enough(ctx); err != nil {
		w.Logger.Info("the file changed but is not enough", "job", w.job.Name)
		return false, nil
	}
	return true, nil
}

func (w *wait) enough(ctx context.Context) error {
	if w.job.Enough == nil {
		return nil
	}
	ok, err := w.job.Enough(ctx)
	if err != nil {
		return fmt.Errorf("%s: look at what it brought: %w", w.job.Name, err)
	}
	if !ok {
		return fmt.Errorf("%s: %w", w.job.Name, ErrNotEnough)
	}
	return nil
}
