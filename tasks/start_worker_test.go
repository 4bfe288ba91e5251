package tasks_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// A started worker is listed immediately, finishes running tasks when it is stopped, and is not listed after that.
func TestStoppedWorkerFinishesRunningTasks(t *testing.T) {
	t.Parallel()
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	slow := tasks.New[int, int]("background.slow")
	begun, release := make(chan struct{}), make(chan struct{})
	mux := tasks.NewMux()
	tasks.Handle(mux, slow, func(_ context.Context, n int) (int, error) {
		close(begun)
		<-release
		return n + 1, nil
	})
	called := false
	worker, err := tasks.StartWorker(t.Context(), client, mux, tasks.WorkerConfig{Ready: func() { called = true }})
	testutil.Ok(t, err)
	if !called {
		t.Error("Ready was not called before StartWorker returned")
	}
	if got := len(listed(t, client)); got != 1 {
		t.Errorf("workers: got %d, want 1", got)
	}
	run := started(t, client, slow.S(1))
	<-begun
	stopped := make(chan error, 1)
	go func() { stopped <- worker.Stop() }()
	close(release)
	if err := <-stopped; err != nil {
		t.Errorf("Stop: got %v, want nil", err)
	}
	if err := worker.Stop(); err != nil {
		t.Errorf("second Stop: got %v, want nil", err)
	}
	wantValue(t, run, 2)
	if got := len(listed(t, client)); got != 0 {
		t.Errorf("workers after Stop: got %d, want 0", got)
	}
}

// StartWorker returns the error that prevents a worker from running.
func TestStartWorkerReturnsStartError(t *testing.T) {
	t.Parallel()
	client := tasks.NewClient(redistest.New(t))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tasks.StartWorker(over, client, tasks.NewMux(), tasks.WorkerConfig{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a ctx that is done: got %v, want context.Canceled", err)
	}
	for field, cfg := range map[string]tasks.WorkerConfig{
		"Queues": {Queues: map[string]int{"a b": 1}}, "Grace": {Grace: -1}, "MaxResult": {MaxResult: -1},
	} {
		if _, err := tasks.StartWorker(t.Context(), client, tasks.NewMux(), cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("got %v, want an error that names %s", err, field)
		}
	}
	if _, err := tasks.StartWorker(t.Context(), client, tasks.NewMux(), tasks.WorkerConfig{Concurrency: -1}); err == nil {
		t.Error("with a wrong Concurrency: got nil, want an error")
	}
	testutil.Ok(t, client.Close())
	if _, err := tasks.StartWorker(t.Context(), client, tasks.NewMux(), tasks.WorkerConfig{}); err == nil {
		t.Error("with a closed client: got nil, want an error")
	}
	worker, err := tasks.NewWorker(client, tasks.NewMux(), tasks.WorkerConfig{})
	testutil.Ok(t, err)
	if err := worker.Stop(); err == nil {
		t.Error("Stop of a worker that was not started: got nil, want an error")
	}
}

// A worker that is stopped at any moment of its start stops cleanly, and leaves no heartbeat.
func TestWorkerStopsWhileItStarts(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	for n, up := 1, false; !up; n++ {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f := redistest.NewFault(redistest.Slow, n)
		client := tasks.NewClient(f.Client(t, url))
		f.Arm()
		go func() {
			<-f.Hit()
			cancel()
			f.Release()
		}()
		worker, err := tasks.NewWorker(client, tasks.NewMux(), tasks.WorkerConfig{
			Name: "brief", Ready: func() { up = ctx.Err() == nil; cancel() },
		})
		testutil.Ok(t, err)
		if err := worker.Run(ctx); err != nil {
			t.Fatalf("stopped before exchange %d: %v", n, err)
		}
		if left, err := client.Workers(t.Context()); err != nil || len(left) > 0 {
			t.Fatalf("stopped before exchange %d: it is still listed: %v, %v", n, left, err)
		}
		_ = client.Close()
	}
}
