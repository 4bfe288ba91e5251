package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/tasks/tasktype"
)

// The limits of leases.
const (
	leaseBytes   = 1 << 20                // of the inputs of a call, beyond the first
	leaseLinger  = 2 * time.Millisecond   // how long a call that has one task waits for more
	leaseWait    = 100 * time.Millisecond // least wait of a call
	leaseStored  = 10 * time.Second       // how long a call waits for Redis to store its leases
	leaseCalls   = 1000                   // that wait
	mostTakers   = 100
	takerIdleFor = time.Minute // then a taker stops
)

// ErrLeases means that a client has as many calls for leases as it may have.
var ErrLeases = errors.New("too many calls for leases at once: at most 1,000, for 100 different lists of tasks; lease several tasks per call")

// Leaser leases nodes to programs that are not workers. It has a worker for each queue and list of tasks, whose slots are as many as
// its callers want. The handler gives a node to a caller, and leaves it open with the time of the lease as its deadline.
type Leaser struct {
	e       *Engine
	Builtin map[string]*Handler // of every worker

	mu     sync.Mutex // guards the fields below
	takers map[string]*taker
	calls  int
}

// taker is the worker for a queue and a list of tasks.
type taker struct {
	worker *Worker
	ended  chan struct{} // closed when the worker has stopped
	err    error         // of the worker; read it only once ended is closed
	stop   context.CancelFunc

	users int         // guarded by the mutex of the Leaser
	idle  *time.Timer // stops the taker; likewise

	mu     sync.Mutex // guards the fields below, and those of calls that are not final
	calls  []*leaseCall
	wanted int // by all calls
}

// leaseCall is a call that waits.
type leaseCall struct {
	ctx    context.Context
	length time.Duration
	first  chan struct{} // closed when it has a lease
	full   chan struct{} // closed when it gets no more

	want   int // more leases
	bytes  int // of inputs
	leases []*leasing
}

// leasing is a lease that is being made.
type leasing struct {
	tasktype.Lease
	made chan struct{} // closed when it is known whether Redis has stored the lease
	ok   bool          // it has
}

// end notes whether the lease is stored.
func (l *leasing) end(ok bool) {
	l.ok = ok
	close(l.made)
}

// leased is the error of the handler of a taker: the node is open, and has a deadline.
type leased struct {
	length time.Duration
	end    func(stored bool)
}

func (leased) Error() string        { return ErrPending.Error() }
func (leased) Is(target error) bool { return target == ErrPending }

// Lease leases nodes of tasks, and waits for the first one.
func (l *Leaser) Lease(ctx context.Context, req *tasktype.LeaseRequest) ([]tasktype.Lease, error) {
	ends := time.Now().Add(max(leaseWait, req.Wait))
	for {
		t, err := l.enter(req)
		if err != nil {
			return nil, err
		}
		out, err := t.lease(ctx, req, ends)
		l.leave(t)
		if len(out) > 0 || err != nil || !time.Now().Before(ends) {
			return out, err
		}
	}
}

// enter returns the taker for a request, and keeps it until the caller leaves it.
func (l *Leaser) enter(req *tasktype.LeaseRequest) (*taker, error) {
	names := slices.Compact(slices.Sorted(slices.Values(req.Tasks)))
	key := strings.Join(append([]string{req.Queue}, names...), "\n")
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.takers[key]
	if l.calls >= leaseCalls || t == nil && len(l.takers) >= mostTakers {
		return nil, ErrLeases
	}
	if t == nil {
		t = l.start(key, req.Queue, names)
		l.takers[key] = t
	}
	l.calls++
	t.users++
	t.idle.Stop()
	return t, nil
}

// leave ends the use of a taker by a caller.
func (l *Leaser) leave(t *taker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
	if t.users--; t.users == 0 {
		t.idle.Reset(takerIdleFor)
	}
}

