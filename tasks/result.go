package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"muster/tasks/internal/engine"
	"muster/tasks/tasktype"
)

// AsyncResult is the handle of a workflow that was sent.
type AsyncResult[O any] struct {
	client *Client
	id     string
}

// Send stores s in Redis as a workflow, releases what can run at once and returns its handle. When
// Send returns without error the workflow will run, whatever becomes of the sender.
func (s Signature[O]) Send(ctx context.Context, c *Client, opts ...SendOption) (*AsyncResult[O], error) {
	id, err := c.eng.Send(ctx, s.sig, collect(opts, SendOption.forSend))
	if err != nil && !errors.Is(err, ErrDuplicate) {
		return nil, fmt.Errorf("send workflow: %w", err)
	}
	if err != nil {
		return &AsyncResult[O]{c, id}, fmt.Errorf("send workflow: %w", err)
	}
	return &AsyncResult[O]{c, id}, nil
}

// Attach returns the handle of the workflow with an id. It does no I/O: an unknown id shows as
// [ErrUnknown] when the handle is used.
func Attach[O any](c *Client, id string) *AsyncResult[O] { return &AsyncResult[O]{c, id} }

// ID returns the id of the workflow, which is the id of the job it does.
func (r *AsyncResult[O]) ID() string { return r.id }

// Wait blocks until the workflow has its value or cannot have one any more, and returns the value or
// a *[Failure]: the first failure at once, while siblings may still run. Ending ctx ends the wait,
// not the workflow. Inside a handler it returns [ErrWaitInTask].
func (r *AsyncResult[O]) Wait(ctx context.Context) (O, error) {
	var out O
	if engine.RunFrom(ctx) != nil {
		return out, ErrWaitInTask
	}
	raw, fail, err := r.client.eng.Wait(ctx, r.id)
	if err != nil {
		return out, fmt.Errorf("wait for workflow %s: %w", r.id, err)
	}
	if fail != nil {
		return out, (*Failure)(fail)
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, fmt.Errorf("result of workflow %s is not a %T: %w", r.id, out, err)
	}
	return out, nil
}

// Status returns the state of the workflow.
func (r *AsyncResult[O]) Status(ctx context.Context) (tasktype.Status, error) {
	p, err := r.Progress(ctx)
	return p.Status, err
}

// Progress returns how far the workflow is.
func (r *AsyncResult[O]) Progress(ctx context.Context) (tasktype.Progress, error) {
	p, err := r.client.eng.Progress(ctx, r.id)
	if err != nil {
		return p, fmt.Errorf("progress of workflow %s: %w", r.id, err)
	}
	return p, nil
}

// watchEvery is how often Watch looks; the end is told at once.
const watchEvery = 100 * time.Millisecond

// Watch yields the progress of the workflow whenever it has changed. The last one has Ended set; an
// error ends the sequence.
func (r *AsyncResult[O]) Watch(ctx context.Context) iter.Seq2[tasktype.Progress, error] {
	return func(yield func(tasktype.Progress, error) bool) {
		var last tasktype.Progress
		for first := true; ; first = false {
			p, err := r.Progress(ctx)
			if err != nil {
				yield(p, err)
				return
			}
			if first || p != last {
				if !yield(p, nil) {
					return
				}
			}
			last = p
			if p.Ended {
				return
			}
			if err := r.client.eng.Pause(ctx, r.id, watchEvery); err != nil {
				yield(p, fmt.Errorf("watch workflow %s: %w", r.id, err))
				return
			}
		}
	}
}

// Revoke stops the whole workflow: what waits never runs, and the contexts of what runs end. It
// needs no worker, and is no error when the workflow has ended.
func (r *AsyncResult[O]) Revoke(ctx context.Context) error { return r.client.Revoke(ctx, r.id) }

// Forget deletes the results and states of the workflow before its retention is over. It refuses while
// the workflow has not ended.
func (r *AsyncResult[O]) Forget(ctx context.Context) error {
	if err := r.client.eng.Forget(ctx, r.id); err != nil {
		return fmt.Errorf("forget workflow %s: %w", r.id, err)
	}
	return nil
}

// Members returns what the members of the workflow's group, or of its map, have yielded so far.
// done has one entry for each member; a value counts where it is true.
func Members[O any](ctx context.Context, r *AsyncResult[[]O]) (values []O, done []bool, err error) {
	list, _, err := r.client.eng.Members(ctx, r.id, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("members of workflow %s: %w", r.id, err)
	}
	values, done = make([]O, len(list)), make([]bool, len(list))
	for i, m := range list {
		if m.Raw == nil {
			continue
		}
		if err := json.Unmarshal(m.Raw, &values[i]); err != nil {
			return nil, nil, fmt.Errorf("member %d of workflow %s: %w", i, r.id, err)
		}
		done[i] = true
	}
	return values, done, nil
}

// Member is what a member of a group came to: its place in the group, and a value or a failure.
type Member[O any] struct {
	Index int
	Outcome[O]
}

// AsCompleted yields every member of the workflow's group, or of its map, once, as soon as it is known to have ended:
// the quick ones first. It ends with the last member, also when the first failure has already failed the group. An
// error, such as that of a ctx that is done, ends the sequence. Inside a handler it is [ErrWaitInTask].
func AsCompleted[O any](ctx context.Context, r *AsyncResult[[]O]) iter.Seq2[Member[O], error] {
	return func(yield func(Member[O], error) bool) {
		fail := func(err error) { yield(Member[O]{}, fmt.Errorf("members of workflow %s: %w", r.id, err)) }
		if engine.RunFrom(ctx) != nil {
			fail(ErrWaitInTask)
			return
		}
		var seen []bool
		for left := -1; left != 0; {
			list, ended, err := r.client.eng.Members(ctx, r.id, seen)
			if err != nil {
				fail(err)
				return
			}
			seen = append(seen, make([]bool, len(list)-len(seen))...) // a map's list may come later
			if left = -1; ended {
				left = 0
			}
			for i, m := range list {
				if seen[i] {
					continue
				}
				member := Member[O]{Index: i}
				switch {
				case m.Raw != nil:
					err = json.Unmarshal(m.Raw, &member.Value)
				case m.Failure != nil:
					member.Err = (*Failure)(m.Failure)
				default:
					left = -1
					continue
				}
				if err != nil {
					fail(fmt.Errorf("member %d: %w", i, err))
					return
				}
				if seen[i] = true; !yield(member, nil) {
					return
				}
			}
			if left != 0 {
				if err := r.client.eng.Pause(ctx, r.id, watchEvery); err != nil {
					fail(err)
					return
				}
			}
		}
	}
}
