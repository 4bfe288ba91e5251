package sites

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"muster/tasks"
	"muster/tasks/workqueue"
)

// leases ends the leases of pages. It may be used by many goroutines.
//
// Leases that cannot be ended because Redis refuses writes are pending, and
// returned later: if they expired, that would count as attempts.
type leases struct {
	queue *workqueue.Queue
	log   *slog.Logger

	mu      sync.Mutex // guards pending
	pending []workqueue.Leased
}

// settle ends the lease of a page that is fetched or given up. A page that
// another worker has taken over is left to that one.
func (l *leases) settle(ctx context.Context, lease workqueue.Leased, o workqueue.Outcome) error {
	err := l.queue.Settle(ctx, lease, o)
	if errors.Is(err, workqueue.ErrLeaseLost) {
		l.log.WarnContext(ctx, "a page was taken over by another worker", "item", lease.ID)
		return nil
	}
	if err != nil {
		l.addPending(err, lease)
		return fmt.Errorf("settle page: %w", err)
	}
	return nil
}

// retry puts a page back into the queue for a while; count makes that an attempt.
func (l *leases) retry(ctx context.Context, lease workqueue.Leased, cause error, after time.Duration, count bool) error {
	_, err := l.queue.Retry(ctx, lease, cause, max(after, 0), count)
	if err != nil && !errors.Is(err, workqueue.ErrLeaseLost) {
		l.addPending(err, lease)
		return fmt.Errorf("delay page: %w", err)
	}
	return nil
}

// giveBack returns pages that have not begun to the queue, also when ctx has ended.
func (l *leases) giveBack(ctx context.Context, leases ...workqueue.Leased) error {
	if len(leases) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := l.queue.Return(ctx, leases...); err != nil {
		l.addPending(err, leases...)
		return fmt.Errorf("return pages: %w", err)
	}
	return nil
}

// addPending notes leases that Redis refused to end.
func (l *leases) addPending(err error, leases ...workqueue.Leased) {
	if !tasks.Refused(err) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, leases...)
}

// returnPending returns the pending leases.
func (l *leases) returnPending(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		return nil
	}
	if err := l.queue.Return(ctx, l.pending...); err != nil {
		return fmt.Errorf("return pages: %w", err)
	}
	l.pending = nil
	return nil
}
