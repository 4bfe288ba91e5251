package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"muster/tasks"
	"muster/tasks/internal/canvas"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// queues are the queues of the workflows.
var queues = []string{"default", "other"}

// fleet is the workers and senders of a history.
type fleet struct {
	workers    []*worker
	hired      int // workers so far
	senders    []*sender
	party      *party
	flows      []*flow
	goroutines int // goroutines of workers and senders
}

// sender is a process that sends workflows.
type sender struct {
	*process
	client *tasks.Client
	busy   bool
}

// spawn runs f in a goroutine of a process.
func (h *history) spawn(f func()) {
	h.goroutines++
	go func() {
		f()
		h.mu.Lock()
		h.goroutines--
		h.mu.Unlock()
	}()
	h.settle()
}

// quiet reports whether no process does anything.
func (h *history) quiet() bool { return h.goroutines == 0 }

// recover ends all faults that last.
func (h *history) recover() {
	for _, w := range h.workers {
		w.frozen = time.Time{}
	}
	h.resumeQueues()
	for h.short() {
		h.hire()
	}
}

// stopAll kills every process.
func (h *history) stopAll() {
	for _, w := range h.workers {
		h.kill(w.process)
		w.stop()
		w.w.Kill()
	}
	for _, s := range h.senders {
		h.kill(s.process)
	}
	if h.party != nil {
		h.kill(h.party.process)
	}
}

// flow is a workflow of a history.
type flow struct {
	id       string
	scope    *canvas.Scope
	want     canvas.Result
	runs     canvas.Runs
	state    string                  // "", "sending", "refused": another one waits for the unique key; "sent"
	stopping bool                    // a call to revoke or cancel it is under way
	torn     bool                    // the call to revoke or cancel it failed, and may arrive late
	revoked  bool                    // or cancelled
	retried  string                  // "", "retrying", "retried": its tasks do not fail any more, except tasks that expire
	ran      map[string][]*execution // by node
	nodes    map[string]string       // terminal ones, as they were seen first
	ended    bool
	call     string        // that retried it, as far as was seen
	forgot   bool          // it was deleted and sent again
	pause    string        // "", "calling", "paused", "torn": perhaps paused; "resuming", "over"
	pausedAt int64         // unix µs, by Redis
	within   time.Duration // from its send to its deadline; 0 for no deadline
	far      bool          // only its deadline ends it
	overlap  tasks.OverlapPolicy
	signal   string    // "", "sending", "sent": nobody else completes the task that it is for
	deadline time.Time // of the last send
	ref      string    // whose nodes these are
	renewed  int       // the event in which it was deleted
	single   bool      // a workflow of one task, with a generated ID
}

// loose reports whether the tasks of f that run depend on timing.
func (f *flow) loose() bool { return f.revoked || *f.runs.Fast }

// mended reports whether the tasks of a workflow do not fail any more.
func (h *history) mended(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.flow(id).retried != ""
}

// flow returns the workflow with an ID.
func (h *history) flow(id string) *flow {
	return h.flows[slices.IndexFunc(h.flows, func(f *flow) bool { return f.id == id })]
}

// drawn makes the choices of a canvas.
type drawn struct{ h *history }

// Int implements canvas.Source.
func (d drawn) Int(lo, hi int, _ string) int { return d.h.among(lo, hi) }

// prepare draws the workflows and processes of a history.
func (h *history) prepare() {
	for total := 0; total < h.plan.nodes; {
		s := canvas.Draw(drawn{h}, 2)
		if h.chance(h.plan.singles) {
			s = &canvas.Scope{Defs: []canvas.Def{{Kind: "leaf", Ints: []int{h.among(0, 9)}, Tries: max(0, h.among(-3, 2)), Fail: h.chance(100)}}}
		}
		h.spread(s)
		total += h.add(s)
	}
	h.addSenders()
	h.addParty()
	h.hire()
}

// spread moves some tasks of a canvas to another queue or a higher priority, and makes some external.
func (h *history) spread(s *canvas.Scope) {
	for i := range s.Defs {
		d := &s.Defs[i]
		if d.Plan != nil {
			h.spread(d.Plan)
		}
		if d.Kind == "step" && h.chance(h.plan.asks) {
			d.Kind = []string{"ask", "hand"}[h.rng.IntN(2)]
		}
		if !slices.Contains([]string{"leaf", "step", "ask", "hand", "each", "map"}, d.Kind) {
			continue
		}
		if h.chance(h.plan.spread) {
			d.Queue = queues[1]
		}
		if h.chance(h.plan.spread) {
			d.Priority = 1
		}
	}
}

// overlaps are the policies of workflows with a unique key.
var overlaps = []tasks.OverlapPolicy{tasks.OverlapQueue, tasks.OverlapReplace, tasks.OverlapCancel}

