package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// lookEvery is how often a wait reads the workflow, since the message that it has ended can be lost.
const lookEvery = time.Second

// Results reads what workflows yield, and waits for it.
type Results struct {
	*env
	graphs   *graphs
	progress *progress
	notifier *notifier
}

// Wait blocks until the root of a workflow is terminal. By then its progress keys tell so too.
func (r *Results) Wait(ctx context.Context, id string) (json.RawMessage, *tasktype.Failure, error) {
	fl, fail, err := r.find(ctx, id)
	if err != nil || fail != nil {
		return nil, fail, err
	}
	changed, stop, err := r.notifier.listen(ctx, id)
	if err != nil {
		return nil, nil, endedBy(ctx, err)
	}
	defer stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		v := r.graphs.values(fl)
		rec, err := v.record(ctx, fl.Root)
		if err != nil && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if err == nil && rec.Terminal() {
			defer r.graphs.dropLarge(fl.ID)
			if fl.g.Progress != "" { // the process that ended it may not have done this yet
				if err := r.progress.write(ctx, fl); err != nil {
					r.log.WarnContext(ctx, "progress keys were not written", "workflow", fl.ID, "error", err)
				}
			}
			m, err := v.member(ctx, graph.ID{Index: fl.g.Root, Inst: -1})
			return m.Raw, m.Failure, err
		}
		if err == nil {
			_, fail, err := r.hasEnded(ctx, fl.Flow)
			if errors.Is(err, ErrUnknown) || err == nil && fail != nil {
				return nil, fail, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-changed:
		case <-tick.C:
		}
	}
}

// find returns a workflow or, if it cannot be read, why it was given up.
func (r *Results) find(ctx context.Context, id string) (*flow, *tasktype.Failure, error) {
	fl, err := r.graphs.load(ctx, id)
	if err == nil {
		return fl, nil, nil
	}
	if f := r.abortedID(ctx, id); f != nil {
		return nil, f, nil
	}
	return nil, nil, endedBy(ctx, err)
}

// hasEnded reports whether all of a workflow is terminal, and why it was given up if it was. It returns ErrUnknown
// when the retention has run out, which can happen during a wait.
func (r *Results) hasEnded(ctx context.Context, f store.Flow) (bool, *tasktype.Failure, error) {
	names := []string{"n", "z", "vn", "vz", store.AbortField}
	raws, err := r.store.Flows.Fields(ctx, f, names)
	if err != nil {
		return false, nil, err
	}
	if raws[0] == nil {
		return false, nil, ErrUnknown
	}
	fail, err := cause(f, raws[4])
	return over(func(name string) string { return string(raws[slices.Index(names, name)]) }), fail, err
}

// Progress returns how far a workflow is.
func (r *Results) Progress(ctx context.Context, id string) (tasktype.Progress, error) {
	return r.progress.of(ctx, id)
}

// endedBy is err, or the end of ctx where that is behind it. Connections have the deadline of ctx as their
// own, and tell its passing in their words, a moment before ctx knows.
func endedBy(ctx context.Context, err error) error {
	deadline, ok := ctx.Deadline()
	switch {
	case err == nil || errors.Is(err, ErrUnknown):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case ok && !time.Now().Before(deadline):
		return context.DeadlineExceeded
	}
	return err
}

// abortedID is aborted for a workflow that cannot be read.
func (r *Results) abortedID(ctx context.Context, id string) *tasktype.Failure {
	f, err := r.store.Flows.Address(ctx, id)
	if err != nil {
		return nil
	}
	fail, err := r.graphs.aborted(ctx, f)
	if err != nil {
		return nil
	}
	return fail
}

// Pause returns after d, or as soon as a message says that the workflow has its value or has ended.
func (r *Results) Pause(ctx context.Context, id string, d time.Duration) error {
	changed, stop, err := r.notifier.listen(ctx, id)
	if err != nil {
		return endedBy(ctx, err)
	}
	defer stop()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
	case <-timer.C:
	}
	return nil
}

// nodeEvery is how often NodeValue looks: no message says that a node has ended.
const nodeEvery = 100 * time.Millisecond

// NodeValue blocks until a node of a workflow has a value or cannot have one any more.
func (r *Results) NodeValue(ctx context.Context, id, node string) (json.RawMessage, *tasktype.Failure, error) {
	nid, err := graph.ParseID(node)
	if err != nil {
		return nil, nil, err
	}
	fl, fail, err := r.find(ctx, id)
	if err != nil || fail != nil {
		return nil, fail, err
	}
	for v := r.graphs.values(fl); ; v.refresh() {
		over, fail, err := r.hasEnded(ctx, fl.Flow) // before the look, so that what ended before that is seen
		if err != nil {
			return nil, nil, endedBy(ctx, err)
		}
		m, err := v.node(ctx, nid)
		if err != nil {
			return nil, nil, endedBy(ctx, err)
		}
		switch {
		case m.Raw != nil || m.Failure != nil:
			return m.Raw, m.Failure, nil
		case fail != nil:
			return nil, fail, nil
		case over:
			return nil, nil, fmt.Errorf("node %s did not run, and the workflow has ended", node)
		}
		if err := r.Pause(ctx, id, nodeEvery); err != nil {
			return nil, nil, err
		}
	}
}
