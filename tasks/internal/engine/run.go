package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// Run is one attempt at a node, as its handler sees it.
type Run struct {
	Info Info

	w      *Worker
	fl     *flow
	g      *graph.Graph
	id     graph.ID
	epoch  int
	spec   *graph.Spec
	cancel context.CancelCauseFunc
	freed  chan struct{} // closed when the slot must be freed without waiting for the handler
	next   []upcoming    // what this slot runs next, without a detour through asynq
	onward bool          // whether it may

	began time.Time     // when the handler was called; zero if it was not
	took  time.Duration // how long it ran
	said  string        // what became of it; empty if that is not known
	code  string        // of the failure

	once  sync.Once // closes freed
	cause error     // why the slot was freed; set before freed is closed

	mu       sync.Mutex // guards the fields below
	lastSent time.Time
	unsent   *[2]int
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
	r.mu.Lock()
	now := time.Now()
	send := now.Sub(r.lastSent) >= progressEvery || done >= total
	if send {
		r.lastSent, r.unsent = now, nil
	} else {
		r.unsent = &[2]int{done, total}
	}
	r.mu.Unlock()
	if !send || r.w == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := r.w.e.store.SetProgress(ctx, r.fl.Flow, r.Info.Node, done, total); err != nil {
		r.w.log.Debug("progress was not written", "workflow", r.Info.Workflow, "node", r.Info.Node, "error", err)
	}
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

// answered is how a call of a handler ended: by ended, when the engine ended it, else with an error or an answer.
type answered struct {
	answer Answer
	err    *handlerError
	ended  error
}

// handlerError is what the engine keeps of an error that a handler returned. The methods of such an error are
// user code, so they are called in the handler's goroutine, where a panic is caught; this is plain data.
type handlerError struct {
	message   string
	code      string
	delay     *time.Duration // until the next attempt; nil: as the task's back-off says
	again     bool           // not an error: the handler asks to be called again
	permanent bool           // no attempt is worth it
}

// errLeft is what becomes of a handler that calls runtime.Goexit.
var errLeft = &handlerError{code: CodeError, message: "the handler ended its goroutine instead of returning"}

// readError never panics; an error whose methods do counts as a handler that panicked.
func (r *Run) readError(h *Handler, err error) (e *handlerError) {
	defer func() {
		if p := recover(); p != nil {
			e = r.panicked(p, fmt.Sprintf("reading the handler's error, of type %T: ", err))
		}
	}()
	var v *Verdict
	if !errors.As(err, &v) || v == nil {
		v = &Verdict{Err: err}
	}
	if v.Again {
		return &handlerError{delay: v.Delay, again: true}
	}
	e = &handlerError{message: clip(err.Error()), code: CodeError, delay: v.Delay, permanent: v.Permanent}
	switch {
	case v.Code != "":
		e.code = v.Code
	case errors.Is(err, context.DeadlineExceeded):
		e.code = CodeTimeout
	case v.Permanent:
		e.code = CodePermanent
	case errors.Is(err, ErrShutdown):
		e.message += " (but this worker does not stop; return tasks.Again to be called again)"
	}
	if h.Opts != nil && h.Opts.RetryIf != nil && !r.w.worth(h.Opts.RetryIf, err) {
		e.permanent = true
	}
	return e
}

// panicked logs a panic of user code, and returns it as an error. The value's own methods are user code too:
// fmt catches their panics.
func (r *Run) panicked(value any, where string) *handlerError {
	message := fmt.Sprintf("%spanic: %v", where, value)
	r.w.log.Error("handler panicked", "task", r.Info.Task, "workflow", r.Info.Workflow, "panic", message, "stack", string(debug.Stack()))
	return &handlerError{message: clip(message), code: CodePanic}
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
	r.w.pool.run(func() {
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
		case errors.Is(cause, ErrShutdown), errors.Is(cause, errRevoked):
			a = answered{ended: cause}
		default:
			a.err = r.readError(h, err)
		}
	})
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

// perform runs what asynq delivered and records what became of it. An error means that Redis could
// not be asked; asynq delivers again.
func (w *Worker) perform(ctx context.Context, tk carried) error {
	wfID, node, epoch, err := parseDelivery(tk.id)
	if err != nil {
		w.log.Error("a task on our queue is not ours", "id", tk.id)
		return nil
	}
	// What a node makes ready runs here and now, one after the other, until others should have the
	// slot: the way through asynq costs ten times as much. Should this process die, the node is found
	// among those of a silent worker, as any other.
	until := time.Now().Add(slotTurn)
	line := []upcoming{{node, epoch, w.startAhead(tk.id)}}
	for first := true; len(line) > 0; first = false {
		next, err := w.one(ctx, wfID, line[0], tk, time.Now().Before(until))
		if err != nil {
			if first {
				return err
			}
			// Only the first is asynq's; the agenda has the others.
			w.log.Warn("node is left to others", "workflow", wfID, "node", line[0].node, "error", err)
		}
		line = append(line[1:], next...)
	}
	return nil
}

// slotTurn is how long one delivery may go on from node to node.
const slotTurn = 200 * time.Millisecond

// one runs one node and returns those that it made ready for this slot, which got tk from asynq.
func (w *Worker) one(ctx context.Context, wfID string, u upcoming, tk carried, onward bool) ([]upcoming, error) {
	node, epoch := u.node, u.epoch
	if u.begun != nil {
		defer w.unclaim(wfID, node, epoch)
	}
	id, err := graph.ParseID(node)
	if err != nil {
		w.log.Error("a task on our queue is not ours", "workflow", wfID, "node", node)
		return nil, nil
	}
	f, err := w.e.store.Flow(ctx, wfID)
	if err != nil {
		return nil, err
	}
	b := u.begun
	if b == nil {
		// Whether go-redis or we ask again: Redis may have begun the node although its answer got lost. So
		// what this worker runs is known here, and what Redis says it runs beyond that is taken up.
		if !w.claim(wfID, node, epoch) {
			return nil, nil
		}
		defer w.unclaim(wfID, node, epoch)
		b = &begun{}
		scopes := w.unknown(wfID, id.Scope, nil)
		fields := make([]string, len(scopes))
		for i, s := range scopes {
			fields[i] = store.GraphField(s)
		}
		err = w.insist(wfID, node, func(ctx context.Context) error {
			var err error
			b.Begun, err = w.e.store.Begin(ctx, f, node, epoch, w.cfg.Name, fields)
			return err
		})
		if err != nil {
			return nil, err
		}
		b.bad = w.learnAll(wfID, scopes, b.Begun)
	}
	if b.Status != "run" {
		return nil, nil
	}
	if b.bad != nil {
		return nil, w.insist(wfID, node, func(ctx context.Context) error { return w.pass(ctx, f, node, epoch, tk, b.bad) })
	}
	// The node runs here now, as far as Redis knows: nobody else will see to it.
	var fl *flow
	var g *graph.Graph
	if top := w.e.kept(wfID, ""); top != nil {
		fl, g = newFlow(f, top), w.e.kept(wfID, id.Scope)
	}
	if g == nil {
		err = w.insist(wfID, node, func(ctx context.Context) error {
			var err error
			if fl, err = w.e.load(ctx, wfID); err == nil {
				g, err = w.e.graphOf(ctx, f, id.Scope)
			}
			if errors.Is(err, ErrUnknown) {
				return nil
			}
			return err
		})
	}
	if err != nil || g == nil {
		return nil, err
	}
	if id.Index >= len(g.Nodes) {
		return nil, nil
	}
	sp := &g.Specs[g.Nodes[id.Index].Spec]
	r := &Run{w: w, fl: fl, g: g, id: id, epoch: epoch, spec: sp, freed: make(chan struct{}), onward: onward, cancel: func(error) {},
		Info: Info{Workflow: wfID, Node: node, Task: sp.Task, Queue: sp.QueueName(), Priority: sp.Priority,
			Attempt: b.Attempts + 1, Worker: w.cfg.Name, Key: wfID + "." + node, Headers: fl.g.Headers}}
	w.stats.begun.Add(1)
	w.commit(r, func(ctx context.Context) error { return w.attempt(ctx, r, b) })
	w.tell(r)
	return r.next, nil
}

// attempt runs the handler, once, and stores the outcome.
func (w *Worker) attempt(ctx context.Context, r *Run, b *begun) error {
	if x := r.spec.Expires; x > 0 && b.Now.UnixMilli() > x {
		return w.failed(ctx, r, CodeExpired, "not begun before it expired")
	}
	h := w.handlers[r.spec.Task]
	if h == nil {
		return w.unregistered(ctx, r, b)
	}
	if b.Lost >= store.Suspect {
		leave, err := w.alone(ctx, r)
		if leave == nil {
			return err
		}
		defer leave()
	}
	if r.spec.RateN > 0 {
		wait, err := w.e.store.Allow(ctx, r.spec.Task, r.spec.RateN, time.Duration(r.spec.RatePer)*time.Millisecond)
		if err != nil {
			return err
		}
		if wait > 0 {
			return w.again(ctx, r, wait+time.Millisecond-1, store.RepeatAgain, "")
		}
	}
	input, err := r.input(ctx, b)
	if err != nil {
		return err
	}
	r.began = time.Now()
	a := r.call(h, input)
	r.took = time.Since(r.began)
	// The handler has run: from here on only its outcome is to be stored, however often that takes.
	return w.retrying(r, func(ctx context.Context) error { return w.outcome(ctx, r, h, a) })
}

// input returns the input of a run: its literal, or what it comes after.
func (r *Run) input(ctx context.Context, b *begun) ([]byte, error) {
	n := &r.g.Nodes[r.id.Index]
	v := r.w.e.newValues(r.fl)
	switch {
	case n.Kind == graph.Catch:
		of := r.id.At(n.In-1, -1)
		if r.id.Inst >= 0 {
			if len(n.Args) > 0 {
				of = r.id.At(n.Args[r.id.Inst], -1)
			} else {
				of.Inst = r.id.Inst
			}
		}
		f, err := v.failure(ctx, of)
		if err != nil {
			return nil, err
		}
		return encodeFailure(f), nil
	case b.value != nil:
		return b.value, nil
	case b.Input != nil:
		return b.Input, nil
	case n.In > 0 && r.id.Inst < 0:
		return v.value(ctx, r.id.At(n.In-1, -1))
	}
	return nil, fmt.Errorf("node %s of workflow %s has no input", r.Info.Node, r.Info.Workflow)
}

// outcome stores what a handler returned.
func (w *Worker) outcome(ctx context.Context, r *Run, h *Handler, a answered) error {
	e := a.err
	switch {
	case errors.Is(a.ended, errRevoked):
		r.said, r.code = OutcomeRevoked, CodeRevoked
		return nil // the node is terminal already
	case errors.Is(a.ended, ErrShutdown):
		r.said = OutcomeReturned
		return w.again(ctx, r, 0, store.RepeatAgain, "")
	case errors.Is(a.ended, errHard):
		return w.failed(ctx, r, CodeHardTimeout, "still running after its hard time limit")
	case e == nil:
		return w.succeeded(ctx, r, a.answer)
	case e.again:
		r.said = OutcomeAgain
		return w.again(ctx, r, *e.delay, store.RepeatAgain, "")
	case e.permanent, r.Info.Attempt > r.spec.MaxRetry:
		return w.failed(ctx, r, e.code, e.message)
	}
	d := backoff(r.spec, r.Info.Attempt)
	if !w.cfg.Manual && !r.spec.Fixed {
		// Full jitter, as in https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/.
		d = time.Duration(rand.Int64N(int64(d)+1)) / time.Millisecond * time.Millisecond
	}
	if e.delay != nil {
		d = *e.delay
	}
	r.said, r.code = OutcomeRetry, e.code
	w.stats.retried.Add(1)
	return w.again(ctx, r, d, store.RepeatFail, e.message)
}

// succeeded stores the value or the plan that a handler returned.
func (w *Worker) succeeded(ctx context.Context, r *Run, a Answer) error {
	if a.Planned {
		r.said = OutcomePlanned
		return w.plan(ctx, r, a.Plan)
	}
	if len(a.Value) > w.cfg.MaxResult {
		return w.failed(ctx, r, CodeResult, fmt.Sprintf("result has %d bytes, more than the %d allowed: store it and return a key",
			len(a.Value), w.cfg.MaxResult))
	}
	r.said = OutcomeSuccess
	w.stats.succeeded.Add(1)
	t := w.takes(r)
	m, err := w.e.store.Advance(ctx, r.fl.Flow, []store.Op{op(r.g, r.id, "S", "", a.Value)}, t)
	w.follow(r, m, t, a.Value, err)
	return w.moved(ctx, r, m, err)
}

// worth asks the user's function whether an error is worth another attempt; a panic is a no.
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
	if base == 0 && limit == 0 {
		base, limit = 1000, 600_000
	}
	if sp.Fixed {
		return time.Duration(max(0, base)) * time.Millisecond
	}
	if limit == 0 {
		limit = 600_000
	}
	top := limit
	if shift := attempt - 1; shift < 40 && base<<shift > 0 {
		top = min(limit, base<<shift)
	}
	return time.Duration(max(0, top)) * time.Millisecond // any sender can name any
}

