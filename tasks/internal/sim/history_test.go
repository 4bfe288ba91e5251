package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/internal/store"
)

// start is when histories begin. It is later than the time of the machine, so that a key that expires at a time of the
// history does not expire at once.
var start = time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)

// Bounds of a history.
const (
	troubleSteps = 400              // steps in which things go wrong
	mostSteps    = 15_000           // in total; a workflow that has not ended by then is stuck. One whose limit Redis has lost waits for five minutes
	mostTime     = 10 * time.Minute // the same, counted from the end of the faults, if Redis has lost limits
	usualTime    = 4 * time.Minute  // otherwise; less than nodes wait for a lost limit
	keptEvents   = 120              // that a failure shows
)

// clusterShards is the number of shards in a third of all histories. The others have one, as a single Redis.
const clusterShards = 3

// history is one run of the simulation. Everything in it happens in one bubble, whose clock is the history's, and
// is decided by one goroutine, the scheduler: it waits until all others wait for it, and lets one of them continue.
type history struct {
	seed    uint64
	width   int // maximum length of an argument in events
	rng     *rand.Rand
	shards  int // of the store
	link    *link
	scripts *scripts
	plan    plan
	*fleet
	events   []event
	observer *tasks.Client // the scheduler's own

	mu     sync.Mutex // guards parked, and the state that processes change while they run
	parked []*step

	late    [][]redis.Cmder // commands that are still on their way
	told    time.Time       // the last time that was sent to Redis
	shifted time.Time       // up to when keys have aged
	steps   int
	rounds  int
	calm    bool // nothing goes wrong any more

	lostPlan bool // Redis has lost a plan
	problem  []string

	lostLimits bool    // likewise, the limits per key
	batches    []batch // that workers were given
}

// lives matches the random part in IDs of batches, which distinguishes a worker from an earlier one with the same
// name.
var lives = regexp.MustCompile(`\b([0-9a-z]+)\.[A-Z2-7]{6}\b`)

// secrets matches the hashes of tokens and the random IDs of calls and signals.
var secrets = regexp.MustCompile(`(^|[ "|])([A-Za-z0-9_-]{22}|@[A-Za-z0-9_-]{8}|@?[A-Za-z0-9_-]{12})($|[ "|])`)

// nonces are the random parts of references of workflows, which differ in two histories of one seed.
var nonces = regexp.MustCompile(`~[a-z2-7]{12}`)

// event is something that happened. Its text is made when a failure shows it.
type event struct {
	step   int
	at     time.Duration // since the start
	format string
	args   []any
}

func (e event) String() string {
	return fmt.Sprintf("%5d %9.3fs  ", e.step, e.at.Seconds()) + lives.ReplaceAllString(fmt.Sprintf(e.format, e.args...), "$1")
}

// text is a part of an event.
type text func() string

func (t text) String() string { return t() }

func plain(s string) text { return func() string { return s } }

// texts are parts of an event that follow each other.
type texts []text

func (ts texts) String() (s string) {
	for _, t := range ts {
		s += t()
	}
	return s
}

func (h *history) event(format string, args ...any) {
	h.events = append(h.events, event{h.steps, time.Since(start), format, args})
}

// fail notes a problem.
func (h *history) fail(format string, args ...any) {
	p := fmt.Sprintf(format, args...)
	h.event("WRONG: %s", p)
	if len(h.problem) < 20 {
		h.problem = append(h.problem, p)
	}
}

// chance reports true n times out of thousand.
func (h *history) chance(n int) bool { return h.rng.IntN(1000) < n }

// among returns a number from lo to hi.
func (h *history) among(lo, hi int) int { return lo + h.rng.IntN(hi-lo+1) }

// handOver orders the work of the scheduler before the work of goroutines under mu, for the race detector.
func (h *history) handOver() {
	h.mu.Lock()
	//lint:ignore SA2001 only the order counts
	h.mu.Unlock()
}

