package record

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/sites/internal/store"
	"muster/sites/sink"
	"muster/tasks/workqueue"
)

// ErrNotWriter means that another process writes the records of a job, or that this process must not or cannot.
var ErrNotWriter = errors.New("another process writes the records")

// lease is the right to write the records of a job, held by one process at a time, which reads the outputs of the job's queue.
// Its fence token grows with each new holder and blocks writes of earlier holders.
type lease struct {
	out    *workqueue.Outputs
	owner  string        // identifies this holder
	ttl    time.Duration // maximum silence before another process takes over
	job    string
	reader workqueue.Reader // last claimed reader
}

// claim acquires the lease. changed reports whether another process may have written since this one last held it. The error is
// ErrNotWriter while another process holds the lease.
func (l *lease) claim(ctx context.Context) (changed bool, err error) {
	r, err := l.out.Claim(ctx, l.owner, l.ttl)
	if errors.Is(err, workqueue.ErrOtherReader) {
		return false, ErrNotWriter
	}
	if err != nil {
		return false, fmt.Errorf("acquire the lease to write job %s: %w", l.job, err)
	}
	changed = r.Fence() != l.reader.Fence() || r.Stale()
	l.reader = r
	return changed, nil
}

// keep renews the lease. The error is ErrNotWriter if another process holds it.
func (l *lease) keep(ctx context.Context) error { return l.check(l.reader.Keep(ctx, l.ttl)) }

// keepUntil renews the lease until ctx is done. It calls lost if another process holds the lease.
func (l *lease) keepUntil(ctx context.Context, lost func(error)) {
	t := time.NewTicker(l.ttl / 3)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := l.keep(ctx); errors.Is(err, ErrNotWriter) {
			lost(err)
		}
	}
}

// fence returns keep as a fence for changes of files.
func (l *lease) fence(ctx context.Context) sink.Fence { return func() error { return l.keep(ctx) } }

// endTakeover ends the takeover from an earlier holder, whose files are no longer in use.
func (l *lease) endTakeover(ctx context.Context) error { return l.check(l.reader.Settled(ctx, l.ttl)) }

// ack removes records up to seq, which are stored everywhere, from Redis and stores notes in the same step. Without a seq it only
// stores notes.
func (l *lease) ack(ctx context.Context, seq string, notes map[string]string) error {
	return l.check(l.reader.Ack(ctx, seq, notes))
}

// report stores the error that prevents writing.
func (l *lease) report(ctx context.Context, trouble error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return l.ack(ctx, "", map[string]string{store.TroubleNote: trouble.Error()})
}

// release releases the lease.
func (l *lease) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := l.reader.Release(ctx); err != nil && !errors.Is(err, workqueue.ErrLeaseLost) {
		return fmt.Errorf("release the lease to write job %s: %w", l.job, err)
	}
	return nil
}

// check converts an error of the reader.
func (l *lease) check(err error) error {
	if errors.Is(err, workqueue.ErrLeaseLost) {
		return ErrNotWriter
	}
	if err != nil {
		return fmt.Errorf("renew the lease to write job %s: %w", l.job, err)
	}
	return nil
}
