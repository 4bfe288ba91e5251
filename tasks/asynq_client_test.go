package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// Tasks of asynq's own client and workflows go through one worker and one queue.
func TestPlainTasksBesideWorkflows(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		client := tasks.NewClient(rdb)
		t.Cleanup(func() { _ = client.Close() })
		ours := tasks.New[int, int]("ours")
		mux := tasks.NewMux()
		tasks.Handle(mux, ours, func(_ context.Context, n int) (int, error) { return n + 1, nil })
		plain := asynq.NewServeMux()
		plain.HandleFunc("mail:", func(_ context.Context, t *asynq.Task) error {
			_, err := fmt.Fprintf(t.ResultWriter(), "sent to %s", t.Payload())
			return err
		})
		plain.HandleFunc("bad:", func(context.Context, *asynq.Task) error { return errors.New("no such host") })
		plain.HandleFunc("never:", func(context.Context, *asynq.Task) error { return fmt.Errorf("closed: %w", asynq.SkipRetry) })
		plain.HandleFunc("panic:", func(context.Context, *asynq.Task) error { panic("oh") })
		plain.HandleFunc("nil:", func(context.Context, *asynq.Task) error { var f *tasks.Failure; return f })
		worker, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{Asynq: plain})
		testutil.Ok(t, err)
		during(t, worker.Run)

		sender := asynq.NewClientFromRedisClient(rdb)
		for _, name := range []string{"mail:ann", "bad:bob", "never:cid", "panic:dan", "nil:fay", "unknown:eve"} {
			if _, err := sender.EnqueueContext(t.Context(), asynq.NewTask(name, []byte("x")), asynq.TaskID(name),
				asynq.MaxRetry(5), asynq.Retention(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		run := started(t, client, tasks.Chain(ours.S(1), ours))
		if out, err := run.Wait(t.Context()); err != nil || out != 3 {
			t.Errorf("workflow: got %d, %v, want 3", out, err)
		}
		inspector := asynq.NewInspectorFromRedisClient(rdb)
		for name, want := range map[string]string{
			"mail:ann":    "completed 0 sent to x ",
			"bad:bob":     "retry 1  no such host",
			"never:cid":   "archived 0  closed: skip retry for the task",
			"panic:dan":   "retry 1  panic",
			"nil:fay":     "retry 1  panic",
			"unknown:eve": "retry 1  handler not found",
		} {
			var got string
			testutil.Eventually(t, name+" is over", func() bool {
				i, err := inspector.GetTaskInfo("default", name)
				if err != nil {
					return false
				}
				got = fmt.Sprintf("%s %d %s %s", i.State, i.Retried, i.Result, i.LastErr)
				return i.State != asynq.TaskStatePending && i.State != asynq.TaskStateActive
			})
			if len(got) < len(want) || got[:len(want)] != want {
				t.Errorf("%s: %q, expected %q", name, got, want)
			}
		}
	})
}
