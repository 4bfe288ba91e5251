package engine

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// Run is one attempt at a node, as its handler sees it.
type Run struct {
	Info tasktype.Info

	w      *runner
	it     *item
	fl     *flow
	g      *graph.Graph
	id     graph.ID
	spec   *graph.Spec
	ctx    context.Context // of the handler
	cancel context.CancelCauseFunc

	handler *Handler // to call; nil for none
	given   []byte   // its input
	leave   func()   // to be called at the end; nil unless the node is suspected

	expires time.Time        // by this machine's clock; zero for never
	began   time.Time        // when the handler was called; zero if it was not
	took    time.Duration    // how long it ran
	outcome tasktype.Outcome // its outcome; empty if unknown
	code    string           // of the failure

	owner    string        // of its places: the call of its lease
	keyed    bool          // limits is set
	limits   []store.Limit // per key
	acquired int           // number of limits that allow the attempt
	places   []store.Place // of it
	started  bool          // nothing more limits it: it keeps its places of rates

	logged atomic.Bool // it has written log lines

	mu       sync.Mutex       // guards the fields below
	lose     func(callResult) // ends the last call without waiting for the handler; nil before the first
	cause    error            // why the slot was freed
	lastSent time.Time
	sent     bool    // progress was written
	over     bool    // the handler has returned or was given up: nothing is written any more
	steps    *steps  // nil until they are used
	output   *output // nil until there is some
	token    string  // that was made, if there is one; hash is its hash
	hash     string
}

type runKey struct{}

// RunFrom returns the run that ctx belongs to, or nil.
func RunFrom(ctx context.Context) *Run {
	r, _ := ctx.Value(runKey{}).(*Run)
	return r
}

// progressEvery is how often a task's own progress is written.
const progressEvery = 250 * time.Millisecond

// SetProgress records how far the run is.
func (r *Run) SetProgress(done, total int) {
	r.mu.Lock()
	now := time.Now()
	send := !r.over && (now.Sub(r.lastSent) >= progressEvery || done >= total)
	if send {
		r.lastSent, r.sent = now, true
	}
	r.mu.Unlock()
	if !send {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := r.w.store.Flows.SetProgress(ctx, r.fl.Flow, r.Info.Node, done, total); err != nil {
		r.w.log.DebugContext(ctx, "progress was not written", "workflow", r.Info.Workflow, "node", r.Info.Node, "error", err)
	}
}

// PublishKey writes a progress key of the workflow.
func (r *Run) PublishKey(ctx context.Context, name, value string) {
	if r.fl.g.Progress == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := r.w.progress.publish(ctx, r.fl, name, value); err != nil {
		r.w.log.WarnContext(ctx, "progress key was not written", "workflow", r.Info.Workflow, "node", r.Info.Node, "key", name, "error", err)
	}
}

// Token returns the token of the attempt, and makes it if there is none yet.
func (r *Run) Token(ctx context.Context) (string, error) {
	r.mu.Lock()
	if r.token == "" && !r.over {
		r.token, r.hash = newToken(r.fl.Ref, r.Info.Node)
	}
	full, hash := r.token, r.hash
	r.mu.Unlock()
	if full == "" {
		return "", errors.New("its handler has returned")
	}
	result, err := r.w.store.Tokens.OfRun(ctx, r.fl.Flow, r.Info.Node, hash, r.Info.Attempt, r.w.leases.lend(r.it))
	switch {
	case err != nil:
		return "", r.w.store.Explain(ctx, err)
	case result == store.TokenGone:
		return "", errors.New("another worker has it by now")
	case tokenErrors[result] != nil:
		return "", tokenErrors[result]
	}
	return full, nil
}

// close ends the writing of progress and tokens, and reports whether there was any.
func (r *Run) close() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	return r.sent || r.token != ""
}

// free gives the slot back whether or not the handler returns.
func (r *Run) free(cause error) {
	r.cancel(cause)
	r.mu.Lock()
	r.cause = cmp.Or(r.cause, cause)
	lose := r.lose
	r.mu.Unlock()
	lose(callResult{ended: cause})
}
