package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// Run is one attempt at a node, as its handler sees it.
type Run struct {
	Info tasktype.Info

	w      *Worker
	b      *batch
	it     *item
	fl     *flow
	g      *graph.Graph
	id     graph.ID
	spec   *graph.Spec
	cancel context.CancelCauseFunc
	freed  chan struct{} // closed when the slot must be freed without waiting for the handler

	expires time.Time        // by this machine's clock; zero for never
	began   time.Time        // when the handler was called; zero if it was not
	took    time.Duration    // how long it ran
	said    tasktype.Outcome // what became of it; empty if that is not known
	code    string           // of the failure

	once  sync.Once // closes freed
	cause error     // why the slot was freed; set before freed is closed

	mu       sync.Mutex // guards the fields below
	lastSent time.Time
	sent     bool   // progress was written
	over     bool   // the handler has returned or was given up: nothing is written any more
	token    string // that was made, if there is one; hash is its hash
	hash     string
}

type runKey struct{}

// RunFrom returns the run that ctx belongs to, or nil.
func RunFrom(ctx context.Context) *Run {
	r, _ := ctx.Value(runKey{}).(*Run)
	return r
}

// progressEvery is how often a task's own progress is written.
const progressEvery = 250 * time.Millisecond

// SetProgress records how far the run is.
func (r *Run) SetProgress(done, total int) {
	if r.w == nil {
		return
	}
	r.mu.Lock()
	now := time.Now()
	send := !r.over && (now.Sub(r.lastSent) >= progressEvery || done >= total)
	if send {
		r.lastSent, r.sent = now, true
	}
	r.mu.Unlock()
	if !send {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := r.w.e.store.Flows.SetProgress(ctx, r.fl.Flow, r.Info.Node, done, total); err != nil {
		r.w.log.Debug("progress was not written", "workflow", r.Info.Workflow, "node", r.Info.Node, "error", err)
	}
}

// close ends the writing of progress and tokens, and reports whether there was any.
func (r *Run) close() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	return r.sent || r.token != ""
}

// PublishKey writes a progress key of the workflow.
func (r *Run) PublishKey(ctx context.Context, name, value string) {
	if r.w == nil || r.fl.g.Progress == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := r.w.e.publish(ctx, r.fl, name, value); err != nil {
		r.w.log.Warn("progress key was not written", "workflow", r.Info.Workflow, "key", name, "error", err)
	}
}

// free gives the slot back whether or not the handler returns.
func (r *Run) free(cause error) {
	r.cancel(cause)
	r.once.Do(func() {
		r.cause = cause
		close(r.freed)
	})
}

var (
	errHard   = errors.New("hard time limit")
	errKilled = fmt.Errorf("killed: %w", ErrShutdown)
)

// defaultTimeout is the soft time limit of tasks that name none.
const defaultTimeout = time.Hour

// hardMargin is how much later the hard limit is when none is named.
const hardMargin = 10 * time.Second

func limits(sp *graph.Spec) (soft, hard time.Duration) {
	soft = defaultTimeout
	if sp.Timeout != nil {
		soft = time.Duration(*sp.Timeout) * time.Millisecond
	}
	if soft > 0 {
		hard = soft + hardMargin
	}
	if sp.Hard != nil {
		hard = time.Duration(*sp.Hard) * time.Millisecond
	}
	return soft, hard
}

// answered is the end of a call of a handler: why the engine ended it, or else the handler's error or answer.
type answered struct {
	answer  Answer
	err     *handlerError
	ended   error
	pending bool
}

// call runs the handler under its time limits. When it returns, the slot may be used again.
func (r *Run) call(h *Handler, input []byte) answered {
	soft, hard := limits(r.spec)
	ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), runKey{}, r))
	r.cancel = cancel
	r.w.track(r)
	defer r.w.untrack(r)
	defer cancel(nil)
	if soft > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, soft)
		defer stop()
	}
	if hard > 0 {
		t := time.AfterFunc(hard, func() { r.free(errHard) })
		defer t.Stop()
	}
	done := make(chan answered, 1)
	go func() {
		// What is sent when user code ends the goroutine, wherever it does.
		a := answered{err: errLeft}
		defer func() { done <- a }()
		defer func() {
			if p := recover(); p != nil {
				a.err = r.panicked(p, "")
			}
		}()
		var answer Answer
		next := func(ctx context.Context) error {
			var err error
			answer, err = h.Run(ctx, input)
			return err
		}
		for i := len(h.Wrap) - 1; i >= 0; i-- {
			mw, inner := h.Wrap[i], next
			next = func(ctx context.Context) error { return mw(ctx, r.Info, inner) }
		}
		err := next(ctx)
		if err == nil {
			a = answered{answer: answer}
			return
		}
		switch cause := context.Cause(ctx); {
		case IsPending(err):
			a = answered{pending: true}
		case errors.Is(cause, ErrShutdown), errors.Is(cause, errRevoked):
			a = answered{ended: cause}
		default:
			a.err = r.readError(ctx, h, err)
		}
	}()
	select {
	case a := <-done:
		return a
	case <-r.freed:
		select {
		case a := <-done:
			return a
		default:
		}
		return answered{ended: r.cause}
	}
}

