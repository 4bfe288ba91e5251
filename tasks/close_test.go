package tasks_test

import (
	"context"
	"strings"
	"testing"

	"muster/tasks"
	"muster/tasks/redistest"
)

// A program may close its client while a worker of the client runs: the worker stops first, and another worker runs
// its tasks.
func TestCloseStopsTheWorkersOfTheClient(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	step := tasks.New[int, int]("close.step", tasks.Queue("close"))
	started, release := make(chan struct{}, 1), make(chan struct{})
	start := func() (*tasks.Client, chan error) {
		client, err := tasks.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		mux := tasks.NewMux()
		tasks.Handle(mux, step, func(ctx context.Context, n int) (int, error) {
			started <- struct{}{}
			select {
			case <-release:
				return n + 1, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		})
		worker, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{Queues: map[string]int{"close": 1}})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- worker.Run(context.WithoutCancel(t.Context())) }()
		return client, ended
	}

	client, ended := start()
	run, err := step.S(1).Send(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	<-started
	for range 2 {
		if err := client.Close(); err != nil {
			t.Errorf("Close: got %v, want nil", err)
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
	late, err := tasks.NewWorker(client, tasks.NewMux(), tasks.WorkerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := late.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "client is closed") {
		t.Errorf("Run after Close: got %v, want an error about a closed client", err)
	}

	close(release)
	client, ended = start()
	if got, err := tasks.Attach[int](client, run.ID()).Wait(limited(t)); err != nil || got != 2 {
		t.Errorf("Wait: got %v, %v, want 2", got, err)
	}
	if err := client.Close(); err != nil {
		t.Errorf("Close: got %v, want nil", err)
	}
	<-ended
}
