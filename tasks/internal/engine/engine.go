// Package engine sends workflows and runs their nodes.
//
// A send compiles a signature to a graph. One script stores the graph and puts the nodes that can run on the ring of their queue.
// A worker blocks on the ring. A workflow of one node runs without a lease: a short script stores its success if the worker still has
// its entry. Other nodes are leased for the free slots; one script stores the results that have come and takes the next nodes. Redis
// accepts a result only while the worker has the lease. The agenda contains the steps that a process has started and may not complete.
//
// The way of a task, by file; files without a directory are of this package, scripts are in store/lua:
//
//	send.go           compiles the signature (graph/compile.go) and chooses the reference
//	grow.go           lists the data to store: the graph, the inputs, and the first nodes
//	store/submit.go   stores the workflow (submit.lua, submit1.lua) and puts nodes on the ring of their queue
//	rings.go          an idle worker takes an entry of a ring (store/ring.go) and assigns a slot (slots.go)
//	dispatch.go       the slot reads a single task, or takes nodes with their leases (item.go; store/turn.go, turn.lua)
//	runner.go         checks handler, limits and expiry, and reads the input (values.go)
//	call.go           calls the handler with its Run (run.go)
//	outcome.go        turns the value or error (verdict.go) into a result
//	finish.go         turns results into changes; advancer.go adds the edges, and takes the steps that have no task
//	store/change.go   stores them (finish1.lua, turn.lua, flow.lua), makes nodes ready, and publishes the end
//	results.go        Wait receives the message (notifier.go) and reads the record
//
// agenda.go handles due entries, schedule.go schedules, watcher.go heartbeats and dead workers, tally.go counts, unhandled.go nodes without a handler,
// leaser.go nodes that other programs run.
// docs/concepts/engine.md has the glossary.
package engine

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/store"
)

// How long an ended workflow can be read, after a success and after a failure.
const (
	DefaultRetention        = 24 * time.Hour
	DefaultFailureRetention = 7 * 24 * time.Hour
)

// Engine is the side of senders and operators. It may be used by many goroutines at once.
type Engine struct {
	*advancer

	Sender    *Sender
	Results   *Results
	Operator  *Operator
	Completer *Completer
	Inspector *Inspector
	Fleet     *Fleet
	Schedules *Schedules
	Leaser    *Leaser

	notifier *notifier

	mu      sync.Mutex                // guards the fields below
	workers map[*Worker]chan struct{} // those in Run; closed when it returns
	closed  bool
}

// New returns an Engine of a namespace on rdb.
func New(rdb redis.UniversalClient, namespace string, log *slog.Logger) *Engine {
	st := store.New(rdb, namespace)
	shared := &env{store: st, log: log, clock: machineClock{}, newID: newID, readings: map[int]clockReading{}}
	gs := &graphs{env: shared}
	p := &progress{shared, gs}
	a := &advancer{env: shared, graphs: gs, progress: p}
	b := &notifier{env: shared, closed: make(chan struct{}), dirty: make(chan struct{}, 1), waits: map[string]map[chan struct{}]bool{}}
	f := &Fleet{shared}
	e := &Engine{
		advancer:  a,
		Sender:    &Sender{advancer: a},
		Results:   &Results{a, b, nil},
		Operator:  &Operator{a},
		Completer: &Completer{a},
		Inspector: &Inspector{a, f, &wholes{}},
		Fleet:     f,
		notifier:  b,
		workers:   map[*Worker]chan struct{}{},
	}
	e.Schedules = &Schedules{shared, st.Schedules, e.Sender}
	e.Leaser = &Leaser{e: e, pools: map[string]*leasePool{}}
	if h, ok := rdb.(Hook); ok {
		h.EngineMade(e)
	}
	return e
}

// Hook is an optional interface of connections. It gives access to the engines and handlers of the clients and
// workers of package tasks, which does not export them. Packages that run an engine directly wrap their connection
// with a Hook.
type Hook interface {
	// EngineMade is called by New with the engine.
	EngineMade(e *Engine)
	// WorkerMade is called by NewWorker with the handlers of the worker, by name. They must not be changed.
	WorkerMade(handlers map[string]*Handler)
}