func (w *Worker) failed(ctx context.Context, r *Run, code, message string) error {
	r.said, r.code = OutcomeFailure, code
	if code == CodeExpired {
		r.said = OutcomeRevoked
	}
	w.stats.failed.Add(1)
	err := w.e.fail(ctx, r.fl, r.g, r.id, strconv.Itoa(r.epoch), &Failure{Task: r.Info.Task, Node: r.Info.Node,
		Attempts: r.Info.Attempt, Code: code, Message: clip(message)})
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	if err == nil {
		w.chunkDone(r)
	}
	return err
}

// moved settles what a change of this run set in motion.
func (w *Worker) moved(ctx context.Context, r *Run, m store.Moved, err error) error {
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	w.chunkDone(r)
	var keep func(delivery) bool
	if r.onward && len(r.next) == 0 && !w.seam.stopped() {
		keep = func(d delivery) bool { return d.queue == r.Info.Queue && d.priority == r.Info.Priority }
	}
	kept, err := w.e.settleBut(ctx, r.fl, m, keep)
	if kept != nil {
		r.next = append(r.next, upcoming{node: kept.node, epoch: kept.epoch})
	}
	return err
}

// chunkDone lets the progress keys follow a member of a map.
func (w *Worker) chunkDone(r *Run) {
	if r.id.Inst >= 0 && r.fl.g.Progress != "" {
		w.touch(r.fl)
	}
}

