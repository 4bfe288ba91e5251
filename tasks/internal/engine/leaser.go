package engine

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/tasks/tasktype"
)

// The limits of leases.
const (
	leaseBytes  = 1 << 20                // of the inputs of a call, beyond the first
	leaseLinger = 2 * time.Millisecond   // how long a call that has a task waits for another one
	leaseWait   = 100 * time.Millisecond // least wait of a call
	leaseStored = 10 * time.Second       // how long a call waits for Redis to store its leases
	leaseCalls  = 1000                   // that wait
	mostPools   = 100
	poolIdleFor = time.Minute // then a pool stops
)

// ErrLeases means that a client has as many calls for leases as it may have.
var ErrLeases = errors.New("too many calls for leases at once: at most 1,000, for 100 different lists of tasks; lease several tasks per call")

// Leaser leases nodes to programs that are not workers. It has a worker for each queue and list of tasks, whose slots are as many as
// its callers want. The handler gives a node to a caller, and leaves it open with the time of the lease as its deadline.
type Leaser struct {
	e       *Engine
	Builtin map[string]*Handler // of every worker

	mu      sync.Mutex // guards the fields below, those of pools, and those of calls that wait
	pools   map[string]*leasePool
	waiting int // calls
}

// leasePool is the worker for a queue and a list of tasks.
type leasePool struct {
	*Leaser
	worker *Worker
	ended  chan struct{} // closed when the worker has stopped
	err    error         // of the worker; read it only once ended is closed
	idle   *time.Timer   // stops the worker

	calls  []*leaseCall
	wanted int // leases, by all calls
}

// leaseCall is a call that waits.
type leaseCall struct {
	ctx  context.Context
	req  *tasktype.LeaseRequest
	more chan struct{} // gets a value with each lease
	full chan struct{} // closed when it gets no more

	want   int // more leases
	bytes  int // of inputs
	leases []*leasing
}

// leasing is a lease that is being made.
type leasing struct {
	tasktype.LeasedTask
	made chan struct{} // closed when it is known whether Redis has stored the lease
	ok   bool          // it has
}

// end notes whether the lease is stored.
func (l *leasing) end(ok bool) {
	l.ok = ok
	close(l.made)
}

// leased is the error of the handler of a pool: the node is open, and has a deadline.
type leased struct {
	length time.Duration
	end    func(stored bool)
}

func (leased) Error() string        { return ErrPending.Error() }
func (leased) Is(target error) bool { return target == ErrPending }

// Lease leases nodes of tasks, and waits for the first one.
func (l *Leaser) Lease(ctx context.Context, req *tasktype.LeaseRequest) (out []tasktype.LeasedTask, err error) {
	ends := time.Now().Add(max(leaseWait, req.Wait))
	for len(out) == 0 && err == nil && time.Now().Before(ends) {
		c := &leaseCall{ctx: ctx, req: req, want: req.Max, more: make(chan struct{}, 1), full: make(chan struct{})}
		var p *leasePool
		if p, err = l.enter(c); err == nil {
			out, err = p.lease(c, ends)
		}
	}
	return out, err
}

// enter adds a call to the calls of its pool.
func (l *Leaser) enter(c *leaseCall) (*leasePool, error) {
	names := slices.Compact(slices.Sorted(slices.Values(c.req.Tasks)))
	key := strings.Join(append([]string{c.req.Queue}, names...), "\n")
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pools[key]
	if l.waiting >= leaseCalls || p == nil && len(l.pools) >= mostPools {
		return nil, ErrLeases
	}
	if p == nil {
		p = l.start(key, c.req.Queue, names)
		l.pools[key] = p
	}
	l.waiting++
	p.idle.Stop()
	p.calls = append(p.calls, c)
	p.demandLocked(c.want)
	return p, nil
}

