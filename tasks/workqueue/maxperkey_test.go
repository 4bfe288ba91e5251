package workqueue_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// A resource whose items hang leaves workers for the others.
func TestPoolWorksOnFewItemsOfAKey(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.New(t), workqueue.Config{})
	for i := range 40 {
		key := "slow"
		if i >= 20 {
			key = fmt.Sprint("fast", i%3)
		}
		if _, err := k.Enqueue(t.Context(), workqueue.Item{ID: fmt.Sprint(i), Kind: "test", ResourceKeys: []string{key}}); err != nil {
			t.Fatal(err)
		}
	}
	var slow, most, fast atomic.Int32
	finish := make(chan struct{})
	p := k.pool(workqueue.PoolConfig{Workers: 6, MaxPerKey: 3}, func(_ context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
		if it.ResourceKeys[0] != "slow" {
			fast.Add(1)
			return workqueue.Done(), nil
		}
		if n := slow.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer slow.Add(-1)
		<-finish
		return workqueue.Done(), nil
	})
	stop, wait := k.start(p)
	k.eventually("all fast items to be done", func() bool { return fast.Load() == 20 })
	k.eventually("three slow ones to run", func() bool { return slow.Load() == 3 })
	close(finish)
	k.eventually("the end of all", func() bool { s, err := k.Stats(t.Context()); return err == nil && s.Done == 40 })
	if got := most.Load(); got != 3 {
		t.Errorf("got %d slow items at a time, want 3", got)
	}
	stop()
	wait()
}

// A pool that got more signals than it read leaks no goroutine: TestMain checks for leaks.
func TestBusyPoolLeaksNoGoroutine(t *testing.T) {
	t.Parallel()
	k := newKit(t, redistest.New(t), workqueue.Config{})
	var began atomic.Int32
	finish := make(chan struct{})
	p := k.pool(workqueue.PoolConfig{Workers: 1}, func(context.Context, workqueue.Leased) (workqueue.Outcome, error) {
		began.Add(1)
		<-finish
		return workqueue.Done(), nil
	})
	stop, wait := k.start(p)
	for i := range 400 { // each is a signal; the client keeps 100
		if _, err := k.Enqueue(t.Context(), workqueue.Item{ID: fmt.Sprint(i), Kind: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	k.eventually("an item to run", func() bool { return began.Load() == 1 })
	stop()
	close(finish)
	wait()
}
