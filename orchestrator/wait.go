package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// Errors of the wait for a job.
var (
	ErrTimeout   = errors.New("the job did not finish in time")
	ErrNotEnough = errors.New("the job finished with too few results to continue")
	ErrFailed    = errors.New("the job failed; the reason is no longer in Redis")
	ErrNoResult  = errors.New("the job completed, but its report is neither in Redis nor in its directory")
	ErrUnknown   = errors.New("job not found in Redis, which has lost its data; written results remain in the data directory; start the job again to complete it")
)

// showEvery is the interval at which the progress of an awaited job is displayed.
const showEvery = 250 * time.Millisecond

// waits holds the parts of an orchestrator that waiting for a job requires.
type waits struct {
	system *System
	logger *slog.Logger
	alive  func(context.Context) error // returns an error when no workers run
}

// await waits for a job as job describes it, with the prefix of its progress keys, and displays its progress.
func await[O any](ctx context.Context, w *waits, track *monitor.Track, run *tasks.Run[O], prefix string, progress func(context.Context, tasktype.Progress) monitor.Progress, job awaited[O]) (O, error) {
	showing, stop := context.WithCancel(ctx)
	var shown sync.WaitGroup
	shown.Go(func() {
		look := time.NewTicker(showEvery)
		defer look.Stop()
		for {
			select {
			case <-showing.Done():
				return
			case <-look.C:
				if p, err := run.Progress(showing); err == nil { // the wait reports errors
					track.Update(progress(showing, p))
				}
			}
		}
	})
	defer func() { stop(); shown.Wait() }()

	stored := job.stored
	job.stored = func(ctx context.Context) (O, bool, error) {
		out, ok, err := stored(ctx)
		return out, ok, withoutTask(err)
	}
	job.event = func(ctx context.Context) (O, error) {
		out, err := run.Wait(ctx)
		return out, withoutTask(err)
	}
	job.exists = func(ctx context.Context) (bool, error) {
		_, err := run.Status(ctx)
		if errors.Is(err, tasks.ErrNotFound) {
			return false, nil
		}
		return true, err
	}
	job.keys = func(ctx context.Context) (progressKeys, error) {
		return readKeys(ctx, w.system.Client.Redis(), prefix, run.ID())
	}
	job.alive = w.alive
	cfg := w.system.cfg()
	out, stage, err := waitFor(ctx, waiter{cfg.Wait, cfg.Workers.Concurrency * max(1, cfg.Workers.Processes), w.logger}, job)
	w.logger.DebugContext(ctx, "job wait finished", "job", run.ID(), "stage", stage, "err", err)
	return out, err
}

// jobError is the failure of a job without the name of the task, which users do not know.
type jobError struct{ failure *tasks.Failure }

func (e *jobError) Error() string { return e.failure.Message }
func (e *jobError) Unwrap() error { return e.failure }

// withoutTask removes the name of the task from the error of a job.
func withoutTask(err error) error {
	if f, ok := errors.AsType[*tasks.Failure](err); ok {
		return &jobError{f}
	}
	return err
}

// An awaited job has a result of type O.
type awaited[O any] struct {
	name string

	// event blocks until the job has finished and returns its result, a *tasks.Failure if the job failed, or another error if
	// the result is unknown.
	event func(ctx context.Context) (O, error)

	// exists reports whether Redis contains the job.
	exists func(ctx context.Context) (bool, error)

	keys func(ctx context.Context) (progressKeys, error)

	// stored reads the result of the job from Redis and reports whether it exists. It returns a *tasks.Failure if the job
	// failed.
	stored func(ctx context.Context) (O, bool, error)

	// file is like stored for the report file of the job.
	file func() (O, bool, error)

	// alive returns an error if no workers can run the job.
	alive func(ctx context.Context) error

	// marker returns a string that changes with each progress of the job. While it changes at least once in wait.unknown, the
	// wait continues after the timeout, because the duration of a scrape depends on the speed of the site. Optional.
	marker func(ctx context.Context) (string, error)

	// enough reports whether the job has achieved its purpose. Default: true for a successful job.
	enough func(ctx context.Context) (bool, error)
}