// again puts the node back for another run.
func (w *Worker) again(ctx context.Context, r *Run, d time.Duration, how, message string) error {
	rep, err := w.e.store.Repeat(ctx, r.fl.Flow, r.Info.Node, strconv.Itoa(r.epoch), w.cfg.Name, max(0, d), how, message, mostLost)
	if err != nil || rep.Status != "ok" {
		return err
	}
	if rep.Due > 0 {
		return w.e.store.Tell(ctx, "t "+strconv.FormatInt(rep.Due, 10))
	}
	return w.e.deliver(ctx, r.fl, []delivery{newDelivery(r.fl, r.g, r.id, rep.Epoch)})
}

// unregistered puts a task back that this worker has no handler for: for as long as it takes while another
// worker of the queue has one, and else for as long as one may be about to start.
func (w *Worker) unregistered(ctx context.Context, r *Run, b *begun) error {
	const most = 5
	said := fmt.Sprintf("worker %s has no handler for %s", w.cfg.Name, r.Info.Task)
	if w.another(ctx, r.Info.Queue, func(o *WorkerInfo) bool { return slices.Contains(o.Tasks, r.Info.Task) }) {
		w.log.Debug("task without a handler here is left to another worker", "task", r.Info.Task, "workflow", r.Info.Workflow)
		return w.again(ctx, r, jitter(200*time.Millisecond), store.RepeatAgain, said)
	}
	if b.Lost >= most {
		return w.failed(ctx, r, CodeUnregistered, fmt.Sprintf("no worker of queue %s has a handler for %s: is the worker older than the sender, or was Handle forgotten? %s",
			r.Info.Queue, r.Info.Task, w.knows()))
	}
	w.log.Warn("task without a handler here is put back", "task", r.Info.Task, "workflow", r.Info.Workflow)
	return w.again(ctx, r, 200*time.Millisecond<<b.Lost, store.RepeatLost, said+", nor has any other that is live")
}

