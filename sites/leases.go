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
// Those that cannot be ended because Redis takes no writes are given back when
// it takes them again: left to expire they would count as attempts.
type leases struct {
	queue *workqueue.Queue
	log   *slog.Logger

	mu   sync.Mutex // guards owed
	owed []workqueue.Leased
}

// settle ends the lease of a page that is fetched or given up. A page that
// another worker has taken over is left to that one.
func (l *leases) settle(ctx context.Context, lease workqueue.Leased, o workqueue.Outcome) error {
	err := l.queue.Settle(ctx, lease, o)
	if errors.Is(err, workqueue.ErrLeaseLost) {
		l.log.Warn("a page was taken over by another worker", "item", lease.ID)
		return nil
	}
	if err != nil {
		l.owe(lease, err)
		return fmt.Errorf("settle page: %w", err)
	}
	return nil
}

// retry puts a page back for a while. Count says whether that is an attempt.
func (l *leases) retry(ctx context.Context, lease workqueue.Leased, cause error, after time.Duration, count bool) error {
	_, err := l.queue.Retry(ctx, lease, cause, max(after, 0), count)
	if err != nil && !errors.Is(err, workqueue.ErrLeaseLost) {
		l.owe(lease, err)
		return fmt.Errorf("delay page: %w", err)
	}
	return nil
}

// giveBack ends the lease of a page that was not begun, also when ctx is over.
func (l *leases) giveBack(ctx context.Context, lease workqueue.Leased) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := l.queue.Return(ctx, lease); err != nil {
		l.owe(lease, err)
		return fmt.Errorf("give page back: %w", err)
	}
	return nil
}

// owe notes a lease that Redis refused to end.
func (l *leases) owe(lease workqueue.Leased, err error) {
	if !tasks.Refused(err) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owed = append(l.owed, lease)
}

// returnPending gives back what is owed.
func (l *leases) returnPending(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.owed) == 0 {
		return nil
	}
	if err := l.queue.Return(ctx, l.owed...); err != nil {
		return fmt.Errorf("give pages back: %w", err)
	}
	l.owed = nil
	return nil
}
