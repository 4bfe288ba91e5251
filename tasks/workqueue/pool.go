package workqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"muster/tasks/limit"
)

// PoolConfig sets up a Pool.
type PoolConfig struct {
	Workers   int             // items worked on at a time. Defaults to 8.
	Heartbeat time.Duration   // how often leases are extended. Defaults to 30 s, or a third of the lease.
	Timeout   time.Duration   // deadline of a handler. Defaults to 15 minutes.
	Grace     time.Duration   // how long running items may take to finish when the pool stops. Defaults to 30 s.
	Hard      context.Context // once done, ends the grace at once. Defaults to never.
	Drain     bool            // end when no item is open, instead of waiting for more. Defaults to false.

	// Limiter returns the slots of a resource key, nil for a key without a
	// limit. An item runs only while it holds a slot of each of its keys.
	// Defaults to no limits.
	Limiter func(key string) *limit.KeyedLimiter

	Name   string       // of the pool in its leases. Defaults to host, pid and a random part.
	Logger *slog.Logger // Defaults to slog.Default().
}

func (c PoolConfig) withDefaults(lease time.Duration) PoolConfig {
	if c.Workers == 0 {
		c.Workers = 8
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = min(30*time.Second, lease/3)
	}
	if c.Timeout == 0 {
		c.Timeout = 15 * time.Minute
	}
	if c.Grace == 0 {
		c.Grace = 30 * time.Second
	}
	if c.Hard == nil {
		c.Hard = context.Background()
	}
	if c.Limiter == nil {
		c.Limiter = func(string) *limit.KeyedLimiter { return nil }
	}
	if c.Name == "" {
		host, _ := os.Hostname()
		c.Name = fmt.Sprintf("%s-%d-%x", host, os.Getpid(), time.Now().UnixNano())
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func (c PoolConfig) validate(lease time.Duration) error {
	switch {
	case c.Workers < 1 || c.Workers > 256:
		return fmt.Errorf("workers is %d; it must be 1 to 256", c.Workers)
	case c.Heartbeat <= 0 || c.Heartbeat >= lease:
		return fmt.Errorf("heartbeat is %v; it must be above zero and below the lease of %v", c.Heartbeat, lease)
	case c.Timeout < 0 || c.Grace < 0:
		return errors.New("timeout and grace must not be below zero")
	}
	return nil
}

// Pool works on the items of a queue: a dispatcher leases into a bounded
// buffer, workers run handlers, a settler writes down how they ended, and a
// heartbeat keeps the leases of what really runs.
//
// An item whose resource is at its limit occupies no worker: the dispatcher
// passes over it and takes the next that can run.
type Pool struct {
	q   *Queue
	mux *Mux
	cfg PoolConfig

	buffer  chan *job     // closed when no more will come
	settled chan finished // closed when all workers have ended
	freed   chan struct{} // a receive says: there may be room, or a resource

	mu      sync.Mutex // guards the fields below
	jobs    map[int64]*job
	using   map[string]int       // by resource key: items leased here
	blocked map[string]time.Time // by resource key: at its limit, filled elsewhere; until
	waiting map[string]time.Time // by resource key: a handler said not now; until

	waited prometheus.Histogram     // how long items were ready
	took   *prometheus.HistogramVec // how long handlers ran, by kind

	counts struct{ leased, done, skipped, failed, retried, returned, lost atomic.Int64 }
}

// job is an item that the pool holds.
type job struct {
	Leased
	slots    []*limit.Slot
	cancel   context.CancelCauseFunc // of its handler; nil before it runs
	deadline time.Time               // of its handler; zero before it runs
}

// finished is a job whose handler has returned.
type finished struct {
	*job
	outcome Outcome
	err     error
}

// PoolStats counts what a pool has done.
type PoolStats struct {
	Leased, Done, Skipped, Failed, Retried, Returned, Lost int64
	Running                                                int // leased at the moment
}

// errStopping is why the context of a handler ends when the pool stops.
var errStopping = errors.New("the pool is stopping")

// NewPool returns a pool. Run starts it.
func NewPool(q *Queue, mux *Mux, cfg PoolConfig) (*Pool, error) {
	if q.err != nil {
		return nil, q.err
	}
	cfg = cfg.withDefaults(q.cfg.LeaseTTL)
	if err := cfg.validate(q.cfg.LeaseTTL); err != nil {
		return nil, fmt.Errorf("pool of queue %s: %w", q.name, err)
	}
	return &Pool{q: q, mux: mux, cfg: cfg, waited: newWaited(q.name), took: newTook(q.name)}, nil
}

// Stats returns the pool's counters.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	running := len(p.jobs)
	p.mu.Unlock()
	c := &p.counts
	return PoolStats{
		Leased: c.leased.Load(), Done: c.done.Load(), Skipped: c.skipped.Load(), Failed: c.failed.Load(),
		Retried: c.retried.Load(), Returned: c.returned.Load(), Lost: c.lost.Load(), Running: running,
	}
}

// Run works until ctx ends, or with Drain until no item of the queue is open.
// When ctx ends it leases no more, gives back at once what has not begun, lets
// what runs finish within Grace, then cancels it and gives it back too, without
// counting an attempt. It must not run twice at a time, and may run again.
func (p *Pool) Run(ctx context.Context) error {
	p.buffer = make(chan *job, 2*p.cfg.Workers)
	p.settled = make(chan finished, 2*p.cfg.Workers)
	p.freed = make(chan struct{}, 1)
	p.mu.Lock()
	p.jobs, p.using, p.blocked = make(map[int64]*job), make(map[string]int), make(map[string]time.Time)
	p.waiting = make(map[string]time.Time)
	p.mu.Unlock()

	// The rest of the pool outlives ctx, to bring what runs to its end.
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	back, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	// Until the end of all, others see by its connection that the pool is alive.
	sub := p.q.rdb.Subscribe(back, p.q.keys.wake(), p.q.keys.alive(p.cfg.Name))
	defer func() { _ = sub.Close() }()
	for range 2 { // both channels; if not, Redis is away and the client goes on trying
		if _, err := sub.ReceiveTimeout(back, time.Second); err != nil {
			break
		}
	}

	var workers, settler, heart sync.WaitGroup
	for range p.cfg.Workers {
		workers.Go(func() { p.work(run) })
	}
	settler.Go(func() { p.settle(back) })
	heart.Go(func() { p.heartbeat(back) })
	said := make(chan struct{})
	heart.Go(func() { p.presence(back, said) })

	// What a pool has leased that nobody knew of waits for the end of the lease, should the pool die.
	select {
	case <-said:
	case <-ctx.Done():
	case <-p.cfg.Hard.Done():
	}
	refused := p.dispatch(ctx, sub.Channel())
	_ = sub.Unsubscribe(back, p.q.keys.wake()) // nobody reads on
	p.giveBack(back)
	close(p.buffer)

	// A drained pool has nothing running any more.
	ended := make(chan struct{})
	go func() {
		workers.Wait()
		close(ended)
	}()
	var err error
	grace := time.Now().Add(p.cfg.Grace)
	select {
	case <-ended:
	case <-p.cfg.Hard.Done():
		grace = time.Now()
	case <-time.After(p.cfg.Grace):
	}
	cancel(errStopping)
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		err = fmt.Errorf("pool of queue %s: handlers did not end when they were told to: %v", p.q.name, p.running())
	}
	if err == nil {
		close(p.settled)
		written := make(chan struct{})
		go func() {
			settler.Wait()
			close(written)
		}()
		// While Redis is away there is no use in waiting for ever: what cannot be
		// written down runs again.
		patience := time.NewTimer(max(time.Until(grace), 2*time.Second))
		defer patience.Stop()
		select {
		case <-written:
		case <-patience.C:
			stop()
			<-written
		}
	}
	stop()
	heart.Wait()
	return errors.Join(refused, err)
}

