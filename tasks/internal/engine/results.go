package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// How often waits read a workflow.
const (
	lookEvery = time.Second            // without a message: messages can be lost, and the start of a node has none
	lookPause = 100 * time.Millisecond // between reads that messages of progress cause, however many there are
)

// Results waits for the results of workflows and reads them.
type Results struct {
	*advancer
	notifier *notifier
	drive    func(ctx context.Context, look func() (bool, error)) (bool, error) // see SetDriver; nil for none
}

// Wait blocks until the root of a workflow is terminal. By then its progress keys are up to date.
func (r *Results) Wait(ctx context.Context, refOrID string) (raw json.RawMessage, fail *tasktype.Failure, err error) {
	fl, fail, err := r.find(ctx, refOrID)
	if err != nil || fail != nil {
		return nil, fail, err
	}
	err = r.follow(ctx, fl.Ref, false, func() (bool, error) {
		v := r.graphs.values(fl)
		rec, err := v.record(ctx, fl.Root)
		switch {
		case err != nil:
			return false, ctx.Err() // other errors are temporary: ctx bounds the wait
		case !rec.Terminal():
			_, given, err := r.hasEnded(ctx, fl.Flow)
			if errors.Is(err, ErrUnknown) || err == nil && given != nil {
				fail = given
				return true, err
			}
			return false, nil
		}
		defer r.graphs.dropLarge(fl.Ref)
		if fl.g.Progress != "" { // the process that ended it may not have done this yet
			if err := r.progress.write(ctx, fl); err != nil {
				r.log.WarnContext(ctx, "progress keys were not written", "workflow", fl.ID(), "error", err)
			}
		}
		m, err := v.member(ctx, graph.ID{Index: fl.g.Root, Inst: -1})
		raw, fail = m.Raw, m.Failure
		return true, err
	})
	return raw, fail, err
}

// Follow calls look until it returns true or an error: at first, after each message that the workflow has its value or has
// ended, at most lookPause after each message that its progress has changed, and at the latest every lookEvery. look gets
// the reference of the workflow.
func (r *Results) Follow(ctx context.Context, refOrID string, look func(ref string) (over bool, err error)) error {
	f, err := r.store.Flows.Address(ctx, refOrID)
	if err != nil {
		return endedBy(ctx, err)
	}
	return r.follow(ctx, f.Ref, true, func() (bool, error) { return look(f.Ref) })
}

// follow is Follow; without progress it listens only for the messages that the workflow has its value or has ended.
func (r *Results) follow(ctx context.Context, ref string, progress bool, look func() (over bool, err error)) error {
	if r.drive != nil {
		own := look
		look = func() (bool, error) {
			if over, err := own(); over || err != nil {
				return over, err
			}
			return r.drive(ctx, own)
		}
	}
	if over, err := look(); over || err != nil {
		return endedBy(ctx, err)
	}
	done, stop, err := r.notifier.listen(r.store.DoneChannel(ref))
	if err != nil {
		return endedBy(ctx, err)
	}
	defer stop()
	var changed <-chan struct{}
	if progress {
		if changed, stop, err = r.notifier.listen(r.store.ChangedChannel(ref)); err != nil {
			return endedBy(ctx, err)
		}
		defer stop()
	}
	tick, pause := time.NewTicker(lookEvery), time.NewTimer(lookPause)
	defer tick.Stop()
	defer pause.Stop()
	for next := changed; ; tick.Reset(lookEvery) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pause.C:
			next = changed
			continue
		case <-next:
			next = nil
			pause.Reset(lookPause)
		case <-done:
		case <-tick.C:
		}
		if over, err := look(); over || err != nil {
			return endedBy(ctx, err)
		}
	}
}

// find returns a workflow or, if it cannot be read, why it was given up.
func (r *Results) find(ctx context.Context, refOrID string) (*flow, *tasktype.Failure, error) {
	fl, err := r.graphs.load(ctx, refOrID)
	if err == nil {
		return fl, nil, nil
	}
	if f, lost := r.store.Flows.Address(ctx, refOrID); lost == nil {
		if fail, lost := r.graphs.aborted(ctx, f); lost == nil && fail != nil {
			return nil, fail, nil
		}
	}
	return nil, nil, endedBy(ctx, err)
}

// hasEnded reports whether all of a workflow is terminal, and why it was given up if it was. It returns ErrUnknown
// when the retention has run out, which can happen during a wait.
func (r *Results) hasEnded(ctx context.Context, f store.Flow) (bool, *tasktype.Failure, error) {
	fields, err := r.store.Flows.Fields(ctx, f, store.FieldTasks, store.FieldTasksEnded, store.FieldSteps, store.FieldStepsEnded, store.FieldAborted)
	if err == nil && fields[store.FieldTasks] == "" {
		err = ErrUnknown
	}
	if err != nil {
		return false, nil, err
	}
	fail, err := cause(f, fields)
	return over(fields), fail, err
}

// Progress returns how far a workflow is.
func (r *Results) Progress(ctx context.Context, refOrID string) (tasktype.Progress, error) {
	return r.progress.of(ctx, refOrID)
}

// endedBy returns the error of ctx if it is the cause of err, else err. A connection has the deadline of ctx, and may
// report its expiry, with its own error, slightly before ctx does.
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

// NodeValue blocks until a node of a workflow has a value or cannot have one any more.
func (r *Results) NodeValue(ctx context.Context, refOrID, node string) (raw json.RawMessage, fail *tasktype.Failure, err error) {
	nid, err := graph.ParseID(node)
	if err != nil {
		return nil, nil, err
	}
	fl, fail, err := r.find(ctx, refOrID)
	if err != nil || fail != nil {
		return nil, fail, err
	}
	err = r.follow(ctx, fl.Ref, true, func() (bool, error) {
		over, given, err := r.hasEnded(ctx, fl.Flow) // before reading, so that everything that ended before is visible
		if err != nil {
			return false, err
		}
		m, err := r.graphs.values(fl).node(ctx, nid)
		if err != nil {
			return false, err
		}
		switch {
		case m.Raw != nil || m.Failure != nil:
			raw, fail = m.Raw, m.Failure
		case given != nil:
			fail = given
		case over:
			return false, fmt.Errorf("node %s did not run, and the workflow has ended", node)
		default:
			return false, nil
		}
		return true, nil
	})
	return raw, fail, err
}
