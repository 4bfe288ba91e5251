package testutil

import (
	"context"
	"sync"
	"testing"
)

// Background calls run, for example [muster/tasks.Worker.Run], in a goroutine. Its context is canceled by stop or at the end of the
// test. stop waits until run returns; an error of run fails the test.
func Background(tb testing.TB, run func(context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		tb.Helper()
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("background function: got %v, want no error", err)
		}
	})
	tb.Cleanup(stop)
	return stop
}
