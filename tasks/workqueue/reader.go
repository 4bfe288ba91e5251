package workqueue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrOtherReader means that another process reads the outputs of a queue.
var ErrOtherReader = errors.New("another process reads the outputs")

// Reader is the right to acknowledge the outputs of a queue. It holds for a
// time, and for longer with Keep. If that time has passed, another process may
// become the reader: then the calls of this one change nothing and fail with
// ErrLeaseLost.
type Reader struct {
	store *store
	owner string
	fence int64
	stale bool
}

// Claim makes owner the reader for ttl. The current reader keeps its role and its fence, even after its time has
// passed; each process needs a unique owner name. Claim fails with ErrOtherReader while another owner is the reader.
func (o *Outputs) Claim(ctx context.Context, owner string, ttl time.Duration) (Reader, error) {
	got, err := o.ints(ctx, "claim the outputs", "claim", owner, max(ttl.Milliseconds(), 1))
	if err != nil {
		return Reader{}, err
	}
	if got[0] == 0 {
		return Reader{}, ErrOtherReader
	}
	return Reader{o.store, owner, got[0], got[1] == 1}, nil
}

// Fence returns a number that is higher than the fences of all earlier readers.
func (r Reader) Fence() int64 { return r.fence }

// Stale reports whether a reader before this one never released the outputs and
// no reader has called Settled since. That reader may be dead, or only slow:
// then it continues when it runs again.
func (r Reader) Stale() bool { return r.stale }

// Keep extends the claim to ttl from now.
func (r Reader) Keep(ctx context.Context, ttl time.Duration) error {
	return r.keep(ctx, max(ttl.Milliseconds(), 1), 0)
}

// Settled is Keep of a reader that has made sure that readers before it can do
// no harm when they run again.
func (r Reader) Settled(ctx context.Context, ttl time.Duration) error {
	return r.keep(ctx, max(ttl.Milliseconds(), 1), 1)
}

// Release ends the claim. The caller must have ended all work that must not overlap with the work of the next reader.
func (r Reader) Release(ctx context.Context) error { return r.keep(ctx, 0, 0) }

func (r Reader) keep(ctx context.Context, ms int64, settled int) error {
	v, err := r.store.run(ctx, "keep the outputs", "keep", r.owner, r.fence, ms, settled)
	return r.lostError(v, err)
}

// Ack removes all outputs up to and including seq, or none when seq is "", and
// stores notes, by name, for Outputs.Notes; an empty one is removed. Both
// happen, or neither.
func (r Reader) Ack(ctx context.Context, seq string, notes map[string]string) error {
	after := ""
	if seq != "" {
		ms, n, ok := strings.Cut(seq, "-")
		last, err := strconv.ParseUint(n, 10, 64)
		if !ok || err != nil {
			return fmt.Errorf("acknowledge outputs of queue %s: %q is not a place in the stream", r.store.name, seq)
		}
		after = ms + "-" + strconv.FormatUint(last+1, 10)
	}
	args := []any{r.owner, r.fence, after}
	for name, text := range notes {
		args = append(args, name, text)
	}
	v, err := r.store.run(ctx, "acknowledge outputs", "ack", args...)
	return r.lostError(v, err)
}

func (r Reader) lostError(v any, err error) error {
	if err == nil && toInt(v) == 0 {
		err = fmt.Errorf("read the outputs of queue %s: %w", r.store.name, ErrLeaseLost)
	}
	return err
}

const notePrefix = "note:"

// Notes returns the notes of the readers of the outputs; see Reader.Ack.
func (o *Outputs) Notes(ctx context.Context) (map[string]string, error) {
	if o.err != nil {
		return nil, o.err
	}
	all, err := o.rdb.HGetAll(ctx, o.keys.reader).Result()
	if err != nil {
		return nil, fmt.Errorf("read the notes of queue %s: %w", o.name, err)
	}
	notes := map[string]string{}
	for field, text := range all {
		if name, ok := strings.CutPrefix(field, notePrefix); ok {
			notes[name] = text
		}
	}
	return notes, nil
}
