package testutil

import (
	"context"
	"sync"
	"testing"
)

// Background calls run, such as [muster/tasks.Worker.Run], in a goroutine of its own. The context of run ends when stop
// is called, or at the end of the test. stop waits until run has returned; an error of run fails the test.
func Background(tb testing.TB, run func(context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		tb.Helper()
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("background function: got %v, want no error", err)
		}
	})
	tb.Cleanup(stop)
	return stop
}
