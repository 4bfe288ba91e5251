// Package refreshwait waits for the jobs that the orchestrator started.
//
// There are three ways to learn how a job ended and its result, each used when
// the one before it fails:
//
//	event ──no answer──▶ polling ──no keys──▶ file
//
// The event of the task system is the fastest. When it does not come, the job's
// progress keys and the result that it stored in Redis are read every Poll. When
// Redis has neither, the report that the job left in a file is read. One timeout
// spans all three; it is computed again when the number of chunks becomes known,
// and does not end the wait for a job that makes progress. Wait fails at once for
// a job that neither Redis nor a file has.
package refreshwait

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"muster/tasks"
)

// Stage says how the end of a job was learned.
type Stage string

// The stages, in the order in which they are preferred.
const (
	Event   Stage = "event"
	Polling Stage = "polling"
	File    Stage = "file"
)

// Status is the state of a job by its progress keys.
type Status string

// The values of the status key of a job, in this order; Unknown is no key. Jobs that have nothing to collect go from Dispatched to Processing.
const (
	Unknown     Status = ""
	Dispatched  Status = "DISPATCHED"  // sent; no worker has begun
	Collecting  Status = "COLLECTING"  // finding its items
	Processing  Status = "PROCESSING"  // the chunks are known
	Aggregating Status = "AGGREGATING" // all chunks are done
	Complete    Status = "COMPLETE"
	Failed      Status = "FAILED"
)

// Errors of Wait.
var (
	ErrTimeout   = errors.New("the job did not end in time")
	ErrNotEnough = errors.New("the job ended without enough results to continue")
	ErrFailed    = errors.New("the job failed, and the reason is no longer in Redis")
	ErrNoAnswer  = errors.New("the job is complete, but its report is no longer in Redis or in its folder")
	ErrUnknown   = errors.New("the job is not in Redis any more: Redis was emptied, or restarted without its data; what was written is still in the data folder; to do the rest, start the job again")
)

// A Job describes a job with a result of type O to Wait. Fields may be nil.
type Job[O any] struct {
	Name string

	// Event blocks until the job ended and returns its answer, a
	// *tasks.Failure when the job failed, and any other error when it
	// cannot know.
	Event func(ctx context.Context) (O, error)

	// Known reports whether Redis has the job. Without it a job counts as
	// known.
	Known func(ctx context.Context) (bool, error)

	// Keys reads the job's progress keys.
	Keys func(ctx context.Context) (Keys, error)

	// Stored reads the answer that the job left in Redis, and reports
	// whether it is there. Its error is a *tasks.Failure when the job failed.
	Stored func(ctx context.Context) (O, bool, error)

	// File is Stored for the report that the job left in a file.
	File func() (O, bool, error)

	// Moves returns a text that changes whenever the job has made progress.
	// While it changes at least once in Timeout.Unknown, Wait continues after
	// the Timeout: the number of chunks does not say how long a slow site
	// takes.
	Moves func(ctx context.Context) (string, error)

	// Enough reports whether the purpose of the job is reached. Defaults to
	// true for a job that succeeded.
	Enough func(ctx context.Context) (bool, error)

	// Alive returns an error when no workers can run the job. It is called
	// once a Poll.
	Alive func(ctx context.Context) error
}

// A Waiter waits for jobs. Its zero value is ready to use.
type Waiter struct {
	Poll    time.Duration // between two reads of the keys and the file. Defaults to 15 s
	Grace   time.Duration // how long the event may lag behind the keys. Defaults to 2 s
	Warn    time.Duration // when to warn that a job has not begun. Defaults to 120 s
	Timeout Timeout       // Defaults to DefaultTimeout
	Limit   time.Duration // the caller's own limit on the whole wait, replaces Timeout; 0 means none
	Logger  *slog.Logger  // Defaults to slog.Default
}