// start starts a taker.
func (l *Leaser) start(key, queue string, names []string) *taker {
	t := &taker{ended: make(chan struct{})}
	handlers := make(map[string]*Handler, len(names)+len(l.Builtin))
	for _, name := range names {
		handlers[name] = &Handler{Name: name, Run: t.handle}
	}
	for name, h := range l.Builtin {
		handlers[name] = h
	}
	t.worker = NewWorker(l.e, handlers, WorkerConfig{
		Queues: map[string]int{queue: 1}, OnDemand: true, MaxConcurrency: leaseCalls * tasktype.MaxLeases, MaxResult: maxCompletion,
		HandlerWait: 24 * time.Hour, Grace: time.Second, Name: WorkerName(), Logger: l.e.log,
	})
	ctx, stop := context.WithCancel(context.Background())
	t.stop = stop
	forget := func(unused bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.takers[key] == t && !(unused && t.users > 0) {
			delete(l.takers, key)
			stop()
		}
	}
	t.idle = time.AfterFunc(takerIdleFor, func() { forget(true) })
	go func() {
		defer close(t.ended)
		t.err = t.worker.Run(ctx)
		forget(false)
	}()
	return t
}

// lease waits for leases.
func (t *taker) lease(ctx context.Context, req *tasktype.LeaseRequest, ends time.Time) (out []tasktype.Lease, err error) {
	c := &leaseCall{ctx: ctx, length: req.For, want: req.Max, first: make(chan struct{}), full: make(chan struct{})}
	t.mu.Lock()
	t.calls = append(t.calls, c)
	t.demandLocked(c.want)
	t.mu.Unlock()

	select {
	case <-ctx.Done():
	case <-t.ended:
	case <-time.After(time.Until(ends)):
	case <-c.first:
		select {
		case <-c.full:
		case <-time.After(leaseLinger):
		}
	}
	t.mu.Lock()
	t.closeLocked(c)
	t.mu.Unlock()

	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseStored)
	defer cancel()
	for _, l := range c.leases {
		select {
		case <-l.made:
		case <-t.ended:
		case <-storing.Done():
		}
		select {
		case <-l.made:
			if l.ok {
				out = append(out, l.Lease)
			}
		default: // it expires
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	select {
	case <-t.ended:
		return nil, t.err
	default:
		return nil, errors.Join(storing.Err(), ctx.Err())
	}
}

// demandLocked adds to the number of nodes that the calls want.
func (t *taker) demandLocked(n int) {
	t.wanted += n
	t.worker.slots.setLimit(t.wanted)
}

// closeLocked ends a call: it gets no more leases.
func (t *taker) closeLocked(c *leaseCall) {
	i := slices.Index(t.calls, c)
	if i < 0 {
		return
	}
	t.calls = slices.Delete(t.calls, i, i+1)
	t.demandLocked(-c.want)
	close(c.full)
}

// assign returns the lease of a node with an input of so many bytes for the call that has waited for the longest time; nil if none waits.
func (t *taker) assign(size int) (*leaseCall, *leasing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.calls) > 0 {
		c := t.calls[0]
		if c.ctx.Err() != nil {
			t.closeLocked(c)
			continue
		}
		l := &leasing{made: make(chan struct{})}
		if c.leases = append(c.leases, l); len(c.leases) == 1 {
			close(c.first)
		}
		c.want--
		t.demandLocked(-1)
		if c.bytes += size; c.want == 0 || c.bytes > leaseBytes {
			t.closeLocked(c)
		}
		return c, l
	}
	return nil, nil
}

// handle is the handler of all tasks of a taker. A node for which no call waits returns to its queue.
func (t *taker) handle(ctx context.Context, input []byte) (HandlerResult, error) {
	again := &Verdict{Again: true, Delay: new(time.Duration)}
	c, l := t.assign(len(input))
	if l == nil {
		return HandlerResult{}, again
	}
	r := RunFrom(ctx)
	token, err := r.Token(ctx)
	if err != nil || c.ctx.Err() != nil {
		l.end(false)
		return HandlerResult{}, again
	}
	l.Lease = tasktype.Lease{Info: r.Info, Token: token, Input: input}
	return HandlerResult{}, &leased{c.length, l.end}
}
