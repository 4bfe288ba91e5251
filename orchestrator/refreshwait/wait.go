// Package refreshwait waits for the jobs that the orchestrator started.
//
// It detects the end of a job, and reads the result, in three stages, each the fallback of the previous one:
//
//	event ──no event──▶ polling ──no keys──▶ file
//
// The event of the task system is the fastest. Without it, the progress keys and the result in Redis are polled at the interval
// Poll. If Redis has neither, the report file of the job is read. One timeout covers all stages. It is recomputed when the
// number of chunks becomes known, and extended while the job makes progress. Wait fails immediately for a job that neither
// Redis nor a file contains.
package refreshwait

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"muster/tasks"
)

// Stage identifies how the end of a job was detected.
type Stage string

// The stages in order of preference.
const (
	Event   Stage = "event"
	Polling Stage = "polling"
	File    Stage = "file"
)

// Status is the state of a job in its progress keys.
type Status string

// The values of the status key, in the order of transitions; Unknown means no key. Jobs without a collection phase change from
// Dispatched to Processing.
const (
	Unknown     Status = ""
	Dispatched  Status = "DISPATCHED"  // sent, not started
	Collecting  Status = "COLLECTING"  // collecting items
	Processing  Status = "PROCESSING"  // the number of chunks is known
	Aggregating Status = "AGGREGATING" // all chunks are finished
	Complete    Status = "COMPLETE"
	Failed      Status = "FAILED"
)

// Errors of Wait.
var (
	ErrTimeout   = errors.New("the job did not finish in time")
	ErrNotEnough = errors.New("the job finished with too few results to continue")
	ErrFailed    = errors.New("the job failed; the reason is no longer in Redis")
	ErrNoResult  = errors.New("the job completed, but its report is neither in Redis nor in its directory")
	ErrUnknown   = errors.New("job not found in Redis, which has lost its data; written results remain in the data directory; start the job again to complete it")
)

// A Job describes a job with a result of type O to Wait. All fields are optional.
type Job[O any] struct {
	Name string

	// Event blocks until the job has finished and returns its result, a *tasks.Failure if the job failed, or another error if
	// the result is unknown.
	Event func(ctx context.Context) (O, error)

	// Exists reports whether Redis contains the job. Default: true.
	Exists func(ctx context.Context) (bool, error)

	// Keys reads the progress keys of the job.
	Keys func(ctx context.Context) (Keys, error)

	// Stored reads the result of the job from Redis and reports whether it exists. It returns a *tasks.Failure if the job
	// failed.
	Stored func(ctx context.Context) (O, bool, error)

	// File is like Stored for the report file of the job.
	File func() (O, bool, error)

	// Marker returns a string that changes with each progress of the job. While it changes at least once in Timeout.Unknown,
	// Wait continues after the timeout, because the duration of a scrape depends on the speed of the site.
	Marker func(ctx context.Context) (string, error)

	// Enough reports whether the job has achieved its purpose. Default: true for a successful job.
	Enough func(ctx context.Context) (bool, error)

	// Alive returns an error if no workers can run the job. It is called at each poll.
	Alive func(ctx context.Context) error
}

// A Waiter waits for jobs. The zero value is ready to use.
type Waiter struct {
	Poll    time.Duration // polling interval of keys and file; default 15 s
	Grace   time.Duration // maximum delay of the event after the keys; default 2 s
	Warn    time.Duration // delay of the warning that a job has not started; default 120 s
	Timeout Timeout       // default: DefaultTimeout
	Limit   time.Duration // fixed timeout that replaces Timeout; 0 means none
	Logger  *slog.Logger  // default: slog.Default()
}

// Wait blocks until j has finished, and returns its result and the stage that detected the end. The error is nil if j succeeded
// and Enough returned true. It is ErrNotEnough, with a valid result, if Enough returned false. Otherwise it is the failure of
// the job, ErrFailed, ErrNoResult, ErrUnknown, ErrTimeout, the error of Alive or the cause of ctx.
func Wait[O any](ctx context.Context, w Waiter, j Job[O]) (O, Stage, error) {
	w = w.withDefaults()
	ctx, cancel := context.WithCancel(ctx)
	wait := &wait[O]{Waiter: w, job: j, started: time.Now(), stage: Event}
	defer wait.waitForListener()
	defer cancel()

	wait.listen(ctx)
	wait.deadline = time.NewTimer(wait.limit(0))
	defer wait.deadline.Stop()
	poll := time.NewTicker(w.Poll)
	defer poll.Stop()
	for {
		finished, err := false, error(nil)
		select {
		case <-ctx.Done():
			finished, err = true, context.Cause(ctx)
		case event := <-wait.event:
			finished, err = wait.onEvent(ctx, event)
		case <-wait.deadline.C:
			// The job may have finished since the last poll.
			if finished, err = wait.check(ctx); !finished {
				if more := wait.more(); more > 0 {
					wait.deadline.Reset(more)
					continue
				}
				finished, err = true, fmt.Errorf("%s: %w (%s)", j.Name, ErrTimeout, time.Since(wait.started).Round(time.Second))
			}
		case <-wait.grace:
			wait.grace = nil
			if wait.event != nil {
				wait.abandon("no event after the job finished")
			}
			finished, err = wait.check(ctx)
		case <-poll.C:
			finished, err = wait.check(ctx)
		}
		if finished {
			return wait.out, wait.stage, err
		}
	}
}