// Wait blocks until j has ended, and returns its answer and how that was
// learned. Its error is nil when j succeeded and Enough agrees, ErrNotEnough
// beside the answer when it does not, the job's own failure or ErrFailed,
// ErrNoAnswer, ErrUnknown, ErrTimeout, the error of Alive, or the cause of ctx.
func Wait[O any](ctx context.Context, w Waiter, j Job[O]) (O, Stage, error) {
	w = w.withDefaults()
	ctx, cancel := context.WithCancel(ctx)
	wait := &wait[O]{Waiter: w, job: j, started: time.Now(), stage: Event}
	defer wait.done()
	defer cancel()

	wait.listen(ctx)
	wait.deadline = time.NewTimer(wait.limit(0))
	defer wait.deadline.Stop()
	poll := time.NewTicker(w.Poll)
	defer poll.Stop()
	for {
		over, err := false, error(nil)
		select {
		case <-ctx.Done():
			over, err = true, context.Cause(ctx)
		case ended := <-wait.event:
			over, err = wait.onEvent(ctx, ended)
		case <-wait.deadline.C:
			// A last look: the job may have ended since the last poll.
			if over, err = wait.look(ctx); !over {
				if more := wait.more(); more > 0 {
					wait.deadline.Reset(more)
					continue
				}
				over, err = true, fmt.Errorf("%s: %w (%s)", j.Name, ErrTimeout, time.Since(wait.started).Round(time.Second))
			}
		case <-wait.grace:
			wait.grace = nil
			if wait.event != nil {
				wait.lost("the event is late, the keys say the job has ended")
			}
			over, err = wait.look(ctx)
		case <-poll.C:
			over, err = wait.look(ctx)
		}
		if over {
			return wait.out, wait.stage, err
		}
	}
}

// wait is one call of Wait.
type wait[O any] struct {
	Waiter
	job      Job[O]
	out      O
	started  time.Time
	deadline *time.Timer
	event    chan event[O]    // nil once the event is given up
	listener chan struct{}    // closed when the listener has ended
	grace    <-chan time.Time // runs once the keys say that the job has ended, and before the second look for a missing job
	stage    Stage
	chunks   int
	moves    string    // the result of Moves at the last look
	moved    time.Time // when that last changed
	warned   bool
	missed   bool // the last look found the job nowhere
}

