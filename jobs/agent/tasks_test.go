package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/tasks"
)

var checkTask = tasks.New[agent.Body, agent.Reply]("my.check")

// work starts a worker for checkTask on a queue.
func work(t *testing.T, rdb redis.UniversalClient, queue string, handle func(context.Context, agent.Body) (agent.Reply, error)) {
	t.Helper()
	client := tasks.NewClient(rdb)
	mux := tasks.NewMux()
	tasks.Handle(mux, checkTask, handle)
	worker := testutil.Must(tasks.NewWorker(client, mux, tasks.WorkerConfig{Queues: map[string]int{queue: 1}, Concurrency: 4, Logger: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(func() { _ = client.Close() })
	testutil.Background(t, worker.Run)
}

func TestGoTasksDoWork(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		r := newRig(t, rdb, nil)
		r.input.Prompt = strings.Repeat("p", jobs.MaxInline+1) // the task gets it nevertheless
		r.put("task:my.check", 10)
		if roles, err := r.Roles(t.Context()); err != nil || roles["task:my.check"] != 0 {
			t.Errorf("without a worker: got roles %v, %v, want none", roles, err)
		}
		work(t, rdb, "other", func(_ context.Context, b agent.Body) (agent.Reply, error) {
			if b.Item == nil || b.Item.Text == "" || b.Job.ID != r.items.jobs[0] || b.Role != "task:my.check" || b.Job.Prompt != r.input.Prompt || string(b.Job.Context) != `{"a":1}` {
				t.Errorf("got body %+v", b)
			}
			return agent.Reply{Verdict: "accept", Usage: map[string]int64{"n": 1}, Item: json.RawMessage(`{"name":"x"}`)}, nil
		})
		testutil.Eventually(t, "all are done", func() bool { return r.counts().Integrated == 10 })
		testutil.Eventually(t, "the usage is added", func() bool { usage, n := r.usage(); return usage["n"] == 10 && n == 10 })
		if it := r.item(0); it.Name != "x" {
			t.Errorf("got item %+v", it)
		}
		if roles, err := r.Roles(t.Context()); err != nil || roles["task:my.check"] != 1 {
			t.Errorf("got roles %v, %v, want one worker for the task", roles, err)
		}
	})
}

func TestAGoTaskThatFailsIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t), nil)
	work(t, r.rdb, "default", func(context.Context, agent.Body) (agent.Reply, error) {
		return agent.Reply{}, errors.New("it is broken")
	})
	r.put("task:my.check", 1)
	testutil.Eventually(t, "an attempt has failed", func() bool { return r.item(0).RetryCount > 0 })
	if got := r.item(0).LastError; !strings.Contains(got, "it is broken") {
		t.Errorf("got error %q, want the error of the handler", got)
	}
}

// A Go task that runs for too long is revoked at the deadline.
func TestAGoTaskEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t), func(cfg *setup) { cfg.lease, cfg.timeout = time.Second, 1500*time.Millisecond })
	ended := make(chan struct{}, 10)
	work(t, r.rdb, "default", func(ctx context.Context, _ agent.Body) (agent.Reply, error) {
		<-ctx.Done()
		ended <- struct{}{}
		return agent.Reply{}, ctx.Err()
	})
	r.put("task:my.check", 1)
	<-ended
	testutil.Eventually(t, "an attempt has failed", func() bool { return r.item(0).RetryCount > 0 })
}

// Another process waits for the Go task that one has left, and does not run it again.
func TestAnotherProcessWaitsForTheSameGoTask(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		var runs atomic.Int64
		finish := make(chan struct{})
		work(t, rdb, "default", func(context.Context, agent.Body) (agent.Reply, error) {
			runs.Add(1)
			<-finish
			return agent.Reply{Verdict: "accept"}, nil
		})
		first := newRig(t, rdb, nil)
		first.put("task:my.check", 1)
		testutil.Eventually(t, "it runs", func() bool { return runs.Load() == 1 })
		first.stop()
		second := newRigOn(t, rdb, first.items, nil)
		close(finish)
		testutil.Eventually(t, "it is done", func() bool { return second.counts().Integrated == 1 })
		if runs.Load() != 1 || second.item(0).RetryCount != 0 {
			t.Errorf("the task ran %d times with %d failed attempts, want once with 0", runs.Load(), second.item(0).RetryCount)
		}
	})
}

func TestOnlyTasksOfPipelinesAreRoles(t *testing.T) {
	t.Parallel()
	var names atomic.Value
	names.Store([]string{})
	r := newRig(t, redistest.New(t), func(cfg *setup) {
		cfg.TaskRoles = func(context.Context) ([]string, error) { return names.Load().([]string), nil }
	})
	work(t, r.rdb, "default", func(context.Context, agent.Body) (agent.Reply, error) { return agent.Reply{}, nil })
	r.put("task:my.check", 1)
	testutil.Eventually(t, "the worker is live", func() bool {
		all, err := r.client.Inspect().Workers(t.Context())
		return err == nil && len(all) == 1
	})
	if roles, err := r.Roles(t.Context()); err != nil || len(roles) != 0 {
		t.Errorf("got roles %v, %v, want none", roles, err)
	}
	names.Store([]string{"my.check", "another"})
	testutil.Eventually(t, "it is done", func() bool { return r.counts().Integrated == 1 })
	if roles, err := r.Roles(t.Context()); err != nil || len(roles) != 1 || roles["task:my.check"] != 1 {
		t.Errorf("got roles %v, %v, want one worker for the task", roles, err)
	}
}