// running names the items that are leased.
func (p *Pool) running() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []string
	for _, j := range p.jobs {
		ids = append(ids, j.ID)
	}
	slices.Sort(ids)
	return ids
}

// dispatch leases items into the buffer until ctx ends or the queue is drained,
// or is not one that this program may touch.
func (p *Pool) dispatch(ctx context.Context, woken <-chan *redis.Message) error {
	empty, errs := 0, 0
	strays := time.NewTicker(p.cfg.Heartbeat)
	defer strays.Stop()
	for ctx.Err() == nil {
		select {
		case <-strays.C:
			p.returnStrays(ctx)
		default:
		}
		room := min(cap(p.buffer)-len(p.buffer), 3*p.cfg.Workers-p.held())
		// A lease of a few is hardly dearer than of one: wait until there is room
		// for a few.
		if room <= 0 || len(p.buffer) >= p.cfg.Workers {
			select {
			case <-ctx.Done():
			case <-p.freed:
			case <-strays.C:
				p.returnStrays(ctx)
			}
			continue
		}
		budget, change := p.budget()
		// An answer that is not waited for would be items that nobody works on.
		asking, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		got, err := p.q.LeaseWithin(asking, p.cfg.Name, room, budget)
		done()
		pause := time.Second // the longest between two looks
		switch {
		case errors.Is(err, ErrNewer):
			return err
		case err != nil:
			errs++
			pause = min(time.Second, time.Duration(errs)*100*time.Millisecond)
			p.cfg.Logger.Warn("cannot lease; trying again", "queue", p.q.name, "err", err)
		default:
			errs = 0
			p.counts.leased.Add(int64(len(got.Items)))
			refused := p.admit(ctx, got.Items)
			if len(got.Items) > refused {
				empty = 0
				continue
			}
			if got.Next >= 0 {
				pause = min(pause, max(got.Next, time.Millisecond))
			}
			if refused > 0 {
				pause = min(pause, blockedFor)
			} else if got.PassedOver {
				pause = min(pause, max(time.Until(change), time.Millisecond))
			}
			if p.cfg.Drain && !got.PassedOver && p.held() == 0 {
				if s, err := p.q.Stats(ctx); err == nil && s.Open() == 0 {
					// Twice, because something may be on its way from elsewhere.
					if empty++; empty == 2 {
						return nil
					}
					pause = 10 * time.Millisecond
				} else {
					empty = 0
				}
			}
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-p.freed:
		case <-woken:
		}
		t.Stop()
	}
	return nil
}