// mostLost is how many workers may die with a node before it fails.
const mostLost = 10

// attempt runs the handler of an item and returns the result. ok is false if there is nothing to store.
func (w *Worker) attempt(ctx context.Context, s *slot, b *batch, it *item) (res result, ok bool) {
	sp := &it.g.Specs[it.g.Nodes[it.id.Index].Spec]
	r := &Run{w: w, b: b, it: it, fl: it.fl, g: it.g, id: it.id, spec: sp, freed: make(chan struct{}), cancel: func(error) {},
		Info: tasktype.Info{Workflow: it.fl.ID, Node: it.node, Task: sp.Task, Queue: sp.QueueName(), Priority: sp.Priority,
			Attempt: it.rec.Attempts + 1, Worker: w.cfg.Name, Key: it.fl.ID + "." + it.node, Headers: it.fl.g.Headers}}
	w.stats.begun.Add(1)
	err := w.insist(func() error {
		var err error
		res, ok, err = w.try(within(ctx), s, b, r)
		return err
	})
	r.close()
	if err != nil {
		return res, false // the worker is killed
	}
	if ok {
		res.item, res.began, res.took = it, r.began, r.took
		res.forget = r.close() || it.rec.State == 'Q'
		w.tell(r)
		if it.id.Inst >= 0 && it.fl.g.Progress != "" && res.kind != store.ChangeAgain {
			w.touch(it.fl)
		}
	}
	return res, ok
}

// try makes an attempt, or returns an error: then Redis could not be asked for what is needed before the call of the
// handler, and the attempt can be tried again.
func (w *Worker) try(ctx context.Context, s *slot, b *batch, r *Run) (result, bool, error) {
	if r.it.lost > mostLost {
		return w.failed(r, tasktype.CodeLost, fmt.Sprintf("its worker died %d times", r.it.lost)), true, nil
	}
	if at := r.it.rec.Expires; at > 0 {
		r.expires = time.UnixMilli(at).Add(-b.skew)
		if w.e.clock.Now().After(r.expires) {
			return w.expired(ctx, r)
		}
	}
	if r.spec.Sub > 0 {
		return w.expand(ctx, s, r)
	}
	h := w.handlers[r.spec.Task]
	outside := r.spec.External && (h == nil || !w.cfg.Manual) // a test may have a handler answer in its place
	if h == nil && !outside {
		return w.unregistered(ctx, r), true, nil
	}
	if r.it.lost >= store.Suspect {
		leave, mine, err := w.alone(ctx, b)
		switch {
		case err != nil:
			return result{}, false, err
		case !mine:
			return result{}, false, nil
		case leave == nil:
			return w.again(r, jitter(suspectPause), ""), true, nil
		}
		defer leave()
	}
	if r.spec.RateN > 0 {
		wait, err := w.e.store.Starts.Allow(ctx, r.spec.Task, r.spec.RateN, time.Duration(r.spec.RatePer)*time.Millisecond)
		if err != nil {
			return result{}, false, err
		}
		if wait > 0 {
			return w.again(r, wait+time.Millisecond-1, ""), true, nil
		}
	}
	if outside {
		return w.open(r), true, nil
	}
	input, err := w.inputFor(ctx, s, r)
	if input == nil {
		return result{}, false, err
	}
	r.began = w.e.clock.Now()
	a := r.call(h, input)
	r.took = w.e.clock.Now().Sub(r.began)
	res, ok := w.outcome(r, a)
	return res, ok, nil
}

