package sim

import (
	"context"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"slices"
	"time"

	"muster/tasks"
	"muster/tasks/internal/canvas"
	"muster/tasks/internal/engine"
	"muster/tasks/tasktype"
)

// worker is a process that runs nodes.
type worker struct {
	*process
	w       *engine.Worker
	program int
	slots   int
	busy    int
	signed  bool // it has beaten for the first time; before that it takes no work
	tending bool
	tended  time.Time // when it last finished looking after workflows
	beaten  time.Time // when Redis last heard of it
	reaped  int       // the event in which its leases were last taken from it
	leases  leases
	due     time.Time // when it wants to look again; zero for nothing
	stop    context.CancelFunc
	ctx     context.Context
}

// clock is the clock of a process. If several of its timers are due, the scheduler decides on their order.
type clock struct{ p *process }

func (c clock) Now() time.Time { return time.Now().Add(c.p.skew) }

func (c clock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	what := fmt.Sprint("timer ", c.p.timers.Add(1))
	return time.AfterFunc(d, func() {
		_ = c.p.wait(plain(what)) // a dead process continues too: its goroutines must end
		f()
	}).Stop
}

func (c clock) After(d time.Duration) <-chan time.Time {
	ends := make(chan time.Time, 1)
	c.AfterFunc(d, func() { ends <- c.Now() })
	return ends
}

// newClient returns a client in a process.
func (h *history) newClient(p *process) *tasks.Client {
	c := tasks.NewClient(connection{p.rdb, keeper{p}})
	p.engine.SetClock(clock{p})
	p.engine.SetIDs(func() string { return p.sends })
	p.engine.UseScripts(h.scripts.built())
	// The number of shards is read under a mutex. The scheduler does not see goroutines that wait for one.
	was := p.direct
	p.direct = true
	_, _ = c.Workflow("none").Nodes(context.Background())
	p.direct = was
	return c
}

func (h *history) skew() time.Duration {
	if !h.chance(h.plan.skewed) {
		return 0
	}
	if h.chance(200) {
		return time.Duration(h.among(-600, 600)) * time.Second
	}
	return time.Duration(h.among(-3000, 3000)) * time.Millisecond
}

// hire starts a worker, of a program that has none if there is one.
func (h *history) hire() {
	h.hired++
	program := h.missing()
	if program < 0 {
		program = h.among(0, h.plan.programs-1)
	}
	name := fmt.Sprintf("w%d", h.hired)
	w := &worker{leases: leases{map[string]*lease{}, map[string]*lease{}}, process: h.newProcess(name, h.skew()), program: program, slots: h.among(1, 3), tended: time.Now(), beaten: time.Now()}
	m := tasks.NewMux()
	m.Use(func(ctx context.Context, i tasktype.Info, next func(context.Context) error) error {
		return h.execute(w, i, func() error { return next(ctx) })
	})
	canvas.Handle(m, func() bool { return h.lostPlan }, h.mended, h.plan.limits()...)
	served := map[string]int{}
	for _, q := range queues {
		served[q] = 1
	}
	if _, err := tasks.NewWorker(h.newClient(w.process), m, tasks.WorkerConfig{Name: name}); err != nil {
		panic(err)
	}
	maps.DeleteFunc(w.handlers, func(task string, _ *engine.Handler) bool { return !h.handles(program, task) })
	// The worker is not started with Run: the simulation calls its steps.
	w.w = engine.NewWorker(w.engine, w.handlers, engine.WorkerConfig{
		Queues: served, Concurrency: w.slots, MaxConcurrency: w.slots, MaxResult: 16 << 20, Manual: true, HandlerWait: 24 * time.Hour,
		Name: name, Logger: slog.New(slog.DiscardHandler)})
	w.ctx, w.stop = context.WithCancel(context.Background())
	h.workers = append(h.workers, w)
	h.event("HIRE %s of program %d with %d slots, clock %s", name, program, w.slots, w.skew)
	h.startTend(w)
}

// handles reports whether the workers of a program have a handler for a task. Each task has a program, and some have two.
func (h *history) handles(program int, task string) bool {
	sum := crc32.ChecksumIEEE([]byte(task))
	return int(sum)%h.plan.programs == program || int(sum/8)%(2*h.plan.programs) == program
}

// missing returns a program without live workers, or -1.
func (h *history) missing() int {
	have := map[int]bool{}
	for _, w := range h.live() {
		have[w.program] = true
	}
	for i := range h.plan.programs {
		if !have[i] {
			return i
		}
	}
	return -1
}