// returnStrays gives back what a lease took whose answer never came: the
// client asks again by itself when a connection breaks. Only dispatch leases,
// so that nothing is on its way meanwhile.
func (p *Pool) returnStrays(ctx context.Context) {
	p.mu.Lock()
	held := make([]Leased, 0, len(p.jobs))
	for _, j := range p.jobs {
		held = append(held, j.Leased)
	}
	p.mu.Unlock()
	n, err := p.q.ReturnStrays(ctx, p.cfg.Name, held...)
	if err == nil && n > 0 {
		p.cfg.Logger.Info("gave back items whose lease was answered to nobody", "queue", p.q.name, "items", n)
	}
}

// blockedFor is how long a resource key is passed over that other processes
// have filled.
const blockedFor = 50 * time.Millisecond

// maxWaiting bounds the resources that are passed over because they are not to
// be used now: each lease names them.
const maxWaiting = 1000

// holdBack has the dispatcher pass over a resource. It reports false if there
// are too many of these.
func (p *Pool) holdBack(key string, d time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	until := time.Now().Add(d)
	old, known := p.waiting[key]
	if !known && len(p.waiting) >= maxWaiting {
		return false
	}
	if until.After(old) {
		p.waiting[key] = until
	}
	return true
}

// budget says how many more items of each resource this process can run, and
// when that changes without anything happening here; at the latest in an hour.
func (p *Pool) budget() (Budget, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := Budget{Default: min(4, p.cfg.Workers), Left: make(map[string]int)}
	for key, n := range p.using {
		if l := p.cfg.Limiter(key); l != nil {
			b.Left[key] = max(0, l.Known(key)-n)
		} else {
			b.Left[key] = -1
		}
	}
	now := time.Now()
	change := now.Add(time.Hour)
	for _, passed := range []map[string]time.Time{p.blocked, p.waiting} {
		for key, until := range passed {
			if !now.Before(until) {
				delete(passed, key)
				continue
			}
			b.Left[key] = 0
			if until.Before(change) {
				change = until
			}
		}
	}
	return b, change
}

func (p *Pool) held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.jobs)
}

// admit puts the items that get their slots into the buffer and gives the
// others back; where the limiter fails, that is a failed run. It returns how
// many were not admitted.
func (p *Pool) admit(ctx context.Context, items []Leased) (refused int) {
	var back []Leased
	for _, it := range items {
		j := &job{Leased: it}
		ok, broken := true, error(nil)
		for _, key := range it.ResourceKeys {
			l := p.cfg.Limiter(key)
			if l == nil {
				continue
			}
			slot, err := l.TryAcquire(ctx, key)
			if err != nil && ctx.Err() == nil {
				p.cfg.Logger.Warn("cannot get a slot; trying again", "queue", p.q.name, "item", it.ID, "key", key, "err", err)
				broken = notAcquired(err)
			}
			if slot == nil {
				p.mu.Lock()
				p.blocked[key] = time.Now().Add(blockedFor)
				p.mu.Unlock()
				ok = false
				break
			}
			j.slots = append(j.slots, slot)
		}
		if !ok {
			p.release(j)
			refused++
			if broken == nil {
				back = append(back, it)
			} else {
				p.turnAway(ctx, it, broken)
			}
			continue
		}
		p.mu.Lock()
		p.waited.Observe(it.Waited.Seconds())
		p.jobs[it.Token] = j
		for _, key := range it.ResourceKeys {
			p.using[key]++
		}
		p.mu.Unlock()
		p.buffer <- j // there is room: only dispatch fills it
	}
	if len(back) > 0 {
		if err := p.q.Return(context.WithoutCancel(ctx), back...); err != nil {
			p.cfg.Logger.Warn("cannot give items back; their leases will run out", "queue", p.q.name, "items", len(back), "err", err)
		}
	}
	return refused
}

