package tasks_test

import (
	"context"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// A program may close its client while a worker of the client runs: the worker stops first, and another worker runs
// its tasks.
func TestCloseStopsTheWorkersOfTheClient(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	step := tasks.New[int, int]("close.step", tasks.Queue("close"))
	running, release := make(chan struct{}, 1), make(chan struct{})
	start := func() (*tasks.Client, chan error) {
		client, err := tasks.Connect(t.Context(), url)
		testutil.Ok(t, err)
		mux := tasks.NewMux()
		tasks.Handle(mux, step, func(ctx context.Context, n int) (int, error) {
			running <- struct{}{}
			select {
			case <-release:
				return n + 1, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		})
		worker, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{Queues: map[string]int{"close": 1}})
		testutil.Ok(t, err)
		ended := make(chan error, 1)
		go func() { ended <- worker.Run(context.WithoutCancel(t.Context())) }()
		return client, ended
	}

	client, ended := start()
	run := started(t, client, step.S(1))
	<-running
	for range 2 {
		if err := client.Close(); err != nil {
			t.Errorf("Close: got %v, want nil", err)
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
	late, err := tasks.NewWorker(client, tasks.NewMux(), tasks.WorkerConfig{})
	testutil.Ok(t, err)
	if err := late.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "client is closed") {
		t.Errorf("Run after Close: got %v, want an error about a closed client", err)
	}

	close(release)
	client, ended = start()
	wantValue(t, tasks.Attach[int](client, run.ID()), 2)
	if err := client.Close(); err != nil {
		t.Errorf("Close: got %v, want nil", err)
	}
	<-ended
}
