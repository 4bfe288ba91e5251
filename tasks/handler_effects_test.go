package tasks_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// A handler can revoke its own workflow.
func TestHandlerRevokesItsWorkflow(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	stop := tasks.New[int, int]("stop")
	got := make(chan error, 1)
	client, _ := startMux(t, rdb, func(m *tasks.Mux) {
		c := tasks.NewClient(rdb)
		tasks.Handle(m, stop, func(ctx context.Context, _ int) (int, error) {
			got <- c.Revoke(ctx, tasks.InfoFrom(ctx).Workflow)
			return 0, nil
		})
	})
	if _, err := tasks.Chain(stop.S(1), stop).Do(limited(t), client); err == nil {
		t.Error("got no error, want the error of a revoked workflow")
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// Of two live workers with one name the second does not start. The successor of a killed worker does.
func TestNameOfLiveWorkerIsTaken(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	name := func(c *tasks.WorkerConfig) { c.Name = "one" }
	client, _ := startMux(t, rdb, func(*tasks.Mux) {}, name)
	_, err := tasks.StartWorker(limited(t), client, tasks.NewMux(), tasks.WorkerConfig{Name: "one"})
	if err == nil || !strings.Contains(err.Error(), "worker one: another live worker has this name") {
		t.Errorf("got %v, want an error that names the worker", err)
	}
	if live, err := client.Workers(t.Context()); err != nil || len(live) != 1 {
		t.Errorf("got workers %v, %v, want the first", live, err)
	}

	killed := time.Now().Add(-4 * time.Second).UnixMilli()
	testutil.Ok(t, rdb.ZAdd(t.Context(), "muster:workers", redis.Z{Score: float64(killed), Member: "killed"}).Err())
	startMux(t, rdb, func(*tasks.Mux) {}, func(c *tasks.WorkerConfig) { c.Name = "killed" })
}

// startMux starts a worker with the handlers that add registers.
func startMux(t *testing.T, rdb redis.UniversalClient, add func(*tasks.Mux), change ...func(*tasks.WorkerConfig)) (*tasks.Client, *tasks.Worker) {
	t.Helper()
	m := tasks.NewMux()
	add(m)
	var cfg tasks.WorkerConfig
	for _, f := range change {
		f(&cfg)
	}
	client := tasks.NewClient(rdb)
	w, err := tasks.StartWorker(limited(t), client, m, cfg)
	testutil.Ok(t, err)
	t.Cleanup(func() { _ = w.Stop() })
	return client, w
}