// wait is the state of one call of Wait.
type wait[O any] struct {
	Waiter
	job      Job[O]
	out      O
	started  time.Time
	deadline *time.Timer
	event    chan event[O]    // nil after the event was abandoned
	listener chan struct{}    // closed when the listener returns
	grace    <-chan time.Time // runs when the keys show that the job has finished, and before the second poll of a missing job
	stage    Stage
	chunks   int
	marker   string    // last result of Marker
	progress time.Time // time at which it last changed
	warned   bool
	missed   bool // the last poll did not find the job
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

// waitForListener waits for the listener. Its context has been canceled.
func (w *wait[O]) waitForListener() {
	if w.listener != nil {
		<-w.listener
	}
}

// more returns the extension of the timeout for a job that makes progress.
func (w *wait[O]) more() time.Duration {
	if w.Limit > 0 || w.progress.IsZero() {
		return 0
	}
	return w.Timeout.Unknown - time.Since(w.progress)
}

// onEvent handles the event of the job.
func (w *wait[O]) onEvent(ctx context.Context, event event[O]) (finished bool, _ error) {
	var failure *tasks.Failure
	switch {
	case event.err == nil || errors.As(event.err, &failure):
		return true, w.end(ctx, event.out, event.err)
	case ctx.Err() != nil:
		return true, context.Cause(ctx)
	}
	w.abandon(event.err.Error())
	return w.check(ctx)
}

// abandon stops waiting for the event.
func (w *wait[O]) abandon(why string) {
	w.event, w.stage = nil, Polling
	w.Logger.Warn("polling the keys of the job instead of waiting for its event", "job", w.job.Name, "why", why)
}

// check reads the state of the job from Redis, or from its file if Redis does not contain it.
func (w *wait[O]) check(ctx context.Context) (finished bool, _ error) {
	known := w.jobExists(ctx) // first, because a job that is missing now has finished before the following reads
	keys, readable := w.keys(ctx)
	if w.event == nil {
		if finished, err := w.result(ctx, keys); finished {
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
	if known && w.job.Marker != nil {
		marker, err := w.job.Marker(ctx)
		if err != nil {
			w.Logger.WarnContext(ctx, "cannot read the progress of the job", "job", w.job.Name, "err", err)
		} else if marker != w.marker {
			w.marker, w.progress = marker, time.Now()
		}
	}
	if keys.TotalChunks > w.chunks {
		w.chunks = keys.TotalChunks
		w.deadline.Reset(max(0, w.limit(w.chunks)-time.Since(w.started)))
		w.Logger.DebugContext(ctx, "dynamic timeout", "job", w.job.Name, "chunks", w.chunks, "timeout", w.limit(w.chunks))
	}
	if started := keys.Status != Unknown && keys.Status != Dispatched; !started && !w.warned && time.Since(w.started) >= w.Warn {
		w.warned = true
		w.Logger.WarnContext(ctx, "the job has not started; check that workers are idle and serve its queue", "job", w.job.Name, "waited", time.Since(w.started).Round(time.Second))
	}
	if keys.finished() && w.grace == nil { // the event is preferred, because it contains the reason of a failure
		w.grace = time.After(w.Grace)
	}
	return false, nil
}

// jobExists reports whether Redis contains the job. It returns true on an error.
func (w *wait[O]) jobExists(ctx context.Context) bool {
	if w.job.Exists == nil {
		return true
	}
	known, err := w.job.Exists(ctx)
	if err != nil {
		w.Logger.WarnContext(ctx, "cannot find the job in Redis", "job", w.job.Name, "err", err)
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

// result reads the result of a finished job from Redis or from its file.
func (w *wait[O]) result(ctx context.Context, keys Keys) (finished bool, _ error) {
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
			w.Logger.WarnContext(ctx, "cannot read the result of the job", "job", w.job.Name, "err", err)
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
		return true, fmt.Errorf("%s: %w", w.job.Name, ErrNoResult)
	}
	return false, nil
}

// missing stops the wait for a job that two consecutive polls did not find. One is not enough, because the job may finish
// between two reads of a poll.
func (w *wait[O]) missing() (finished bool, _ error) {
	if w.missed {
		return true, fmt.Errorf("%s: %w", w.job.Name, ErrUnknown)
	}
	w.missed, w.grace = true, time.After(w.Grace)
	return false, nil
}

// end finishes the wait with a result or a failure of the job.
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
		return fmt.Errorf("%s: check the result: %w", w.job.Name, err)
	}
	if !ok {
		return fmt.Errorf("%s: %w", w.job.Name, ErrNotEnough)
	}
	return nil
}

// Timeout computes the timeout of a job from its size.
type Timeout struct {
	Workers  int           // concurrent chunks; default 8; For uses at least 1
	PerChunk time.Duration // maximum duration of a chunk; default 900 s
	Buffer   float64       // safety factor; default 1.5
	Floor    time.Duration // minimum timeout for a known number of chunks; default 600 s
	Unknown  time.Duration // timeout while the number of chunks is unknown, and of a job with Marker without progress; default 1800 s
}

// DefaultTimeout is the timeout of a proxy refresh, whose chunks of 100 slow proxies have been measured at six minutes.
var DefaultTimeout = Timeout{Workers: 8, PerChunk: 900 * time.Second, Buffer: 1.5, Floor: 600 * time.Second, Unknown: 1800 * time.Second}

// For returns the timeout for a number of chunks: ⌈chunks / Workers⌉ × PerChunk × Buffer, at least Floor. It saturates on
// overflow.
func (t Timeout) For(chunks int) time.Duration {
	if chunks <= 0 {
		return t.Unknown
	}
	workers := max(t.Workers, 1)
	rounds := chunks / workers
	if chunks%workers > 0 {
		rounds++
	}
	d := float64(rounds) * float64(t.PerChunk) * t.Buffer
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}
	return max(time.Duration(d), t.Floor)
}