// expired returns the result of a node whose time is over, with its last error if it has run before. A handler's own
// error may have the same code: that task has failed, and was not revoked.
func (w *Worker) expired(ctx context.Context, r *Run) (result, bool, error) {
	message := "not begun, or not called again, before it expired"
	if r.it.rec.Attempts > 0 {
		raws, err := w.e.store.Flows.Fields(ctx, r.fl.Flow, []string{store.ErrorField(r.Info.Node)})
		if err != nil {
			return result{}, false, err
		}
		message = fmt.Sprintf("not begun again before it expired; attempt %d failed: %s", r.it.rec.Attempts, raws[0])
	}
	res := w.failed(r, tasktype.CodeExpired, message)
	r.said, res.kind = tasktype.OutcomeRevoked, "X"
	return res, true, nil
}

// inputFor returns the input of a run. It is nil without an error if there is nothing to run any more.
func (w *Worker) inputFor(ctx context.Context, s *slot, r *Run) ([]byte, error) {
	input, err := r.input(ctx, s)
	switch {
	case errors.Is(err, ErrUnknown) || errors.Is(err, errNoValue):
		return nil, nil // the workflow is gone, or what this comes after was lost with Redis
	case errors.Is(err, errUnreadable):
		return nil, w.e.giveUp(ctx, r.fl.Flow, err)
	case err != nil:
		return nil, err
	}
	return input, nil
}

// input returns the input of a run. What the slot has just run it need not ask Redis for.
func (r *Run) input(ctx context.Context, s *slot) ([]byte, error) {
	if n := &r.g.Nodes[r.id.Index]; n.Kind != graph.Catch && r.it.rec.Input == nil && n.In > 0 && r.id.Inst < 0 {
		if v, ok := s.values[r.fl.ID+"/"+r.id.At(n.In-1, -1).String()]; ok {
			return bound(r.spec, v), nil
		}
	}
	return r.w.e.inputOf(ctx, r.fl, r.g, r.id, &r.it.rec)
}

// inputOf returns the input of a node, with what is bound to its task.
func (e *Engine) inputOf(ctx context.Context, fl *flow, g *graph.Graph, id graph.ID, rec *store.Record) ([]byte, error) {
	input, err := e.givenTo(ctx, fl, g, id, rec)
	if err != nil {
		return nil, err
	}
	return bound(&g.Specs[g.Nodes[id.Index].Spec], input), nil
}

// bound adds to an input what is bound to the task.
func bound(sp *graph.Spec, input []byte) []byte {
	for _, second := range slices.Backward(sp.Bind) {
		input = slices.Concat([]byte(`{"first":`), input, []byte(`,"second":`), second, []byte("}"))
	}
	return input
}

// givenTo returns what a node gets: its literal, or what it comes after.
func (e *Engine) givenTo(ctx context.Context, fl *flow, g *graph.Graph, id graph.ID, rec *store.Record) ([]byte, error) {
	n := &g.Nodes[id.Index]
	switch {
	case n.Kind == graph.Catch:
		of := id.At(n.In-1, -1)
		if id.Inst >= 0 {
			if len(n.Args) > 0 {
				if id.Inst >= len(n.Args) {
					return nil, fmt.Errorf("workflow %s %w: it has no node %s", fl.ID, errUnreadable, id)
				}
				of = id.At(n.Args[id.Inst], -1)
			} else {
				of.Inst = id.Inst
			}
		}
		f, err := e.newValues(fl).failure(ctx, of)
		if err != nil {
			return nil, err
		}
		return encodeFailure(f), nil
	case rec.Input != nil:
		return rec.Input, nil
	case n.In > 0 && id.Inst < 0:
		return e.newValues(fl).value(ctx, id.At(n.In-1, -1))
	}
	return nil, fmt.Errorf("node %s of workflow %s: %w: it has no input", id, fl.ID, errUnreadable)
}

// outcome returns the result to store for the end of a call.
func (w *Worker) outcome(r *Run, a answered) (result, bool) {
	e := a.err
	switch {
	case errors.Is(a.ended, errRevoked):
		r.said, r.code = tasktype.OutcomeRevoked, tasktype.CodeRevoked
		w.tell(r)
		return result{}, false // the node is terminal already
	case errors.Is(a.ended, ErrShutdown):
		r.said = tasktype.OutcomeReturned
		return w.again(r, 0, ""), true
	case errors.Is(a.ended, errHard):
		return w.failed(r, tasktype.CodeHardTimeout, "still running after its hard time limit"), true
	case a.pending:
		return w.open(r), true
	case e == nil:
		return w.succeeded(r, a.answer), true
	case e.again != nil:
		r.said = tasktype.OutcomeAgain
		return w.again(r, *e.again, ""), true
	case e.permanent, r.Info.Attempt > r.spec.MaxRetry:
		return w.failed(r, e.code, e.message), true
	}
	d := retryPause(r.spec, r.Info.Attempt, w.cfg.Manual)
	if e.delay != nil {
		d = *e.delay
	}
	if !r.expires.IsZero() && w.e.clock.Now().Add(d).After(r.expires) {
		return w.failed(r, e.code, e.message+" (it expires before another attempt)"), true
	}
	r.said, r.code = tasktype.OutcomeRetry, e.code
	res := w.again(r, d, e.message)
	res.attempts++
	res.state = "T"
	return res, true
}

