package tasks_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

func TestLeaseSurvivesItsClient(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	sender, lessor := tasks.NewClient(rdb), tasks.NewClient(rdb)
	defer func() { _ = sender.Close() }()
	defer func() { _ = lessor.Close() }()
	double := tasks.New[int, int]("py.double", tasks.Queue("py"))
	run := testutil.Must(double.S(21).Send(t.Context(), sender))(t)
	leased, err := lessor.Lease(t.Context(), tasktype.LeaseRequest{Queue: "py", Tasks: []string{"py.double"}, Wait: time.Minute, For: time.Hour})
	testutil.Ok(t, err)
	testutil.Ok(t, lessor.Close())
	if _, err := lessor.Lease(t.Context(), tasktype.LeaseRequest{Tasks: []string{"py.double"}, Wait: time.Minute}); err == nil {
		t.Error("a closed client leases tasks, want an error")
	}
	testutil.Ok(t, sender.Beat(t.Context(), leased[0].Token, time.Minute))
	testutil.Ok(t, sender.Complete(t.Context(), leased[0].Token, json.RawMessage("42")))
	if got, err := run.Wait(t.Context()); err != nil || got != 42 {
		t.Errorf("got %d, %v, want 42", got, err)
	}
}

func TestCallsForLeasesAreLimited(t *testing.T) {
	t.Parallel()
	c := newClient(t, redistest.New(t))
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	req := tasktype.LeaseRequest{Queue: "py", Tasks: []string{"py.double"}, Wait: time.Minute}
	refused := make(chan error, 1001)
	for range 1001 {
		calls.Go(func() {
			if _, err := c.Lease(ctx, req); ctx.Err() == nil {
				refused <- err
			}
		})
	}
	if err := <-refused; err == nil || !strings.Contains(err.Error(), "too many calls") {
		t.Errorf("call 1,001: got %v, want an error", err)
	}
	run := testutil.Must(tasks.New[int, int]("py.double", tasks.Queue("py")).S(1).Send(ctx, c))(t)
	testutil.Eventually(t, "the task is leased", func() bool {
		nodes, err := run.Nodes(ctx)
		return err == nil && !nodes[0].Opened.IsZero()
	})
}
