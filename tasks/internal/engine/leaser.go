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
	leaseBytes   = 1 << 20                // of the inputs of a call, beyond the first
	leaseLinger  = 2 * time.Millisecond   // how long a call that has a task waits for another one
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

	mu      sync.Mutex // guards the fields below, those of takers, and those of calls that wait
	takers  map[string]*taker
	waiting int // calls
}

// taker is the worker for a queue and a list of tasks.
type taker struct {
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
func (l *Leaser) Lease(ctx context.Context, req *tasktype.LeaseRequest) (out []tasktype.Lease, err error) {
	ends := time.Now().Add(max(leaseWait, req.Wait))
	for len(out) == 0 && err == nil && time.Now().Before(ends) {
		c := &leaseCall{ctx: ctx, req: req, want: req.Max, more: make(chan struct{}, 1), full: make(chan struct{})}
		var t *taker
		if t, err = l.enter(c); err == nil {
			out, err = t.lease(c, ends)
		}
	}
	return out, err
}

// enter adds a call to the calls of its taker.
func (l *Leaser) enter(c *leaseCall) (*taker, error) {
	names := slices.Compact(slices.Sorted(slices.Values(c.req.Tasks)))
	key := strings.Join(append([]string{c.req.Queue}, names...), "\n")
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.takers[key]
	if l.waiting >= leaseCalls || t == nil && len(l.takers) >= mostTakers {
		return nil, ErrLeases
	}
	if t == nil {
		t = l.start(key, c.req.Queue, names)
		l.takers[key] = t
	}
	l.waiting++
	t.idle.Stop()
	t.calls = append(t.calls, c)
	t.demandLocked(c.want)
	return t, nil
}

// start starts a taker.
func (l *Leaser) start(key, queue string, names []string) *taker {
	t := &taker{Leaser: l, ended: make(chan struct{})}
	handlers := maps.Clone(l.Builtin)
	for _, name := range names {
		if handlers[name] == nil {
			handlers[name] = &Handler{Name: name, Run: t.handle}
		}
	}
	t.worker = NewWorker(l.e, handlers, WorkerConfig{
		Queues: map[string]int{queue: 1}, OnDemand: true, MaxConcurrency: leaseCalls * tasktype.MaxLeases, MaxResult: maxCompletion,
		HandlerWait: 24 * time.Hour, Grace: time.Second, Name: "lease-" + WorkerName(), PID: os.Getpid(), Logger: l.e.log,
	})
	ctx, stop := context.WithCancel(context.Background())
	t.idle = time.AfterFunc(takerIdleFor, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.takers[key] == t && len(t.calls) == 0 {
			delete(l.takers, key)
			stop()
		}
	})
	go func() {
		t.err = t.worker.Run(ctx)
		stop()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.takers[key] == t {
			delete(l.takers, key)
		}
		close(t.ended)
	}()
	return t
}

// lease waits for the leases of a call.
func (t *taker) lease(c *leaseCall, ends time.Time) (out []tasktype.Lease, err error) {
	select {
	case <-c.ctx.Done():
	case <-t.ended:
	case <-time.After(time.Until(ends)):
	case <-c.more:
		for more := true; more; {
			select {
			case <-c.more:
			case <-c.full:
				more = false
			case <-time.After(leaseLinger):
				more = false
			}
		}
	}
	t.mu.Lock()
	t.closeLocked(c)
	t.mu.Unlock()

	storing, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), leaseStored)
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
		return nil, errors.Join(storing.Err(), c.ctx.Err())
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
	if t.waiting--; len(t.calls) == 0 {
		t.idle.Reset(takerIdleFor)
	}
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
		c.leases = append(c.leases, l)
		signal(c.more)
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
	return HandlerResult{}, &leased{c.req.For, l.end}
}