// knows says which handlers this worker has.
func (w *Worker) knows() string {
	names := slices.Sorted(maps.Keys(w.handlers))
	more := ""
	if most := 20; len(names) > most {
		names, more = names[:most], ", …"
	}
	return fmt.Sprintf("Worker %s has %s%s", w.cfg.Name, strings.Join(names, ", "), more)
}

// maxDepth bounds plans within plans.
const maxDepth = 100

// plan puts what a planner answered in the place of its node.
func (w *Worker) plan(ctx context.Context, r *Run, s *graph.Sig) error {
	if depth(r.Info.Node) >= maxDepth {
		return w.failed(ctx, r, CodePlan, fmt.Sprintf("plans are nested %d deep: does a planner answer with itself?", maxDepth))
	}
	g, err := graph.Compile(s)
	if err != nil {
		return w.failed(ctx, r, CodePlan, err.Error())
	}
	g.Created = w.e.now().UnixMilli()
	grow, err := grown(g, r.Info.Node)
	if err != nil {
		return w.failed(ctx, r, CodePlan, err.Error())
	}
	m, ok, err := w.e.store.Plan(ctx, r.fl.Flow, r.Info.Node, r.epoch, grow)
	if err != nil || !ok {
		return err
	}
	return w.e.settle(ctx, r.fl, m)
}