// settle returns once every goroutine waits for the scheduler or for time. The new steps are put in an order that does
// not depend on which goroutine was faster.
func (h *history) settle() {
	h.handOver()
	synctest.Wait()
	h.rounds++
	for _, s := range h.parked {
		if s.came == 0 {
			s.came = h.rounds
		}
	}
	slices.SortStableFunc(h.parked, func(a, b *step) int {
		if n := cmp.Or(cmp.Compare(a.from.name, b.from.name), cmp.Compare(a.came, b.came)); n != 0 {
			return n
		}
		return cmp.Or(cmp.Compare(a.what(), b.what()), cmp.Compare(a.nth, b.nth))
	})
}

// ready returns the steps that can continue.
func (h *history) ready() (out []*step) {
	now := time.Now()
	for _, s := range h.parked {
		if !s.from.frozen.After(now) {
			out = append(out, s)
		}
	}
	return out
}

func (h *history) take(s *step) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.Index(h.parked, s)
	h.parked = slices.Delete(h.parked, i, i+1)
}

// sleep lets time pass.
func (h *history) sleep(d time.Duration) {
	h.handOver()
	time.Sleep(d)
	h.settle()
	if d := time.Since(h.shifted); d >= 20*time.Millisecond {
		h.shifted = time.Now()
		h.age(d)
	}
}

// exec runs commands on Redis, at the time of the history.
func (h *history) exec(cmds ...redis.Cmder) {
	if now := time.Now(); !now.Equal(h.told) {
		h.told = now
		clock := redis.NewIntCmd(context.Background(), "hset", clockKey, "s", now.Unix(), "us", now.Nanosecond()/1000)
		if cmds[0].Name() == "multi" {
			h.link.do(clock)
		} else {
			cmds = append([]redis.Cmder{clock}, cmds...)
		}
	}
	h.link.do(cmds...)
}

// age lets keys expire whose times to live are durations: Redis counts those by the clock of the machine.
func (h *history) age(d time.Duration) {
	c := redis.NewCmd(context.Background(), "eval", ageScript, 0, d.Milliseconds(), time.Now().UnixMilli(), (5 * 365 * 24 * time.Hour).Milliseconds())
	h.link.do(c)
	if c.Err() != nil && !errors.Is(c.Err(), redis.Nil) {
		h.fail("age keys: %v", c.Err())
	}
}

// ageScript subtracts a duration from the time to live of every key, and deletes keys whose time to expire has come.
const ageScript = `
for _, k in ipairs(redis.call('KEYS', '*')) do
  local left = redis.call('PTTL', k)
  if left > tonumber(ARGV[3]) then
    if redis.call('PEXPIRETIME', k) <= tonumber(ARGV[2]) then redis.call('DEL', k) end
  elseif left >= 0 then
    redis.call('PEXPIRE', k, left - tonumber(ARGV[1]))
  end
end`

// fate is the effect of the network on a call.
type fate int

const (
	arrives   fate = iota
	lost           // it never arrives; the caller gets an error
	unheard        // it runs; the caller gets an error
	repeated       // it runs, its reply is lost, and the connection sends it again: the caller gets the second reply
	overtaken      // the caller gets an error, and it runs later
)

func (f fate) String() string {
	return [...]string{"", "LOST ", "UNHEARD ", "REPEATED ", "OVERTAKEN "}[f]
}

func (h *history) fate() fate {
	if h.calm || !h.chance(h.plan.netFaults) {
		return arrives
	}
	return fate(h.among(int(lost), int(overtaken)))
}