// event is the result of Job.Event.
type event[O any] struct {
	out O
	err error
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

func (w *wait[O]) limit(chunks int) time.Duration {
	if w.Limit > 0 {
		return w.Limit
	}
	return w.Timeout.For(chunks)
}

func (w *wait[O]) listen(ctx context.Context) {
	if w.job.Event == nil {
		w.stage = Polling
		return
	}
	w.event, w.listener = make(chan event[O], 1), make(chan struct{})
	to := w.event
	go func() {
		defer close(w.listener)
		out, err := w.job.Event(ctx)
		to <- event[O]{out, err}
	}()
}

// done waits for the listener, whose ctx has been cancelled.
func (w *wait[O]) done() {
	if w.listener != nil {
		<-w.listener
	}
}

// more is how long to wait after the timeout for a job that makes progress.
func (w *wait[O]) more() time.Duration {
	if w.Limit > 0 || w.moved.IsZero() {
		return 0
	}
	return w.Timeout.Unknown - time.Since(w.moved)
}

// onEvent handles the event.
func (w *wait[O]) onEvent(ctx context.Context, event event[O]) (over bool, _ error) {
	var failure *tasks.Failure
	switch {
	case event.err == nil || errors.As(event.err, &failure):
		return true, w.end(ctx, event.out, event.err)
	case ctx.Err() != nil:
		return true, context.Cause(ctx)
	}
	w.lost(event.err.Error())
	return w.look(ctx)
}

// lost gives up on the event.
func (w *wait[O]) lost(why string) {
	w.event, w.stage = nil, Polling
	w.Logger.Warn("no event of the job, polling its keys", "job", w.job.Name, "why", why)
}

// look reads what Redis has of the job, and its file when Redis has nothing.
func (w *wait[O]) look(ctx context.Context) (over bool, _ error) {
	known := w.known(ctx) // before the rest: a job that is missing now has ended before
	keys, readable := w.keys(ctx)
	if w.event == nil {
		if over, err := w.answer(ctx, keys); over {
			return true, err
		}
		if !known && readable {
			return w.missing()
		}
	}
	w.missed = false
	if known && w.job.Alive != nil {
		if err := w.job.Alive(ctx); err != nil {
			return true, fmt.Errorf("%s: %w", w.job.Name, err)
		}
	}
	if known && w.job.Moves != nil {
		moves, err := w.job.Moves(ctx)
		if err != nil {
			w.Logger.WarnContext(ctx, "cannot read the progress of the job", "job", w.job.Name, "err", err)
		} else if moves != w.moves {
			w.moves, w.moved = moves, time.Now()
		}
	}
	if keys.TotalChunks > w.chunks {
		w.chunks = keys.TotalChunks
		w.deadline.Reset(max(0, w.limit(w.chunks)-time.Since(w.started)))
		w.Logger.DebugContext(ctx, "dynamic timeout", "job", w.job.Name, "chunks", w.chunks, "timeout", w.limit(w.chunks))
	}
	if began := keys.Status != Unknown && keys.Status != Dispatched; !began && !w.warned && time.Since(w.started) >= w.Warn {
		w.warned = true
		w.Logger.WarnContext(ctx, "the job has not begun; are the workers busy, and do they serve its queue?", "job", w.job.Name, "waited", time.Since(w.started).Round(time.Second))
	}
	if keys.ended() && w.grace == nil { // the event is preferred: it knows the reason
		w.grace = time.After(w.Grace)
	}
	return false, nil
}

// known reports whether Redis has the job, or cannot be asked.
func (w *wait[O]) known(ctx context.Context) bool {
	if w.job.Known == nil {
		return true
	}
	known, err := w.job.Known(ctx)
	if err != nil {
		w.Logger.WarnContext(ctx, "cannot look for the job in Redis", "job", w.job.Name, "err", err)
		return true
	}
	return known
}

func (w *wait[O]) keys(ctx context.Context) (_ Keys, readable bool) {
	if w.job.Keys == nil {
		return Keys{}, true
	}
	keys, err := w.job.Keys(ctx)
	if err != nil {
		w.Logger.WarnContext(ctx, "cannot read the keys of the job", "job", w.job.Name, "err", err)
	}
	return keys, err == nil
}

// answer takes the answer that an ended job left, in Redis or else in its file.
func (w *wait[O]) answer(ctx context.Context, keys Keys) (over bool, _ error) {
	if keys.Status == Failed {
		return true, fmt.Errorf("%s: %w", w.job.Name, ErrFailed)
	}
	var failure *tasks.Failure
	if w.job.Stored != nil {
		out, ok, err := w.job.Stored(ctx)
		if ok || errors.As(err, &failure) {
			return true, w.end(ctx, out, err)
		}
		if err != nil {
			w.Logger.WarnContext(ctx, "cannot read the answer of the job", "job", w.job.Name, "err", err)
			return false, nil
		}
	}
	if w.job.File != nil {
		out, ok, err := w.job.File()
		if ok || errors.As(err, &failure) {
			w.stage = File
			return true, w.end(ctx, out, err)
		}
		if err != nil {
			w.Logger.WarnContext(ctx, "cannot read the report of the job", "job", w.job.Name, "err", err)
		}
	}
	if keys.Status == Complete {
		return true, fmt.Errorf("%s: %w", w.job.Name, ErrNoAnswer)
	}
	return false, nil
}

// missing ends the wait for a job that is nowhere, at the second look: between
// two reads of the first it may have ended.
func (w *wait[O]) missing() (over bool, _ error) {
	if w.missed {
		return true, fmt.Errorf("%s: %w", w.job.Name, ErrUnknown)
	}
	w.missed, w.grace = true, time.After(w.Grace)
	return false, nil
}

// end is the end of the job with an answer, or with its failure.
func (w *wait[O]) end(ctx context.Context, out O, failure error) error {
	w.out = out
	if failure != nil {
		return fmt.Errorf("%s: %w", w.job.Name, failure)
	}
	if w.job.Enough == nil {
		return nil
	}
	ok, err := w.job.Enough(ctx)
	if err != nil {
		return fmt.Errorf("%s: check its result: %w", w.job.Name, err)
	}
	if !ok {
		return fmt.Errorf("%s: %w", w.job.Name, ErrNotEnough)
	}
	return nil
}