// succeeded returns the value or the plan that a handler returned.
func (w *Worker) succeeded(r *Run, a Answer) result {
	if a.Planned {
		r.said = tasktype.OutcomePlanned
		return w.plan(r, a.Plan)
	}
	if len(a.Value) > w.cfg.MaxResult {
		return w.failed(r, tasktype.CodeResult, fmt.Sprintf("result has %d bytes, more than the %d allowed: store it and return a key",
			len(a.Value), w.cfg.MaxResult))
	}
	r.said = tasktype.OutcomeSuccess
	return result{kind: "S", body: a.Value}
}

// worth asks the user's function whether an error is worth another attempt. If it panics, the answer is no.
func (w *Worker) worth(ask func(error) bool, err error) (yes bool) {
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("RetryIf panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	return ask(err)
}

// maxMessage bounds the message of a failure.
const maxMessage = 4096

func clip(s string) string {
	if len(s) > maxMessage {
		return s[:maxMessage] + "…"
	}
	return s
}

// backoff returns how long to wait after the given attempt, at most.
func backoff(sp *graph.Spec, attempt int) time.Duration {
	base, limit := sp.Base, sp.Cap
	if sp.Fixed {
		return time.Duration(max(0, base)) * time.Millisecond
	}
	if base == 0 && limit == 0 {
		base, limit = 1000, 600_000
	}
	if limit == 0 {
		limit = 600_000
	}
	top := limit
	if shift := attempt - 1; shift < 40 && base<<shift > 0 {
		top = min(limit, base<<shift)
	}
	return time.Duration(max(0, top)) * time.Millisecond // a sender can set any values
}

// retryPause returns how long to wait after the given attempt; with longest as long as it can be.
func retryPause(sp *graph.Spec, attempt int, longest bool) time.Duration {
	d := backoff(sp, attempt)
	if longest || sp.Fixed {
		return d
	}
	// Full jitter, as in https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/.
	return time.Duration(rand.Int64N(int64(d)+1)) / time.Millisecond * time.Millisecond
}

// failed returns the failure of a run.
func (w *Worker) failed(r *Run, code, message string) result {
	r.said, r.code = tasktype.OutcomeFailure, code
	return result{kind: "F", message: code, body: encodeFailure(&tasktype.Failure{Task: r.Info.Task, Node: r.Info.Node,
		Attempts: r.Info.Attempt, Code: code, Message: clip(message)})}
}

// again returns the result of a node that is to run again in d. It uses up no attempt.
func (w *Worker) again(r *Run, d time.Duration, message string) result {
	return result{kind: store.ChangeAgain, attempts: r.it.rec.Attempts, lost: r.it.lost, delay: max(0, d), state: "D", message: message}
}

// unknownPause is how long a node waits for the first time when no live worker has a handler for it. It doubles each
// time.
const unknownPause = 200 * time.Millisecond

// patient reports whether a node that no worker can run, and that was put back so many times, is put back once more.
func (w *Worker) patient(times int) bool {
	return times < 30 && unknownPause<<times-unknownPause < w.cfg.HandlerWait
}

// unregistered returns the result of a task that this worker has no handler for. The task is put back as long as
// another worker of the queue has a handler. If none has, it fails after HandlerWait, in which such a worker may start.
func (w *Worker) unregistered(ctx context.Context, r *Run) result {
	said := fmt.Sprintf("worker %s has no handler for %s", w.cfg.Name, r.Info.Task)
	if w.another(ctx, r.Info.Queue, func(o *tasktype.Worker) bool { return slices.Contains(o.Tasks, r.Info.Task) }) {
		w.log.Debug("task without a handler here is left to another worker", "task", r.Info.Task, "workflow", r.Info.Workflow)
		return w.again(r, jitter(unknownPause), said)
	}
	if !w.patient(r.it.lost) {
		return w.failed(r, tasktype.CodeUnregistered, fmt.Sprintf("no worker of queue %s has a handler for %s: is the worker older than the sender, or was Handle forgotten? %s",
			r.Info.Queue, r.Info.Task, w.knows()))
	}
	w.log.Warn("task without a handler here is put back", "task", r.Info.Task, "workflow", r.Info.Workflow)
	res := w.again(r, unknownPause<<r.it.lost, said+", and no other live worker of the queue has one")
	res.lost++
	return res
}

// knows names the tasks that this worker has handlers for.
func (w *Worker) knows() string {
	names := slices.Sorted(maps.Keys(w.handlers))
	more := ""
	if most := 20; len(names) > most {
		names, more = names[:most], ", …"
	}
	return fmt.Sprintf("Worker %s has %s%s", w.cfg.Name, strings.Join(names, ", "), more)
}

// maxDepth bounds how deep plans are nested: the ids of nodes grow with it.
const maxDepth = 1000

// plan returns the result that puts the signature of a planner in the place of its node.
func (w *Worker) plan(r *Run, s *graph.Sig) result {
	if strings.Count(r.Info.Node, ":") >= maxDepth {
		return w.failed(r, tasktype.CodePlan, fmt.Sprintf("plans are nested %d deep: does a planner answer with itself?", maxDepth))
	}
	if r.fl.g.Every != nil {
		s = s.ForSend(&graph.Opts{Every: *r.fl.g.Every})
	}
	g, err := graph.Compile(s)
	if err != nil {
		return w.failed(r, tasktype.CodePlan, err.Error())
	}
	return w.planned(r, g)
}

// expand runs a member of a map whose body is a graph: the graph takes its place.
func (w *Worker) expand(ctx context.Context, s *slot, r *Run) (result, bool, error) {
	element, err := w.inputFor(ctx, s, r)
	if element == nil {
		return result{}, false, err
	}
	r.said = tasktype.OutcomePlanned
	return w.planned(r, r.g.Subs[r.spec.Sub-1].With(element)), true, nil
}

// planned returns the result that puts a graph in the place of a node.
func (w *Worker) planned(r *Run, g *graph.Graph) result {
	g.Created = w.e.clock.Now().UnixMilli()
	grow, err := grown(g, r.Info.Node)
	if err != nil {
		return w.failed(r, tasktype.CodePlan, err.Error())
	}
	return result{kind: store.ChangePlan, plan: &grow}
}

// suspects holds a value while a suspected node runs. Only one of them runs in a process: if the process dies, the
// others were not the cause.
var suspects = make(chan struct{}, 1)

// suspectPause is about how long a suspected node is put back when another one runs in this process.
const suspectPause = 100 * time.Millisecond

// alone lets a suspected node run if no other one runs in this process, until leave is called; leave is nil if another
// one runs. mine is false if the worker does not have the batch any more.
func (w *Worker) alone(ctx context.Context, b *batch) (leave func(), mine bool, err error) {
	select {
	case suspects <- struct{}{}:
	default:
		return nil, true, nil
	}
	leave = func() { <-suspects }
	b.mu.Lock()
	id := b.id
	b.mu.Unlock()
	mine, err = w.e.store.Batches.Enter(ctx, b.shard, w.cfg.Name, id)
	if err != nil || !mine {
		leave()
		return nil, mine, err
	}
	return leave, true, nil
}

// jitter returns a random time from d to 2d.
func jitter(d time.Duration) time.Duration { return d + rand.N(d) }

// storeTimeout bounds the store calls of one step.
const storeTimeout = 30 * time.Second

// limited is a context with a deadline for calls to Redis. Unlike that of the standard library it needs no timer.
type limited struct {
	context.Context
	until time.Time
}

// within returns a context for the store calls of one step. It does not end with ctx: a worker that stops must still
// store its results.
func within(ctx context.Context) context.Context {
	return limited{context.WithoutCancel(ctx), time.Now().Add(storeTimeout)}
}

// Deadline implements context.Context.
func (l limited) Deadline() (time.Time, bool) { return l.until, true }

// Err implements context.Context.
func (l limited) Err() error {
	if time.Now().After(l.until) {
		return context.DeadlineExceeded
	}
	return nil
}

// insist repeats a step until it succeeds, or the worker is killed.
func (w *Worker) insist(step func() error) error {
	wait := 20 * time.Millisecond
	for {
		err := step()
		if err == nil {
			return nil
		}
		select {
		case <-w.killed:
			return err
		default:
		}
		w.damaged.Store(true)
		w.log.Warn("step that needs Redis failed and is repeated", "worker", w.cfg.Name, "error", err)
		select {
		case <-w.killed:
			return err
		case <-w.e.clock.After(wait):
		}
		wait = min(2*wait, 2*time.Second)
	}
}
