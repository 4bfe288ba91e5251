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

// DefaultRetention is how long an ended workflow can be read.
const DefaultRetention = 24 * time.Hour

// Engine is the side of senders and operators. It may be used by many goroutines at once.
type Engine struct {
	*env

	Sender    *Sender
	Results   *Results
	Revoker   *Revoker
	Answers   *Answers
	Inspector *Inspector
	Fleet     *Fleet
	Schedule  store.Schedule

	graphs   *graphs
	progress *progress
	advancer *advancer
	bells    *bells

	mu      sync.Mutex                // guards the fields below
	workers map[*Worker]chan struct{} // those in Run; closed when it returns
	closed  bool
}

// New returns an Engine on rdb. codeOf may be nil.
func New(rdb redis.UniversalClient, log *slog.Logger, codeOf CodeOf) *Engine {
	st := store.New(rdb)
	shared := &env{store: st, log: log, clock: machineClock{}, waker: newWaker(st).send, codeOf: codeOf}
	gs := newGraphs(shared)
	p := &progress{shared, gs}
	a := &advancer{shared, gs, p}
	b := newBells(shared)
	f := &Fleet{shared}
	e := &Engine{
		env:       shared,
		Sender:    &Sender{env: shared, graphs: gs, progress: p, advancer: a},
		Results:   &Results{shared, gs, p, b},
		Revoker:   &Revoker{shared, gs, p, a},
		Answers:   &Answers{shared, gs, a},
		Inspector: &Inspector{shared, gs, p, f},
		Fleet:     f,
		Schedule:  st.Schedule,
		graphs:    gs, progress: p, advancer: a, bells: b,
		workers: map[*Worker]chan struct{}{},
	}
	if h, ok := rdb.(Hook); ok {
		h.EngineMade(e)
	}
	return e
}

// Hook is what a connection may implement, too, to get at the engines and handlers behind the clients and workers of
// package tasks that are made with it. Packages that run an engine by hand wrap their connection with it, so that
// package tasks shows neither to its users.
type Hook interface {
	// EngineMade is called by New with what it returns.
	EngineMade(e *Engine)
	// WorkerMade is called by NewWorker with the handlers of the worker, by name. They must not be changed.
	WorkerMade(handlers map[string]*Handler)
}

// SetClock replaces the clock. Call it before anything else.
func (e *Engine) SetClock(c Clock) { e.clock = c }

// SetWaker replaces what sends wake-tasks, which is asynq. Call it before anything else.
func (e *Engine) SetWaker(w func(ctx context.Context, k Wake) error) { e.waker = w }

// RewriteScripts changes the source of every script. Call it before anything else.
func (e *Engine) RewriteScripts(f func(name, source string) string) { e.store.Rewrite(f) }

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
	e.bells.close()
}

// enter adds a worker to those that Close stops, until leave is called.
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
