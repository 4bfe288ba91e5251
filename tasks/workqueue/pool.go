package workqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// PoolConfig sets up a Pool.
type PoolConfig struct {
	Workers   int             // items worked on at a time. Defaults to 8.
	Heartbeat time.Duration   // how often leases are extended. Defaults to 30 s, or a third of the lease.
	Timeout   time.Duration   // deadline of a handler. Defaults to 15 minutes.
	Grace     time.Duration   // how long running items may take to finish when the pool stops. Defaults to 30 s.
	Hard      context.Context // once done, ends the grace at once. Defaults to never.
	Drain     bool            // end when no item is open, instead of waiting for more. Defaults to false.

	// MaxPerKey returns how many items of a resource key this pool works on at a time, so that the items of a slow one leave room
	// for others; 0 is no bound. The key "" means a key without an item in the pool. Defaults to no bound.
	MaxPerKey func(key string) int

	// Observe, if set, is called after each call of a handler, by many goroutines at once. It must not block.
	Observe func(Run)

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
	if c.MaxPerKey == nil {
		c.MaxPerKey = func(string) int { return 0 }
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
// buffer, workers run handlers, a settler stores their outcomes, and a
// heartbeat extends the leases of the items that run.
//
// An item whose resource is at MaxPerKey, or waits after NotNow or HoldBack,
// occupies no worker: the dispatcher leases the next that can run.
type Pool struct {
	q        *Queue
	handlers Handlers
	cfg      PoolConfig

	held   atomic.Pointer[held] // by the latest Run
	counts counts
}

// NewPool returns a pool. Run starts it. The handlers must not be changed any more.
func NewPool(q *Queue, handlers Handlers, cfg PoolConfig) (*Pool, error) {
	if q.err != nil {
		return nil, q.err
	}
	cfg = cfg.withDefaults(q.cfg.LeaseTTL)
	if err := cfg.validate(q.cfg.LeaseTTL); err != nil {
		return nil, fmt.Errorf("pool of queue %s: %w", q.name, err)
	}
	p := &Pool{q: q, handlers: handlers, cfg: cfg}
	p.held.Store(newHeld(cfg))
	return p, nil
}

// PoolStats has the counts of a pool.
type PoolStats struct {
	Done, Skipped, Failed, Retried, Returned, Lost int64
	Running                                        int // leased at the moment
	Workers                                        int // handlers that run at a time, at most
}

// Run is a call of a handler.
type Run struct {
	Kind   string        // of the item; "unknown" if the kind has no handler
	Waited time.Duration // how long the item was ready before it was leased
	Took   time.Duration
}

// counts are the counters of a pool.
type counts struct{ done, skipped, failed, retried, returned, lost atomic.Int64 }

// countEnd counts a run by the state that its item is in now.
func (c *counts) countEnd(s State) {
	switch s {
	case StateDone:
		c.done.Add(1)
	case StateSkipped:
		c.skipped.Add(1)
	case StateError:
		c.failed.Add(1)
	default:
		c.retried.Add(1)
	}
}

// Stats returns the pool's counters.
func (p *Pool) Stats() PoolStats {
	c := &p.counts
	return PoolStats{
		Done: c.done.Load(), Skipped: c.skipped.Load(), Failed: c.failed.Load(),
		Retried: c.retried.Load(), Returned: c.returned.Load(), Lost: c.lost.Load(), Running: p.held.Load().len(), Workers: p.cfg.Workers,
	}
}

// errStopping is why the context of a handler ends when the pool stops.
var errStopping = errors.New("the pool is stopping")

// Run works until ctx ends, or with Drain until no item of the queue is open. When ctx ends it stops leasing and
// returns the items that have not started. Running handlers have Grace to finish; then they are cancelled and their
// items returned too, without counting an attempt. It must not run twice concurrently, but may run again.
func (p *Pool) Run(ctx context.Context) error {
	h := newHeld(p.cfg)
	p.held.Store(h)
	buffer := make(chan *job, 2*p.cfg.Workers)

	// The other parts of the pool outlive ctx, so that running handlers can finish.
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	back, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	sub := p.subscribe(back)
	woken := sub.Channel()
	defer func() {
		_ = sub.Close()
		for range woken { // otherwise the client waits a minute for a reader of the last message
		}
	}()

	settler := newSettler(p, h)
	var workers, background sync.WaitGroup
	for range p.cfg.Workers {
		workers.Go(func() { p.work(run, h, buffer, settler.jobs) })
	}
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		settler.run(back)
	}()
	background.Go(func() { p.heartbeat(back, h) })
	announced := make(chan struct{})
	background.Go(func() { newPresence(p).run(back, announced) })

	// If the pool is killed before the other pools know of it, its items wait for the end of their leases.
	select {
	case <-announced:
	case <-ctx.Done():
	case <-p.cfg.Hard.Done():
	}
	d := &dispatcher{p: p, held: h, buffer: buffer}
	refused := d.run(ctx, woken)
	_ = sub.Unsubscribe(back, p.q.keys.wake()) // no longer read
	d.returnBuffered(back)
	close(buffer)

	grace, err := p.stopHandlers(h, settler, &workers, cancel)
	if err == nil {
		close(settler.jobs)
		// The pool must not wait forever for an unavailable Redis: items whose outcome is not stored run again.
		patience := time.NewTimer(max(time.Until(grace), 2*time.Second))
		defer patience.Stop()
		select {
		case <-settled:
		case <-patience.C:
			stop()
			<-settled
		}
	}
	stop()
	background.Wait()
	return errors.Join(refused, err)
}

// subscribe listens for items that become ready. Its connection also shows the
// other pools, until the end of Run, that this one is alive.
func (p *Pool) subscribe(ctx context.Context) *redis.PubSub {
	sub := p.q.rdb.Subscribe(ctx, p.q.keys.wake(), p.q.keys.alive(p.cfg.Name))
	for range 2 { // both channels; if not, Redis is away and the client keeps trying
		if _, err := sub.ReceiveTimeout(ctx, time.Second); err != nil {
			break
		}
	}
	return sub
}

// stopHandlers waits for the workers, for as long as the grace lasts, and then
// cancels their handlers. It returns when the grace ends, and an error if a
// handler does not return.
func (p *Pool) stopHandlers(h *held, s *settler, workers *sync.WaitGroup, cancel context.CancelCauseFunc) (grace time.Time, err error) {
	ended := make(chan struct{})
	go func() {
		workers.Wait()
		close(ended)
	}()
	grace = time.Now().Add(p.cfg.Grace)
	select {
	case <-ended:
	case <-p.cfg.Hard.Done():
		grace = time.Now()
	case <-time.After(p.cfg.Grace):
	}
	cancel(errStopping)
	select {
	case <-ended:
		return grace, nil
	case <-time.After(2 * time.Second):
	}
	close(s.over) // a worker whose handler has returned may wait for the settler, and that for Redis
	select {
	case <-ended:
	case <-time.After(3 * time.Second):
		err = fmt.Errorf("pool of queue %s: handlers did not return after their cancellation: %v", p.q.name, h.ids())
	}
	return grace, err
}

// heartbeat extends the leases of the items that the pool holds, except those
// whose handlers are past their deadline, and cancels the handlers of leases
// that are lost.
func (p *Pool) heartbeat(ctx context.Context, h *held) {
	tick := time.NewTicker(p.cfg.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		leases := h.inTime()
		if len(leases) == 0 {
			continue
		}
		lost, err := p.q.Heartbeat(ctx, leases...)
		if err != nil && ctx.Err() == nil {
			p.cfg.Logger.WarnContext(ctx, "cannot extend leases; trying again", "queue", p.q.name, "err", err)
		}
		h.cancel(lost)
	}
}

// countLost counts a lease that was lost.
func (p *Pool) countLost(l Leased) {
	p.counts.lost.Add(1)
	p.cfg.Logger.Warn("an item's lease was lost before it was settled; it runs again", "queue", p.q.name, "item", l.ID)
}