// waiter is how to wait for jobs.
type waiter struct {
	config.Wait
	workers int // concurrent chunks
	logger  *slog.Logger
}

// limit returns the timeout of a job with a number of chunks, 0 while it is unknown.
func (w waiter) limit(chunks int) time.Duration {
	switch {
	case w.Timeout > 0:
		return w.Timeout
	case chunks <= 0:
		return w.Unknown
	}
	rounds := (chunks-1)/max(w.workers, 1) + 1
	d := float64(rounds) * float64(w.PerChunk) * w.Buffer
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}
	return max(time.Duration(d), w.Floor)
}

// grace is the maximum delay of the event after the keys, and between the two polls that do not find a job.
const grace = 2 * time.Second

// The stages of a wait, each the fallback of the previous one: the event of the task system is the fastest. Without it, the progress
// keys and the result in Redis are polled. If Redis has neither, the report file of the job is read.
const (
	stageEvent   = "event"
	stagePolling = "polling"
	stageFile    = "file"
)

// wait is the state of one call of waitFor.
type wait[O any] struct {
	waiter
	awaited[O]
	started  time.Time
	deadline *time.Timer // of all stages; recomputed when the number of chunks becomes known, and extended by progress
	poll     *time.Timer
	events   chan result[O] // nil after the event was abandoned
	chunks   int
	mark     string    // last result of marker
	moved    time.Time // time at which it last changed
	warned   bool
	late     bool // the keys show that the job has finished, but its event is missing
	missed   bool // the last poll did not find the job

	ended bool
	out   O
	stage string // that detected the end
	err   error
}

type result[O any] struct {
	out O
	err error
}

// waitFor blocks until j has finished, and returns its result and the stage that detected the end. The error is nil if j succeeded
// and enough returned true. It is ErrNotEnough, with a valid result, if enough returned false. Otherwise it is the failure of
// the job, ErrFailed, ErrNoResult, ErrUnknown, ErrTimeout, the error of alive or the cause of ctx.
func waitFor[O any](ctx context.Context, w waiter, j awaited[O]) (O, string, error) {
	listening, cancel := context.WithCancel(ctx)
	s := &wait[O]{waiter: w, awaited: j, started: time.Now(), stage: stageEvent, events: make(chan result[O], 1)}
	var listener sync.WaitGroup
	defer listener.Wait()
	defer cancel()
	events := s.events
	listener.Go(func() {
		out, err := j.event(listening)
		events <- result[O]{out, err}
	})
	s.deadline, s.poll = time.NewTimer(s.limit(0)), time.NewTimer(w.Poll)
	defer s.deadline.Stop()
	defer s.poll.Stop()
	for !s.ended {
		select {
		case <-ctx.Done():
			s.ended, s.err = true, context.Cause(ctx)
		case e := <-s.events:
			switch {
			case e.err == nil || isFailure(e.err):
				s.settle(ctx, e.out, e.err)
			case ctx.Err() == nil:
				s.abandonEvent(e.err.Error())
				s.check(ctx)
			}
		case <-s.deadline.C:
			s.check(ctx) // it may have finished since the last poll
			if more := s.Unknown - time.Since(s.moved); !s.ended && s.Timeout == 0 && more > 0 {
				s.deadline.Reset(more)
			} else if !s.ended {
				s.end(fmt.Errorf("%w (%s)", ErrTimeout, time.Since(s.started).Round(time.Second)))
			}
		case <-s.poll.C:
			s.poll.Reset(w.Poll)
			if s.late && s.events != nil {
				s.abandonEvent("no event after the job finished")
			}
			s.check(ctx)
		}
	}
	return s.out, s.stage, s.err
}

