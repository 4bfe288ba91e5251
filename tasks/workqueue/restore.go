package workqueue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

// Restore adds items in the states that they once had, as Get, Scan and then a
// backup said, and returns how many are new. An ID that exists is left as it is.
// An item that was in progress is queued: its lease is not restored, and no
// attempt is counted. A queue is restored before it is sealed: else the error is
// ErrSealed.
func (q *Queue) Restore(ctx context.Context, items ...Info) (added int, err error) {
	if q.err != nil {
		return 0, q.err
	}
	head := q.cfg.kept()
	args, size := slices.Clone(head), 0
	flush := func() error {
		if len(args) == len(head) {
			return nil
		}
		v, err := q.run(ctx, "restore items", "restore", args...)
		args, size = args[:len(head)], 0
		if err != nil {
			return err
		}
		if toInt(v) < 0 {
			return fmt.Errorf("restore items of queue %s: %w", q.name, ErrSealed)
		}
		added += int(toInt(v))
		return nil
	}
	for i := range items {
		more, err := items[i].stored(q.cfg.MaxPayload)
		if err != nil {
			return added, fmt.Errorf("restore items of queue %s: %w", q.name, err)
		}
		bytes := len(items[i].Payload) + len(items[i].Result)
		if size+bytes > enqueueBytes || len(args) > 13*enqueueItems {
			if err := flush(); err != nil {
				return added, err
			}
		}
		args, size = append(args, more...), size+bytes
	}
	return added, flush()
}

// stored is an item as restore.lua takes it.
func (i *Info) stored(maxPayload int) ([]any, error) {
	if err := i.check(maxPayload); err != nil {
		return nil, err
	}
	if len(i.Result) > maxPayload {
		return nil, fmt.Errorf("item %q: result has %d bytes; %d are allowed", i.ID, len(i.Result), maxPayload)
	}
	if i.Attempts < 0 || i.Retried < 0 {
		return nil, fmt.Errorf("item %q: %d attempts and %d retries; neither can be below zero", i.ID, i.Attempts, i.Retried)
	}
	spec, err := i.spec(0)
	if err != nil {
		return nil, err
	}
	state, due := "q", "0"
	switch {
	case i.State.Terminal():
		state, _ = i.State.letter()
	case i.State == StateQueued && !i.Available.IsZero():
		state, due = "w", strconv.FormatInt(i.Available.UnixMilli(), 10)
	case i.State != StateQueued && i.State != StateInProgress:
		return nil, fmt.Errorf("item %q: %q is no state; there are %v", i.ID, string(i.State),
			[]State{StateQueued, StateInProgress, StateDone, StateSkipped, StateError})
	}
	since := i.Updated
	if state == "q" && !i.Ready.IsZero() {
		since = i.Ready
	}
	result := 0
	if i.Result != nil {
		result = 1
	}
	return []any{
		i.ID, spec, i.rank(), state, i.Attempts, i.Retried, due, max(0, since.UnixMilli()), i.MaxAttempts, i.lane(), note(i.Note), result, i.Result,
	}, nil
}
