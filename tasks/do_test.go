package tasks_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// Do is Send and Wait; inside a handler it sends nothing.
func TestDoSendsAndWaits(t *testing.T) {
	t.Parallel()
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	double := tasks.New[int, int]("background.double")
	ask := tasks.New[int, bool]("background.ask")
	mux := tasks.NewMux()
	tasks.Handle(mux, double, func(_ context.Context, n int) (int, error) { return 2 * n, nil })
	tasks.Handle(mux, ask, func(ctx context.Context, n int) (bool, error) {
		_, err := double.S(n).Do(ctx, client, tasks.ID("inside"))
		return errors.Is(err, tasks.ErrWaitInTask), nil
	})
	worker, err := tasks.StartWorker(t.Context(), client, mux, tasks.WorkerConfig{})
	testutil.Ok(t, err)
	t.Cleanup(func() { _ = worker.Stop() })
	if got, err := double.S(21).Do(limited(t), client); err != nil || got != 42 {
		t.Errorf("Do: got %v, %v, want 42", got, err)
	}
	if refused, err := ask.S(1).Do(limited(t), client); err != nil || !refused {
		t.Errorf("Do in a handler: got %v, %v, want ErrWaitInTask", refused, err)
	}
	if _, err := tasks.Attach[int](client, "inside").Status(t.Context()); !errors.Is(err, tasks.ErrUnknown) {
		t.Errorf("workflow of Do in a handler: got %v, want ErrUnknown", err)
	}
}

// WaitAll waits for the siblings of a failure, and for the task that is run on it.
func TestWaitAllWaitsForWhatTheValueDoesWithout(t *testing.T) {
	t.Parallel()
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	step := tasks.New[bool, bool]("all.step")
	alert := tasks.New[tasks.Failure, bool]("all.alert")
	release := make(chan struct{})
	var ended atomic.Int32
	mux := tasks.NewMux()
	tasks.Handle(mux, step, func(_ context.Context, fails bool) (bool, error) {
		if fails {
			return false, errors.New("no")
		}
		<-release
		ended.Add(1)
		return true, nil
	})
	tasks.Handle(mux, alert, func(context.Context, tasks.Failure) (bool, error) {
		<-release
		ended.Add(1)
		return true, nil
	})
	worker, err := tasks.StartWorker(t.Context(), client, mux, tasks.WorkerConfig{})
	testutil.Ok(t, err)
	t.Cleanup(func() { _ = worker.Stop() })
	run := started(t, client, tasks.OnError(tasks.Each([]bool{true, false}, step), alert))
	if _, err := run.Wait(limited(t)); err == nil {
		t.Error("Wait: got nil, want the failure")
	}
	if got := ended.Load(); got != 0 {
		t.Errorf("ended when Wait has returned: got %d, want 0", got)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run.WaitAll(over); !errors.Is(err, context.Canceled) {
		t.Errorf("WaitAll with a ctx that is done: got %v, want context.Canceled", err)
	}
	close(release)
	if err := run.WaitAll(limited(t)); err != nil {
		t.Errorf("WaitAll: got %v, want nil", err)
	}
	if got := ended.Load(); got != 2 {
		t.Errorf("ended when WaitAll has returned: got %d, want 2", got)
	}
}