func isFailure(err error) bool { return errors.As(err, new(*tasks.Failure)) }

// end ends the wait.
func (s *wait[O]) end(err error) {
	s.ended = true
	if err != nil {
		s.err = fmt.Errorf("%s: %w", s.name, err)
	}
}

// settle ends the wait with a result or a failure of the job.
func (s *wait[O]) settle(ctx context.Context, out O, failure error) {
	s.out = out
	if failure != nil || s.enough == nil {
		s.end(failure)
		return
	}
	switch ok, err := s.enough(ctx); {
	case err != nil:
		s.end(fmt.Errorf("check the result: %w", err))
	case !ok:
		s.end(ErrNotEnough)
	default:
		s.end(nil)
	}
}

// abandonEvent stops waiting for the event.
func (s *wait[O]) abandonEvent(why string) {
	s.events, s.stage = nil, stagePolling
	s.logger.Warn("polling the keys of the job instead of waiting for its event", "job", s.name, "why", why)
}

// warn logs that a part of the state of the job cannot be read.
func (s *wait[O]) warn(ctx context.Context, what string, err error) {
	if err != nil {
		s.logger.WarnContext(ctx, "cannot read "+what+" of the job", "job", s.name, "err", err)
	}
}

// check reads the state of the job from Redis, or from its file if Redis does not contain it.
func (s *wait[O]) check(ctx context.Context) {
	known, err := s.exists(ctx) // first, because a job that is missing now has finished before the following reads
	s.warn(ctx, "the state", err)
	known = known || err != nil
	keys, err := s.keys(ctx)
	s.warn(ctx, "the keys", err)
	if s.events == nil {
		if s.readResult(ctx, keys.Status); s.ended {
			return
		}
		if !known && err == nil { // a second poll follows, because the job may finish between two reads of a poll
			if s.missed {
				s.end(ErrUnknown)
			}
			s.missed = true
			s.poll.Reset(min(s.Poll, grace))
			return
		}
	}
	s.missed = false
	if known {
		if err := s.alive(ctx); err != nil {
			s.end(err)
			return
		}
		s.look(ctx)
	}
	if keys.TotalChunks > s.chunks {
		s.chunks = keys.TotalChunks
		s.deadline.Reset(max(0, s.limit(s.chunks)-time.Since(s.started)))
		s.logger.DebugContext(ctx, "dynamic timeout", "job", s.name, "chunks", s.chunks, "timeout", s.limit(s.chunks))
	}
	if idle := keys.Status == "" || keys.Status == statusDispatched; idle && !s.warned && time.Since(s.started) >= s.Warn {
		s.warned = true
		s.logger.WarnContext(ctx, "the job has not started; check that workers are idle and serve its queue", "job", s.name, "waited", time.Since(s.started).Round(time.Second))
	}
	if keys.finished() { // the event is preferred, because it contains the reason of a failure
		s.late = true
		s.poll.Reset(grace)
	}
}

// look notes the time of progress.
func (s *wait[O]) look(ctx context.Context) {
	if s.marker == nil {
		return
	}
	mark, err := s.marker(ctx)
	s.warn(ctx, "the progress", err)
	if err == nil && mark != s.mark {
		s.mark, s.moved = mark, time.Now()
	}
}

// readResult ends the wait with the result of a finished job in Redis or in its file.
func (s *wait[O]) readResult(ctx context.Context, status string) {
	if status == statusFailed {
		s.end(ErrFailed)
		return
	}
	out, ok, err := s.stored(ctx)
	switch {
	case ok || isFailure(err):
		s.settle(ctx, out, err)
		return
	case err != nil:
		s.warn(ctx, "the result", err)
		return
	}
	if out, ok, err = s.file(); ok || isFailure(err) {
		s.stage = stageFile
		s.settle(ctx, out, err)
		return
	}
	s.warn(ctx, "the report", err)
	if status == statusComplete {
		s.end(ErrNoResult)
	}
}
