package tasks

import (
	"context"
	"fmt"
	"iter"
	"time"

	"muster/tasks/tasktype"
)

// Ended returns at most limit events of workflows, up to 1,000, after a position, the earliest first, and the position for the next call, which
// misses none and repeats none. "" is before all that the index keeps, and "$" is the present. A workflow that is retried ends again. gap means that
// events after the position may be missing: the index keeps the last 100,000 failed workflows, 10,000 of each other state, and what an [EventReader]
// has not read.
func (i *Inspector) Ended(ctx context.Context, after string, limit int) (events []tasktype.WorkflowEvent, next string, gap bool, err error) {
	events, next, gap, err = i.eng.Inspector.Ended(ctx, after, limit)
	return events, next, gap, wrap(err, "list ended workflows")
}

// FindStuck adds an event to workflows that have not changed for a time while one of their tasks is ready and no live worker may take it: its queue is
// paused or without workers, or no worker has its handler. It looks at no more than 1,000 tasks of a queue. A workflow has one such event.
func (i *Inspector) FindStuck(ctx context.Context, after time.Duration) error {
	return wrap(i.eng.Inspector.FindStuck(ctx, after), "find stuck workflows")
}

// eventsEvery is how often Events looks for events.
const eventsEvery = 200 * time.Millisecond

// Events yields events of workflows after a position, in the order of their time, and waits for more until ctx is done. The positions are those of
// [Inspector.Ended]: with that of the last event a program continues where it was. Readers cost nothing for each workflow. An error ends the
// iteration; it is [ErrNotFound] if events after the position are no longer in the index. Stuck workflows have events if a program calls
// [Inspector.FindStuck] at times.
func (c *Client) Events(ctx context.Context, after string) iter.Seq2[tasktype.WorkflowEvent, error] {
	return func(yield func(tasktype.WorkflowEvent, error) bool) {
		for {
			events, next, gap, err := c.Inspect().Ended(ctx, after, 1000)
			if err == nil && gap {
				oldest := "$"
				if len(events) > 0 {
					oldest = events[0].Position
				}
				err = fmt.Errorf("%w: events after %s are not kept any more; the oldest is %s, and an empty position begins with it", ErrNotFound, after, oldest)
			}
			if err != nil {
				yield(tasktype.WorkflowEvent{}, err)
				return
			}
			for i := range events {
				if !yield(events[i], nil) {
					return
				}
			}
			after = next
			if len(events) > 0 {
				continue
			}
			select {
			case <-ctx.Done():
				yield(tasktype.WorkflowEvent{}, context.Cause(ctx))
				return
			case <-time.After(eventsEvery):
			}
		}
	}
}

// EventReader reads events of workflows for a part of a program whose position is in Redis. Unlike for [Client.Events], the index keeps what it has not
// read: 1,000,000 events of each type, until a day after its last call. Its processes should take turns: each would get all events.
type EventReader struct {
	client     *Client
	name, from string
}

// EventReader returns the reader with a name. A new one begins after a position, as [Client.Events]. Delete one that is not used any more.
func (c *Client) EventReader(name, from string) *EventReader { return &EventReader{c, name, from} }

// Next returns at most limit events, up to 1,000, after the position, the earliest first; none if there are none yet.
// missed is how many, about, were dropped before they were read; Next continues with the oldest then.
func (r *EventReader) Next(ctx context.Context, limit int) (events []tasktype.WorkflowEvent, missed int64, err error) {
	position, missed, err := r.client.eng.Store().Index.Reader(ctx, r.name, r.from)
	if err != nil {
		return nil, 0, wrap(err, "read events")
	}
	events, _, gap, err := r.client.Inspect().Ended(ctx, position, limit)
	if gap {
		missed = max(missed, 1)
	} else {
		missed = 0
	}
	return events, missed, err
}

// Done stores the position of an event: this one and all before it were processed.
func (r *EventReader) Done(ctx context.Context, position string) error {
	return wrap(r.client.eng.Store().Index.SetReader(ctx, r.name, position, true), "store position")
}

// Delete deletes the reader, for which the index keeps nothing any more.
func (r *EventReader) Delete(ctx context.Context) error { return r.Done(ctx, "") }