func depth(node string) int {
	n := 0
	for _, c := range node {
		if c == ':' {
			n++
		}
	}
	return n
}

// commit runs do, which begins a run, until Redis has taken the outcome.
func (w *Worker) commit(r *Run, do func(context.Context) error) {
	err := do(within(storeTimeout))
	if err == nil {
		return
	}
	w.log.Warn("run is put back", "workflow", r.Info.Workflow, "node", r.Info.Node, "error", err)
	_ = w.retrying(r, func(ctx context.Context) error { return w.again(ctx, r, time.Second, store.RepeatAgain, "") })
}

// storeTimeout bounds the store calls of one step.
const storeTimeout = 30 * time.Second

// limited is a context that Redis calls end with, and that costs no timer.
type limited struct {
	context.Context
	until time.Time
}

func within(d time.Duration) context.Context {
	return limited{context.Background(), time.Now().Add(d)}
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

// retrying repeats a step until Redis has taken it. When the worker is killed before, the others
// find the node with a worker that is silent.
func (w *Worker) retrying(r *Run, step func(context.Context) error) error {
	_ = w.insist(r.Info.Workflow, r.Info.Node, step)
	return nil
}

// insist repeats a step until Redis has taken it, or the worker is killed.
func (w *Worker) insist(workflow, node string, step func(context.Context) error) error {
	wait := 20 * time.Millisecond
	for {
		err := step(within(storeTimeout))
		if err == nil {
			return nil
		}
		w.log.Warn("Redis has not taken a step yet", "workflow", workflow, "node", node, "error", err)
		t := time.NewTimer(wait)
		select {
		case <-w.killed:
			t.Stop()
			return err
		case <-t.C:
		}
		wait = min(2*wait, 2*time.Second)
	}
}
