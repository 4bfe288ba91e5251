package workqueue

import "context"

// A script gets at most this many items, and about this many bytes, at a time:
// enough to fill a round trip, few enough not to block Redis.
const (
	enqueueItems = 500
	enqueueBytes = 1 << 20
)

// Check returns what is wrong with an item, without adding it.
func (q *Queue) Check(it Item) error { return it.check(q.cfg.MaxPayload) }

// Enqueue adds the items that are not in the queue yet, and returns their
// number. An ID that exists is left as it is, in whatever state. Items are checked
// before any is added; they are added in chunks, so that an error of Redis can
// leave some added: enqueue the same again.
func (q *Queue) Enqueue(ctx context.Context, items ...Item) (added int, err error) {
	if q.err != nil {
		return 0, q.err
	}
	for i := range items {
		if err := items[i].check(q.cfg.MaxPayload); err != nil {
			return 0, err
		}
	}
	var args []any
	size := 0
	flush := func() error {
		if len(args) == 0 {
			return nil
		}
		v, err := q.run(ctx, "enqueue", "enqueue", args...)
		added += int(toInt(v))
		args, size = args[:0], 0
		return err
	}
	for i := range items {
		it := &items[i]
		spec, err := it.spec()
		if err != nil {
			return added, err
		}
		if len(args) > 0 && size+len(spec) > enqueueBytes {
			if err := flush(); err != nil {
				return added, err
			}
		}
		var due int64
		if !it.NotBefore.IsZero() {
			due = max(0, it.NotBefore.UnixMilli())
		}
		args = append(args, it.ID, spec, it.rank(), due, it.MaxAttempts, it.lane())
		size += len(spec)
		if len(args) >= 6*enqueueItems {
			if err := flush(); err != nil {
				return added, err
			}
		}
	}
	return added, flush()
}