// add adds a canvas to the workflows to send, and returns the number of its tasks.
func (h *history) add(s *canvas.Scope) (tasks int) {
	f := &flow{id: fmt.Sprintf("h%x-%d", h.seed, len(h.flows)), scope: s, runs: canvas.NewRuns(),
		ran: map[string][]*execution{}, nodes: map[string]string{}}
	f.want = canvas.Evaluate(s, f.runs)
	if f.single = len(s.Defs) == 1 && s.Defs[0].Kind == "leaf"; f.single {
		var random [9]byte
		random[0], random[1], random[8] = byte(h.seed), byte(h.seed>>8), byte(len(h.flows))
		f.id = store.NewID(start, random)
	}
	if !f.single && h.chance(h.plan.deadlines) {
		f.within, f.far = time.Duration(h.among(50, 5000))*time.Millisecond, h.chance(500)
	}
	if !f.single && h.chance(h.plan.unique) {
		f.overlap = overlaps[h.rng.IntN(len(overlaps))]
	}
	h.flows = append(h.flows, f)
	for _, n := range f.runs.Sure {
		tasks += n
	}
	return tasks
}

// sending is the number of senders that send workflows. Another one is free to resume a workflow for which they wait.
const sending = 2

func (h *history) addSenders() {
	for i := range sending + 1 {
		p := h.newProcess(fmt.Sprintf("s%d", i), h.skew())
		h.senders = append(h.senders, &sender{process: p, client: h.newClient(p)})
	}
}

// unsent returns how many workflows can be sent now.
func (h *history) unsent() int {
	n := 0
	for _, s := range h.senders[:sending] {
		if !s.busy {
			n++
		}
	}
	waiting := 0
	for _, f := range h.flows {
		if f.state == "" {
			waiting++
		}
	}
	return min(n, waiting)
}