// short reports whether workers are missing.
func (h *history) short() bool { return len(h.live()) < h.plan.workers || h.missing() >= 0 }

func (h *history) live() (out []*worker) {
	for _, w := range h.workers {
		if !w.dead {
			out = append(out, w)
		}
	}
	return out
}

// freeWorkers returns the workers that have a free slot.
func (h *history) freeWorkers() (out []*worker) {
	for _, w := range h.live() {
		if w.signed && w.busy < w.slots && !w.frozen.After(time.Now()) {
			out = append(out, w)
		}
	}
	return out
}

// serveOn makes a worker serve an entry.
func (h *history) serveOn(w *worker, e engine.RingEntry) {
	h.event("%s GETS %d %s %s", w.name, e.Shard, e.Queue, repeatable(e.Text))
	w.busy++
	h.spawn(func() {
		w.w.Serve(w.ctx, e)
		h.mu.Lock()
		defer h.mu.Unlock()
		w.busy--
	})
}

func (h *history) idleTenders() (out []*worker) {
	for _, w := range h.live() {
		if !w.tending && !w.frozen.After(time.Now()) {
			out = append(out, w)
		}
	}
	return out
}

// restless returns the workers that are due to look after workflows.
func (h *history) restless() (out []*worker) {
	for _, w := range h.idleTenders() {
		if !w.signed || time.Since(w.tended) >= restTime || !w.due.IsZero() && w.due.Before(time.Now()) && w.tended.Before(w.due) {
			out = append(out, w)
		}
	}
	return out
}

// restTime is how long a worker waits between two looks after workflows if nothing is due before.
const restTime = 300 * time.Millisecond

// tend has a worker look after workflows.
func (h *history) tend() {
	ws := h.restless()
	h.startTend(ws[h.rng.IntN(len(ws))])
}

func (h *history) startTend(w *worker) {
	w.tending = true
	h.spawn(func() {
		_, next, _, err := w.w.Tend(w.ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		w.tending, w.due = false, next
		if err == nil {
			w.tended, w.signed = time.Now(), true
		}
	})
}

// tendEach makes the next worker that has not done so in this round look after workflows, and reports whether there was
// one.
func (h *history) tendEach() bool {
	for _, w := range h.idleTenders() {
		if !w.signed || time.Since(w.tended) >= roundTime || !w.due.IsZero() && !w.due.After(time.Now()) && time.Now().After(w.tended) {
			h.startTend(w)
			return true
		}
	}
	return false
}

// roundTime is how often workers look after workflows when nothing goes wrong.
const roundTime = 3 * time.Second

// nextRound is how long nothing happens.
func (h *history) nextRound() time.Duration {
	d := roundTime
	if slices.ContainsFunc(h.flows, func(f *flow) bool { return f.state == "sending" }) {
		// Its deadline must not have passed whenever it is sent. A sender can wait ten seconds for the end of a claim.
		return 10 * time.Millisecond
	}
	for _, w := range h.live() {
		if w.busy > 0 {
			return time.Millisecond // it waits for more to do
		}
		d = min(d, max(roundTime-time.Since(w.tended), time.Millisecond))
		if !w.due.IsZero() {
			d = min(d, max(time.Until(w.due), time.Millisecond))
		}
	}
	return d
}

func (h *history) crashable() bool { return h.plan.dead < h.plan.mostDead && len(h.live()) > 0 }

// crash kills a worker: nothing of it reaches Redis any more.
func (h *history) crash() {
	live := h.live()
	w := live[h.rng.IntN(len(live))]
	h.plan.dead++
	h.event("CRASH %s", w.name)
	h.kill(w.process)
	w.stop()
	w.w.Kill()
	h.settle()
}

// kill ends a process. The calls that it waits for fail.
func (h *history) kill(p *process) {
	h.mu.Lock()
	p.dead = true
	var gone []*step
	h.parked = slices.DeleteFunc(h.parked, func(s *step) bool {
		if s.from == p {
			gone = append(gone, s)
		}
		return s.from == p
	})
	h.mu.Unlock()
	for _, s := range gone {
		s.done <- errDead
	}
}

// freeze stops a worker for a while, as SIGSTOP does.
func (h *history) freeze() {
	live := h.live()
	if len(live) == 0 {
		return
	}
	w := live[h.rng.IntN(len(live))]
	d := time.Duration(h.among(1, 25_000)) * time.Millisecond
	w.frozen = time.Now().Add(d)
	h.event("FREEZE %s for %s", w.name, d)
}