// start starts a pool.
func (l *Leaser) start(key, queue string, names []string) *leasePool {
	p := &leasePool{Leaser: l, ended: make(chan struct{})}
	handlers := maps.Clone(l.Builtin)
	for _, name := range names {
		if handlers[name] == nil {
			handlers[name] = &Handler{Name: name, Run: p.handle}
		}
	}
	p.worker = NewWorker(l.e, handlers, WorkerConfig{
		Queues: map[string]int{queue: 1}, OnDemand: true, MaxConcurrency: leaseCalls * tasktype.MaxLeases, MaxResult: maxCompletion,
		HandlerWait: 24 * time.Hour, Grace: time.Second, Name: "lease-" + WorkerName(), PID: os.Getpid(), Logger: l.e.log,
	})
	ctx, stop := context.WithCancel(context.Background())
	p.idle = time.AfterFunc(poolIdleFor, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.pools[key] == p && len(p.calls) == 0 {
			delete(l.pools, key)
			stop()
		}
	})
	go func() {
		p.err = p.worker.Run(ctx)
		stop()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.pools[key] == p {
			delete(l.pools, key)
		}
		close(p.ended)
	}()
	return p
}

// lease waits for the leases of a call.
func (p *leasePool) lease(c *leaseCall, ends time.Time) (out []tasktype.LeasedTask, err error) {
	wait := time.After(time.Until(ends))
	for more := true; more; {
		select {
		case <-c.more:
			wait = time.After(leaseLinger)
			continue
		case <-c.ctx.Done():
		case <-p.ended:
		case <-wait:
		case <-c.full:
		}
		more = false
	}
	p.mu.Lock()
	p.closeLocked(c)
	p.mu.Unlock()

	storing, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), leaseStored)
	defer cancel()
	for _, l := range c.leases {
		select {
		case <-l.made:
		case <-p.ended:
		case <-storing.Done():
		}
		select {
		case <-l.made:
			if l.ok {
				out = append(out, l.LeasedTask)
			}
		default: // it expires
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	select {
	case <-p.ended:
		return nil, p.err
	default:
		return nil, errors.Join(storing.Err(), c.ctx.Err())
	}
}

// demandLocked adds to the number of nodes that the calls want.
func (p *leasePool) demandLocked(n int) {
	p.wanted += n
	p.worker.slots.setLimit(p.wanted)
}

// closeLocked ends a call: it gets no more leases.
func (p *leasePool) closeLocked(c *leaseCall) {
	i := slices.Index(p.calls, c)
	if i < 0 {
		return
	}
	p.calls = slices.Delete(p.calls, i, i+1)
	p.demandLocked(-c.want)
	close(c.full)
	if p.waiting--; len(p.calls) == 0 {
		p.idle.Reset(poolIdleFor)
	}
}

// assign returns the lease of a node with an input of so many bytes for the call that has waited for the longest time; nil if none waits.
func (p *leasePool) assign(size int) (*leaseCall, *leasing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.calls) > 0 {
		c := p.calls[0]
		if c.ctx.Err() != nil {
			p.closeLocked(c)
			continue
		}
		l := &leasing{made: make(chan struct{})}
		c.leases = append(c.leases, l)
		signal(c.more)
		c.want--
		p.demandLocked(-1)
		if c.bytes += size; c.want == 0 || c.bytes > leaseBytes {
			p.closeLocked(c)
		}
		return c, l
	}
	return nil, nil
}

// handle is the handler of all tasks of a pool. A node for which no call waits returns to its queue.
func (p *leasePool) handle(ctx context.Context, input []byte) (HandlerResult, error) {
	again := &Verdict{Again: true, Delay: new(time.Duration)}
	c, l := p.assign(len(input))
	if l == nil {
		return HandlerResult{}, again
	}
	r := RunFrom(ctx)
	token, err := r.Token(ctx)
	if err != nil || c.ctx.Err() != nil {
		l.end(false)
		return HandlerResult{}, again
	}
	l.LeasedTask = tasktype.LeasedTask{Info: r.Info, Token: token, Input: input}
	return HandlerResult{}, &leased{c.req.For, l.end}
}