// send has a sender send the next workflow, until Redis has taken it.
func (h *history) send() {
	f := h.flows[slices.IndexFunc(h.flows, func(f *flow) bool { return f.state == "" })]
	s := h.senders[slices.IndexFunc(h.senders[:sending], func(s *sender) bool { return !s.busy })]
	f.state, s.busy = "sending", true
	h.event("%s SENDS %s", s.name, f.id)
	h.spawn(func() {
		defer func() {
			h.mu.Lock()
			s.busy = false
			h.mu.Unlock()
		}()
		for {
			opts := []tasks.SendOption{tasks.ID(f.id)}
			if s.sends = f.id; f.single {
				opts = nil
			}
			if f.within > 0 {
				h.mu.Lock()
				f.revoked, f.deadline = true, time.Now().Add(f.within)
				h.mu.Unlock()
				opts = append(opts, tasks.Deadline(f.deadline))
			}
			if f.far {
				opts = append(opts, tasks.In(time.Hour))
			}
			if f.overlap != "" {
				h.mu.Lock()
				f.revoked = true // another one may replace or cancel it
				h.mu.Unlock()
				opts = append(opts, tasks.Unique("key", 24*time.Hour), tasks.Overlap(f.overlap))
			}
			run, err := f.scope.Signature().Send(context.Background(), s.client, opts...)
			if errors.Is(err, tasks.ErrDuplicate) && run.ID() != f.id {
				h.mu.Lock()
				f.state = "refused"
				h.mu.Unlock()
				time.Sleep(500 * time.Millisecond) // another one waits
				h.mu.Lock()
				f.state = "sending"
				h.mu.Unlock()
				continue
			}
			if f.within > 0 && errors.Is(err, tasks.ErrInvalid) {
				time.Sleep(10 * time.Millisecond) // the deadline has passed
				continue
			}
			if err == nil || errors.Is(err, tasks.ErrDuplicate) {
				break
			}
			if s.dead {
				return
			}
			if !errors.Is(err, errCut) {
				h.mu.Lock()
				h.fail("send of %s: %v", f.id, err)
				h.mu.Unlock()
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		h.mu.Lock()
		f.state = "sent"
		h.mu.Unlock()
	})
}

// unended returns the workflows that have not ended.
func (h *history) unended() (out []string) {
	for _, f := range h.flows {
		if !f.ended || f.forgot {
			f.ended = f.retried != "retrying" && h.hasEnded(f)
		}
		if !f.ended {
			out = append(out, f.id)
		}
	}
	return out
}

// operate has an operator revoke or cancel a workflow, or delete one that has ended while it is sent again, or pause or resume a queue.
func (h *history) operate() {
	s := h.senders[h.rng.IntN(len(h.senders))]
	switch {
	case h.chance(400):
		f := h.flows[h.rng.IntN(len(h.flows))]
		if f.state != "sent" || s.busy || f.retried == "retrying" || h.plan.revocations == 0 {
			return
		}
		h.plan.revocations--
		f.revoked, f.stopping = true, true
		f.unpaused()
		stop, what := (*tasks.Workflow).Revoke, "REVOKES"
		if h.chance(600) {
			stop, what = (*tasks.Workflow).Cancel, "CANCELS"
		}
		h.act(s, what, f.id, func(ctx context.Context) error { return stop(s.client.Workflow(f.id), ctx) }, func(err error) {
			f.torn, f.stopping = f.torn || err != nil, false // if it fails, the workflow was stopped or not
		})
	case h.chance(400):
		f := h.flows[h.rng.IntN(len(h.flows))]
		if f.state != "sent" || s.busy || f.single || f.retried != "" || f.signal != "" || !h.hasEnded(f) {
			return
		}
		f.state, f.ended, f.forgot = "", false, true
		f.unpaused()
		f.renew(len(h.events))
		maps.DeleteFunc(h.party.won, func(node string, _ int) bool { return strings.HasPrefix(node, f.id+"/") })
		h.act(s, "FORGETS", f.id, func(ctx context.Context) error { return s.client.Workflow(f.id).Delete(ctx) }, func(error) {}) // it fails if the next one has been sent
	default:
		if s.busy {
			return
		}
		q, call, what := queues[h.rng.IntN(len(queues))], s.client.PauseQueue, "PAUSES"
		if h.chance(500) {
			call, what = s.client.ResumeQueue, "RESUMES"
		}
		h.act(s, what, q, func(ctx context.Context) error { return call(ctx, q) }, func(error) {}) // if it fails, the queue may be paused in part
	}
}

// act has a sender make a call about a workflow or a queue, and then notes its error.
func (h *history) act(s *sender, what, of string, call func(context.Context) error, note func(error)) {
	s.busy = true
	h.event("%s %s %s", s.name, what, of)
	h.spawn(func() {
		err := call(context.Background())
		h.mu.Lock()
		defer h.mu.Unlock()
		s.busy = false
		note(err)
	})
}

// free returns a sender that makes no call, or nil.
func (h *history) free() *sender {
	i := slices.IndexFunc(h.senders, func(s *sender) bool { return !s.busy && !s.dead })
	if i < 0 {
		return nil
	}
	return h.senders[i]
}

// unpaused notes that a pause of f may end.
func (f *flow) unpaused() {
	if f.pause == "paused" {
		f.pause = "torn"
	}
}

// pause has a sender pause a workflow, which happens once to a workflow.
func (h *history) pause() {
	f, s := h.flows[h.rng.IntN(len(h.flows))], h.free()
	if s == nil || f.state != "sent" || f.pause != "" || f.stopping || f.retried == "retrying" {
		return
	}
	h.plan.pauses--
	f.pause = "calling"
	h.act(s, "PAUSES", f.id, func(ctx context.Context) error { return s.client.Workflow(f.id).Pause(ctx) }, func(err error) {
		if err == nil && !f.stopping && f.retried != "retrying" && !f.forgot {
			f.pause = "paused"
		} else {
			h.endPause(f, "torn", err)
		}
	})
}

// endPause notes the error of a call to pause or resume a workflow. Without an error, the workflow is in a state of pause.
func (h *history) endPause(f *flow, state string, err error) {
	switch {
	case err == nil:
		f.pause = state
	case errors.Is(err, errCut), errors.Is(err, errDead):
		f.pause = "torn"
	case errors.Is(err, tasks.ErrEnded), f.revoked && (errors.Is(err, tasks.ErrCancelled) || errors.Is(err, tasks.ErrRevoked)), f.forgot && errors.Is(err, tasks.ErrNotFound):
		f.pause = "over"
	default:
		h.fail("pause or resume of %s: %v", f.id, err)
	}
}

// resume has a sender resume a workflow that is in a state of pause. It reports whether there is one.
func (h *history) resume(states ...string) bool {
	s := h.free()
	k := slices.IndexFunc(h.flows, func(f *flow) bool { return slices.Contains(states, f.pause) })
	if s == nil || k < 0 {
		return false
	}
	f := h.flows[k]
	f.pause = "resuming"
	h.act(s, "RESUMES", f.id, func(ctx context.Context) error { return s.client.Workflow(f.id).Resume(ctx) }, func(err error) { h.endPause(f, "over", err) })
	return true
}

// retry has a sender retry a failed workflow, until it is known whether that had an effect. It reports whether there is one.
func (h *history) retry() bool {
	s := h.free()
	if h.plan.retries == 0 || s == nil {
		return false
	}
	for _, k := range h.rng.Perm(len(h.flows)) {
		if f := h.flows[k]; f.state == "sent" && f.retried == "" && f.signal == "" && !f.forgot && !f.stopping && h.hasEnded(f) && h.hasFailed(f) {
			h.plan.retries--
			f.ended, f.retried, s.busy = false, "retrying", true
			f.unpaused()
			h.event("%s RETRIES %s", s.name, f.id)
			h.spawn(func() { h.retryOf(s, f) })
			return true
		}
	}
	return false
}

// retryOf retries a workflow in a sender.
func (h *history) retryOf(s *sender, f *flow) {
	defer func() {
		h.mu.Lock()
		s.busy = false
		h.mu.Unlock()
	}()
	began := time.Now()
	for cut := false; ; {
		err := s.client.Workflow(f.id).Retry(context.Background())
		h.mu.Lock()
		busy := err != nil && strings.Contains(err.Error(), "have not returned")
		switch {
		case s.dead:
			f.retried, f.torn, f.revoked = "retried", true, true // or not
		case err == nil, cut && !busy && (errors.Is(err, tasks.ErrRunning) || errors.Is(err, tasks.ErrEnded)):
			f.retried = "retried"
			f.runs = canvas.NewRuns()
			f.runs.Mended = true
			f.want = canvas.Evaluate(f.scope, f.runs)
			f.revoked = f.torn || f.deadline.After(began) || f.overlap != ""
			f.renew(len(h.events))
			maps.DeleteFunc(h.party.won, func(node string, _ int) bool { return strings.HasPrefix(node, f.id+"/") })
		case errors.Is(err, tasks.ErrRevoked) && f.revoked:
			f.retried = ""
		case !busy && !errors.Is(err, errCut):
			h.fail("retry of %s: %v", f.id, err)
		}
		cut = cut || errors.Is(err, errCut)
		over := f.retried != "retrying" || len(h.problem) > 0
		h.mu.Unlock()
		if over {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// execution is one call of a handler.
type execution struct {
	worker  *worker
	attempt int
	taken   int // the event in which the worker was given the node
	open    bool
	running bool   // its handler is
	lease   *lease // of the place that its limit allows it; nil for no limit
}

// execute is around every call of a handler.
func (h *history) execute(w *worker, i tasktype.Info, run func() error) error {
	h.mu.Lock()
	f := h.flow(i.Workflow)
	took := w.took[i.Workflow+"/"+i.Node]
	x := &execution{worker: w, attempt: i.Attempt, taken: took[len(took)-1], running: true}
	place := fmt.Sprint(h.shardOf(i.Workflow), " ", strings.TrimSuffix(i.Key, "."+i.Node), "/", i.Node)
	x.lease = w.leases.of[place]
	delete(w.leases.of, place) // a retried workflow can give the node an input that has no limit
	x.open = x.taken >= f.renewed
	key := i.Task + " " + i.Node
	for _, o := range f.ran[key] {
		// A worker that was declared dead continues, and can be given the node again while its first slot still runs
		// it. Both slots belong to the same worker, so the events do not show which of them has the valid batch (the
		// node of a batch task is given to it twice, for the batch and to run): it is not a double lease.
		other := o.worker != w || took[0] >= w.reaped
		if o.open && x.open && other && o.leased() && x.leased() && !h.lostPlan { // with a plan, Redis has lost leases
			h.fail("node %s of %s runs on %s and %s at once", i.Node, f.id, o.worker.name, w.name)
		}
	}
	if !w.dead {
		f.ran[key] = append(f.ran[key], x)
	}
	h.checkLimit(x, key+" of "+f.id)
	h.mu.Unlock()
	what := strings.Join([]string{i.Workflow, key, fmt.Sprint(i.Attempt)}, " ")
	_ = w.wait(plain("runs " + what))
	if len(i.Node)%3 == 0 { // some take time
		time.Sleep(time.Millisecond)
		_ = w.wait(plain("ends " + what))
	}
	err := run()
	h.mu.Lock()
	x.open, x.running = false, false
	h.mu.Unlock()
	return err
}

// renew lets the runs of nodes that were taken before an event count as over: the workflow was deleted, and is sent again.
func (f *flow) renew(event int) {
	f.renewed = event
	for _, list := range f.ran {
		for _, x := range list {
			x.open = false
		}
	}
}

// leased reports whether the worker of x has the node still, as far as it can know.
func (x *execution) leased() bool { return !x.worker.dead && x.worker.reaped <= x.taken }

// ranTasks returns how often the tasks of f ran. In a history with faults, the runs of one node count once.
func (f *flow) ranTasks(once bool) map[string]int {
	out := map[string]int{}
	for _, key := range slices.Sorted(maps.Keys(f.ran)) {
		task, _, _ := strings.Cut(key, " ")
		attempts := map[int]bool{}
		for _, x := range f.ran[key] {
			attempts[x.attempt] = true
		}
		if once {
			out[task] += len(attempts)
		} else {
			out[task] += len(f.ran[key])
		}
	}
	return out
}