// goOn takes a step.
func (h *history) goOn(s *step) {
	f := h.fate()
	if len(s.cmds) == 0 && f > unheard {
		f = unheard
	}
	if f != arrives && f != repeated && h.shards > 1 && len(s.cmds) > 1 {
		h.goOnInPart(s, f)
		return
	}
	h.take(s)
	var err error
	var said texts
	if f != lost && f != overtaken {
		var before []saved
		if !h.calm && len(s.cmds) == 1 && slices.Contains(s.cmds[0].Args(), any("P")) && h.chance(h.plan.losses) {
			before = h.save()
		}
		err = h.serve(s)
		for _, c := range s.cmds {
			said = append(said, h.answered(c))
			h.note(s.from, c)
		}
		if before != nil {
			h.restore(before)
		}
	}
	h.event("%s %s%s%s", s.from.name, f, s.what, said)
	switch f {
	case repeated:
		h.park(&step{from: s.from, nth: s.nth, came: s.came, what: func() string { return s.what() + " AGAIN" }, cmds: s.cmds, done: s.done})
		return
	case overtaken:
		h.late = append(h.late, copied(s.cmds))
		err = errCut
	case lost, unheard:
		err = errCut
	}
	if err != nil && len(s.cmds) == 1 {
		s.cmds[0].SetErr(err)
	}
	s.done <- err
	h.settle()
}

// goOnInPart takes a step with calls to several servers of a Cluster, some of which have a fate.
func (h *history) goOnInPart(s *step, f fate) {
	h.take(s)
	var said texts
	for i, c := range s.cmds {
		met := h.chance(500)
		if !met || f == unheard {
			h.exec(c)
			said = append(said, h.answered(c))
			h.note(s.from, c)
		}
		if met {
			said = append(said, func() string { return fmt.Sprintf(" → call %d is %s", i+1, f) })
			if f == overtaken {
				h.late = append(h.late, copied(s.cmds[i:i+1]))
			}
			c.SetErr(errCut)
		}
	}
	h.event("%s %s%s", s.from.name, s.what, said)
	s.done <- nil
	h.settle()
}

// park adds a waiting step.
func (h *history) park(s *step) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parked = append(h.parked, s)
}

// serve runs a step.
func (h *history) serve(s *step) error {
	if len(s.cmds) == 0 {
		return nil
	}
	if t, ok := s.cmds[0].(*redis.TimeCmd); ok && len(s.cmds) == 1 {
		t.SetVal(time.Now())
		return nil
	}
	h.exec(s.cmds...)
	if len(s.cmds) == 1 {
		return s.cmds[0].Err()
	}
	return nil
}

func copied(cmds []redis.Cmder) (out []redis.Cmder) {
	for _, c := range cmds {
		out = append(out, redis.NewCmd(context.Background(), c.Args()...))
	}
	return out
}

// arrive lets a command that is still on its way come to Redis.
func (h *history) arrive() {
	i := h.rng.IntN(len(h.late))
	cmds := h.late[i]
	h.late = slices.Delete(h.late, i, i+1)
	h.event("ARRIVES LATE %s", h.describe(cmds))
	h.exec(cmds...)
	for _, c := range cmds {
		h.note(nil, c)
	}
}

// begin empties Redis and connects the observer. It is called in a bubble, as are all methods below.
func (h *history) begin() {
	time.Sleep(time.Until(start))
	h.shifted = start
	ctx := context.Background()
	h.link.do(redis.NewStatusCmd(ctx, "flushdb"), redis.NewStatusCmd(ctx, "set", "muster:store", fmt.Sprint(store.Schema, " ", h.shards)))
	o := h.newProcess("observer", 0)
	o.direct = true
	h.observer = h.newClient(o)
}

// run runs the history. It is the main goroutine of a bubble.
func (h *history) run() {
	h.begin()
	defer h.end()
	h.draw()
	h.prepare()
	for i := range troubleSteps {
		if len(h.problem) > 0 {
			return
		}
		if i%32 == 31 && len(h.unended()) == 0 {
			break
		}
		h.trouble()
	}
	h.peace()
}

// choice is something that can happen next.
type choice struct {
	weight int
	do     func()
}