// turnAway writes down that an item failed before it ran. That is tried once:
// what is not written down is given back with the strays.
func (p *Pool) turnAway(ctx context.Context, it Leased, cause error) {
	v := judge(cause)
	state, err := p.q.Retry(context.WithoutCancel(ctx), it, v.error, v.after, true)
	if err != nil {
		p.cfg.Logger.Warn("cannot write down that an item got no slot", "queue", p.q.name, "item", it.ID, "err", err)
		return
	}
	p.count(state)
}

// giveBack returns what waits in the buffer.
func (p *Pool) giveBack(ctx context.Context) {
	var back []Leased
	var jobs []*job
	for {
		select {
		case j := <-p.buffer:
			back, jobs = append(back, j.Leased), append(jobs, j)
			continue
		default:
		}
		break
	}
	if len(back) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Grace+time.Second)
	defer cancel()
	if err := p.q.Return(ctx, back...); err != nil {
		p.cfg.Logger.Warn("cannot give items back; their leases will run out", "queue", p.q.name, "items", len(back), "err", err)
	}
	p.counts.returned.Add(int64(len(back)))
	var forgetting sync.WaitGroup
	for _, j := range jobs {
		p.forgetAside(&forgetting, j)
	}
	forgetting.Wait()
}

// forgetAside is forget that holds nobody up: where Redis is silent, to give
// one slot back takes seconds.
func (p *Pool) forgetAside(group *sync.WaitGroup, j *job) {
	if len(j.slots) == 0 {
		p.forget(j)
		return
	}
	group.Go(func() { p.forget(j) })
}

// forget ends the holding of a job.
func (p *Pool) forget(j *job) {
	p.release(j)
	p.mu.Lock()
	delete(p.jobs, j.Token)
	for _, key := range j.ResourceKeys {
		if p.using[key]--; p.using[key] == 0 {
			delete(p.using, key)
		}
		delete(p.blocked, key)
	}
	p.mu.Unlock()
	select {
	case p.freed <- struct{}{}:
	default:
	}
}

// release gives a job's slots back, the last first.
func (p *Pool) release(j *job) {
	for _, s := range slices.Backward(j.slots) {
		if err := s.Release(context.Background()); err != nil {
			p.cfg.Logger.Warn("cannot give a slot back; it will come free", "key", s.Key(), "err", err)
		}
	}
	j.slots = nil
}

// work runs the handlers of buffered items, one after the other.
func (p *Pool) work(ctx context.Context) {
	for j := range p.buffer {
		select {
		case p.freed <- struct{}{}: // there is room in the buffer
		default:
		}
		own, cancel := context.WithCancelCause(ctx)
		limited, end := context.WithTimeoutCause(own, p.cfg.Timeout,
			fmt.Errorf("the handler took longer than %v", p.cfg.Timeout))
		p.mu.Lock()
		j.cancel = cancel
		j.deadline = time.Now().Add(p.cfg.Timeout)
		p.mu.Unlock()
		began := time.Now()
		o, err := p.handle(limited, j.Leased)
		p.observe(j.Kind, time.Since(began))
		if err != nil && limited.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(limited), err)
		}
		end()
		cancel(nil)
		p.settled <- finished{j, o, err}
	}
}

