package engine

import (
	"context"
	"log/slog"
	"time"

	"muster/tasks/internal/store"
)

// env is what all parts of an engine share.
type env struct {
	store  *store.Store
	log    *slog.Logger
	clock  Clock
	waker  func(ctx context.Context, k Wake) error // sends a wake-task
	codeOf CodeOf
}

// Clock is how the engine tells time and waits. The default is the clock of the machine.
type Clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) (stop func() bool)
	After(d time.Duration) <-chan time.Time
}

// machineClock is the clock of the machine.
type machineClock struct{}

func (machineClock) Now() time.Time                         { return time.Now() }
func (machineClock) After(d time.Duration) <-chan time.Time { return time.After(d) }
func (machineClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}
