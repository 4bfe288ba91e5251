// Package limit bounds what many processes do together: how many at once
// ([KeyedLimiter]), how many in a time ([TokenBucket]), how soon after each
// other ([Pacer]), and whether at all while something is broken ([Breaker]).
//
// Each keeps its state in Redis, per key, changes it in one script, and reads
// Redis's clock, so that all processes see one limit whatever their own clocks
// say. The slots of a process that dies expire.
//
// [HostKey] makes the key of a URL's host.
//
// With FailOpen a limit that cannot reach Redis allows everything and warns;
// without, it returns the error.
package limit

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Errors that callers branch on.
var (
	// ErrNever says that waiting is of no use: the limit is below what the
	// caller wants.
	ErrNever = errors.New("the limit can never allow this")
	// ErrTooLong says that the wait would be longer than the caller allows.
	ErrTooLong = errors.New("the wait would be too long")
)

// warner logs that a limit is open because Redis is away, every ten seconds at
// most.
type warner struct {
	log  *slog.Logger
	what string

	mu   sync.Mutex // guards last
	last time.Time
}

func newWarner(log *slog.Logger, what string) *warner {
	if log == nil {
		log = slog.Default()
	}
	return &warner{log: log, what: what}
}

func (w *warner) open(err error) {
	w.mu.Lock()
	quiet := time.Since(w.last) < 10*time.Second
	if !quiet {
		w.last = time.Now()
	}
	w.mu.Unlock()
	if !quiet {
		w.log.Warn("the limit does not hold while Redis is away", "limit", w.what, "err", err)
	}
}

// sleep waits for d, or returns why ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