// trouble takes one of the steps and faults that can happen next.
func (h *history) trouble() {
	h.steps++
	if h.steps%8 == 0 {
		h.look(h.flows[h.rng.IntN(len(h.flows))])
		h.checkOrder()
	}
	var cs []choice
	add := func(weight int, can bool, do func()) {
		if can && weight > 0 {
			cs = append(cs, choice{weight, do})
		}
	}
	p := &h.plan
	ready := h.ready()
	add(100, len(ready) > 0, func() { h.goOn(ready[h.rng.IntN(len(ready))]) })
	add(10, len(h.late) > 0, h.arrive)
	add(12, h.unsent() > 0, h.send)
	add(40, h.deliverable(), h.deliver)
	add(8, len(h.restless()) > 0, h.tend)
	add(12, h.plan.asks > 0 && h.asked(), h.answer)
	add(10, true, func() { h.sleep(time.Duration(h.among(1, 4000)) * time.Microsecond) })
	add(2, true, func() { h.sleep(time.Duration(h.among(5, 700)) * time.Millisecond) })
	add(p.jumps, true, func() {
		d := time.Duration(h.among(1, 15)) * time.Second
		h.event("TIME JUMPS by %s", d)
		h.sleep(d)
	})
	add(p.crashes, h.crashable(), h.crash)
	add(3, h.short(), h.hire)
	add(p.freezes, true, h.freeze)
	add(p.limitLosses, p.limitLosses > 0 && h.limitedNodes(), h.forget)
	add(p.operator, true, h.operate)
	add(4, p.retries > 0, func() { h.retry() })
	add(4, p.pauses > 0, h.pause)
	add(15, p.signals > 0, h.signal)
	add(1, true, func() { h.resume("paused") })
	all := 0
	for _, c := range cs {
		all += c.weight
	}
	n := h.rng.IntN(all)
	for _, c := range cs {
		if n -= c.weight; n < 0 {
			c.do()
			return
		}
	}
}

// peace ends all faults, and lets the workflows end.
func (h *history) peace() {
	h.event("PEACE")
	h.calm = true
	h.recover()
	var ended time.Time // when all had ended: the remaining state has some time to be cleaned up
	for began := time.Now(); len(h.problem) == 0; {
		if h.steps > mostSteps {
			h.fail("stuck: %d steps have been made", h.steps)
			return
		}
		if h.quietStep() {
			continue
		}
		if ended.IsZero() && len(h.unended()) == 0 {
			if h.retry() {
				continue
			}
			ended = time.Now()
		}
		if !ended.IsZero() && time.Since(ended) > h.settling() && len(h.served()) == 0 {
			return
		}
		if time.Since(began) > h.mostTime() {
			h.fail("stuck: %s have passed, and these have not ended: %v", time.Since(start), h.unended())
			return
		}
		h.resumeQueues() // a sender may have paused one in the meantime
		h.sleep(h.nextRound())
	}
}

func (h *history) mostTime() time.Duration {
	if h.plan.limitLosses > 0 {
		return mostTime
	}
	return usualTime
}

// quietStep takes the next step that needs no time to pass, and reports whether there was one.
func (h *history) quietStep() bool {
	h.steps++
	ready := h.ready()
	switch {
	case len(h.late) > 0:
		h.arrive()
	case h.deliverable() && h.chance(300):
		h.deliver()
	case len(ready) > 0:
		h.goOn(ready[h.rng.IntN(len(ready))])
	case h.unsent() > 0:
		h.send()
	case h.resume("paused", "torn"):
	case h.asked():
		h.answer()
	case h.deliverable():
		h.deliver()
	case h.tendEach():
	default:
		return false
	}
	return true
}

// settling is how long keys may remain once all workflows have ended and all wake-ups were taken: batches of
// dead workers are returned only when these are found dead.
func (h *history) settling() time.Duration {
	if h.plan.faultless() && h.plan.concurrency+h.plan.rate == 0 {
		return 2 * roundTime
	}
	return 20 * time.Second
}

// end stops every process.
func (h *history) end() {
	h.stopAll()
	for range 1000 {
		h.settle()
		h.mu.Lock()
		parked := h.parked
		h.parked = nil
		h.mu.Unlock()
		for _, s := range parked {
			s.done <- errDead
		}
		if len(parked) == 0 && h.quiet() {
			return
		}
		h.handOver()
		time.Sleep(time.Second) // back-offs
	}
}
