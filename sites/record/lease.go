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

// ErrNotWriter says that another process writes the records of a job, or that
// this one must not or cannot.
var ErrNotWriter = errors.New("another process writes the records")

// lease makes one process at a time the writer of a job: the one that may read
// the outputs of its queue. Its fence, which grows with each new holder, keeps
// an earlier holder from changing anything.
type lease struct {
	out    *workqueue.Outputs
	owner  string        // names this holder among all
	ttl    time.Duration // how long it may be silent before another takes over
	job    string
	reader workqueue.Reader // the last one that was claimed
}

// claim makes this process the writer and reports whether others may have
// written since it last was. It fails with ErrNotWriter while another is.
func (l *lease) claim(ctx context.Context) (changed bool, err error) {
	r, err := l.out.Claim(ctx, l.owner, l.ttl)
	if errors.Is(err, workqueue.ErrOtherReader) {
		return false, ErrNotWriter
	}
	if err != nil {
		return false, fmt.Errorf("become the writer of job %s: %w", l.job, err)
	}
	changed = r.Fence() != l.reader.Fence() || r.Stale()
	l.reader = r
	return changed, nil
}

// keep renews the lease. It fails with ErrNotWriter when another is the writer by now.
func (l *lease) keep(ctx context.Context) error { return l.check(l.reader.Keep(ctx, l.ttl)) }

// keepUntil renews the lease until ctx ends, and calls lost when another is the
// writer by now.
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

// fence is keep, for what changes files.
func (l *lease) fence(ctx context.Context) sink.Fence { return func() error { return l.keep(ctx) } }

// settled ends the takeover from an earlier holder: none of its files is in use any more.
func (l *lease) settled(ctx context.Context) error { return l.check(l.reader.Settled(ctx, l.ttl)) }

// ack removes the records up to seq, which are safe, from Redis and stores notes with it. Without a seq it only stores notes.
func (l *lease) ack(ctx context.Context, seq string, notes map[string]string) error {
	return l.check(l.reader.Ack(ctx, seq, notes))
}

// report stores why the writer cannot write.
func (l *lease) report(ctx context.Context, trouble error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return l.ack(ctx, "", map[string]string{store.TroubleNote: trouble.Error()})
}

// release lets another process write at once.
func (l *lease) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := l.reader.Release(ctx); err != nil && !errors.Is(err, workqueue.ErrLeaseLost) {
		return fmt.Errorf("give up writing job %s: %w", l.job, err)
	}
	return nil
}

// check translates an error of the reader.
func (l *lease) check(err error) error {
	if errors.Is(err, workqueue.ErrLeaseLost) {
		return ErrNotWriter
	}
	if err != nil {
		return fmt.Errorf("remain the writer of job %s: %w", l.job, err)
	}
	return nil
}