// handle calls the handler of an item. A panic is an error.
func (p *Pool) handle(ctx context.Context, it Leased) (o Outcome, err error) {
	defer func() {
		if r := recover(); r != nil {
			p.cfg.Logger.Error("a handler panicked", "queue", p.q.name, "item", it.ID, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	h, err := p.mux.find(it.Kind)
	if err != nil {
		return Outcome{}, err
	}
	o, err = h(ctx, it)
	if o.State == "" {
		o.State = StateDone
	}
	return o, err
}

// settle writes down how items ended, those that ended together in one go. It
// returns when also their slots are given back.
func (p *Pool) settle(ctx context.Context) {
	var forgetting sync.WaitGroup
	defer forgetting.Wait()
	for first := range p.settled {
		batch := []finished{first}
	more:
		for len(batch) < 100 {
			select {
			case f, ok := <-p.settled:
				if !ok {
					break more
				}
				batch = append(batch, f)
			default:
				break more
			}
		}
		var ss []Settlement
		var ended []finished
		for _, f := range batch {
			if f.err != nil {
				p.failed(ctx, f)
				continue
			}
			ss, ended = append(ss, Settlement{f.Leased, f.outcome}), append(ended, f)
		}
		p.write(ctx, ss, ended)
		for _, f := range batch {
			p.forgetAside(&forgetting, f.job)
		}
	}
}

// write settles items, again and again while Redis is away.
func (p *Pool) write(ctx context.Context, ss []Settlement, ended []finished) {
	for try := 0; len(ss) > 0; try++ {
		errs := p.q.SettleAll(ctx, ss...)
		var again []Settlement
		var left []finished
		var last error
		for i, err := range errs {
			switch {
			case err == nil:
				p.count(ss[i].Outcome.State)
			case errors.Is(err, ErrLeaseLost):
				p.lost(ss[i].Lease)
			case p.q.check(ss[i]) != nil:
				// It can never be written: that is the handler's failure.
				p.failed(ctx, finished{ended[i].job, Outcome{}, Permanent(err)})
			default:
				again, left, last = append(again, ss[i]), append(left, ended[i]), err
			}
		}
		if ss, ended = again, left; len(ss) > 0 && !p.pause(ctx, try, last) {
			return
		}
	}
}

// check says whether a settlement can be written at all.
func (q *Queue) check(s Settlement) error { return s.Outcome.check(s.Lease.ID, q.cfg.MaxPayload) }

// failed gives up the lease of an item whose run failed.
func (p *Pool) failed(ctx context.Context, f finished) {
	v := judge(f.err)
	passed := v.held != "" && p.holdBack(v.held, v.hold)
	// An item that would not be passed over has to wait by itself.
	v.back = v.back && passed && slices.Contains(f.ResourceKeys, v.held)
	for try := 0; ; try++ {
		state, err := StateQueued, error(nil)
		switch {
		case v.back, errors.Is(f.err, errStopping):
			err = p.q.Return(ctx, f.Leased)
			if err == nil {
				p.counts.returned.Add(1)
				return
			}
		case errors.Is(f.err, ErrLeaseLost):
			p.lost(f.Leased)
			return
		case v.permanent:
			state, err = StateError, p.q.Settle(ctx, f.Leased, Failed(v.error))
		default:
			state, err = p.q.Retry(ctx, f.Leased, v.error, v.after, !v.free)
		}
		if err == nil {
			p.count(state)
			return
		}
		if errors.Is(err, ErrLeaseLost) {
			p.lost(f.Leased)
			return
		}
		if !p.pause(ctx, try, err) {
			return
		}
	}
}

// pause waits before Redis is told again. It reports false when that is of no
// more use: the leases have run out.
func (p *Pool) pause(ctx context.Context, try int, err error) bool {
	if try >= 20 {
		p.cfg.Logger.Error("cannot write down how items ended; their leases will run out", "queue", p.q.name, "err", err)
		return false
	}
	p.cfg.Logger.Warn("cannot write down how items ended; trying again", "queue", p.q.name, "err", err)
	t := time.NewTimer(min(time.Second, time.Duration(try+1)*50*time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *Pool) count(s State) {
	switch s {
	case StateDone:
		p.counts.done.Add(1)
	case StateSkipped:
		p.counts.skipped.Add(1)
	case StateError:
		p.counts.failed.Add(1)
	default:
		p.counts.retried.Add(1)
	}
}

func (p *Pool) lost(l Leased) {
	p.counts.lost.Add(1)
	p.cfg.Logger.Warn("an item's lease was lost before it was settled; it runs again", "queue", p.q.name, "item", l.ID)
}

// heartbeat extends the leases of what the pool holds, but not of handlers that
// are past their deadline, and cancels the handlers of leases that are lost.
func (p *Pool) heartbeat(ctx context.Context) {
	tick := time.NewTicker(p.cfg.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var leases []Leased
		now := time.Now()
		p.mu.Lock()
		for _, j := range p.jobs {
			if j.deadline.IsZero() || now.Before(j.deadline) {
				leases = append(leases, j.Leased)
			}
		}
		p.mu.Unlock()
		if len(leases) == 0 {
			continue
		}
		lost, err := p.q.Heartbeat(ctx, leases...)
		if err != nil && ctx.Err() == nil {
			p.cfg.Logger.Warn("cannot extend leases; trying again", "queue", p.q.name, "err", err)
		}
		for _, l := range lost {
			p.mu.Lock()
			j := p.jobs[l.Token]
			if j != nil && j.cancel != nil {
				j.cancel(ErrLeaseLost)
			}
			p.mu.Unlock()
		}
	}
}