// Namespace returns the namespace.
func (e *Engine) Namespace() string { return string(e.store.Keys) }

// Store returns the store, for what needs nothing else of the engine.
func (e *Engine) Store() *store.Store { return e.store }

// SetClock replaces the clock. Call it before anything else.
func (e *Engine) SetClock(c Clock) { e.clock = c }

// SetIDs replaces the source of IDs of workflows. Call it before anything else.
func (e *Engine) SetIDs(ids func() string) { e.newID = func(time.Time) string { return ids() } }

// SetDriver sets a function that waits call before they block, and again after each message: it runs tasks in the goroutine
// of the caller until look returns true or an error, and returns the results of its last call. Call it before anything else.
func (e *Engine) SetDriver(d func(ctx context.Context, look func() (bool, error)) (bool, error)) {
	e.Results.drive = d
}

// UseScripts replaces the scripts. Call it before anything else.
func (e *Engine) UseScripts(s store.Scripts) { e.store.UseScripts(s) }

// Close stops the workers that run, as Kill does, and ends the subscriptions of waits. It returns when both are done:
// asynq's goroutines must end before their connection is closed.
func (e *Engine) Close() {
	e.mu.Lock()
	running := maps.Clone(e.workers)
	e.closed = true
	e.mu.Unlock()
	for w := range running {
		w.Kill()
	}
	for _, ended := range running {
		<-ended
	}
	e.notifier.close()
}

// enter registers a worker for Close until leave is called.
func (e *Engine) enter(w *Worker) (leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errors.New("the client is closed")
	}
	ended := make(chan struct{})
	e.workers[w] = ended
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.workers, w)
		close(ended)
	}, nil
}

// env is shared by all parts of an engine.
type env struct {
	store *store.Store
	log   *slog.Logger
	clock Clock
	newID func(at time.Time) string // of workflows

	clockMu  sync.Mutex           // guards readings; not held during calls to Redis
	readings map[int]clockReading // by shard
}

// readingFor is how long a reading of the clock of Redis is used.
const readingFor = 10 * time.Second

// redisTime returns the time by the clock of the Redis that has a shard. Times that are stored or compared with stored ones
// are by that clock: the clocks of machines differ, and can be set.
func (e *env) redisTime(ctx context.Context, shard int) (time.Time, error) {
	e.clockMu.Lock()
	r := e.readings[shard]
	e.clockMu.Unlock()
	begun := e.clock.Now()
	if age := begun.Sub(r.at); age >= 0 && age < readingFor {
		return r.redis(begun), nil
	}
	now, err := e.store.Clock(ctx, shard)
	if err != nil {
		return now, err
	}
	ended := e.clock.Now()
	r = clockReading{now, begun.Add(ended.Sub(begun) / 2)}
	e.clockMu.Lock()
	e.readings[shard] = r
	e.clockMu.Unlock()
	return r.redis(ended), nil
}

// clockReading is a reading of the clock of Redis. The times of this machine that are converted with it have a monotonic
// clock reading, so that setting the machine's clock changes nothing.
type clockReading struct {
	now time.Time // by the clock of Redis
	at  time.Time // when it was read, by the clock of this machine
}

// redis converts a time of this machine.
func (r clockReading) redis(local time.Time) time.Time { return r.now.Add(local.Sub(r.at)) }

// local converts a time of Redis.
func (r clockReading) local(redis time.Time) time.Time { return r.at.Add(redis.Sub(r.now)) }

// Clock is the source of time and timers. The default is the clock of the machine.
type Clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) (stop func() bool)
	After(d time.Duration) <-chan time.Time
}

// machineClock is the clock of the machine.
type machineClock struct{}

func (machineClock) Now() time.Time                         { return time.Now() }
func (machineClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

func (machineClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}
