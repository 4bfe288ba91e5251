package tasks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

func TestLogLinesOfTasks(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger := slog.New(tasks.LogHandler(slog.NewTextHandler(&out, nil)))
	task := tasks.New[int, int]("log.task", tasks.MaxRetry(1))
	mux := tasks.NewMux()
	tasks.Handle(mux, task, func(ctx context.Context, n int) (int, error) {
		log := logger.With("order", n).WithGroup("card")
		log.DebugContext(ctx, "not enabled")
		log.InfoContext(ctx, "charge the card", "cents", 250)
		if tasks.InfoFrom(ctx).Attempt == 1 {
			return 0, errors.New("declined")
		}
		logger.ErrorContext(ctx, strings.Repeat("é", 600))
		logger.Info("without the context of the task")
		return n, nil
	})
	f := taskstest.New(t, mux)
	ctx, c := t.Context(), f.Client()
	run := started(t, c, task.S(7))
	f.Drain()
	lines, err := c.Workflow(run.ID()).Log(ctx)
	if err != nil || len(lines) != 3 {
		t.Fatalf("got %+v, %v, want three lines", lines, err)
	}
	for i, l := range lines {
		want := tasktype.LogLine{Time: l.Time, Level: "INFO", Node: "0", Task: "log.task", Attempt: 1 + (i+1)/2, Text: "charge the card order=7 card.cents=250"}
		if i == 2 {
			want.Level, want.Text = "ERROR", strings.Repeat("é", 500)
		}
		if l != want || l.Time.IsZero() {
			t.Errorf("line %d: got %+v, want %+v", i, l, want)
		}
	}
	if got := strings.Count(out.String(), "\n"); got != 4 {
		t.Errorf("got %d lines in the output of the program, want 4: %s", got, out.String())
	}
	if _, err := c.Workflow("none").Log(ctx); !errors.Is(err, tasks.ErrNotFound) {
		t.Errorf("log of a workflow that does not exist: got %v", err)
	}
	key := keyOf(t, c, "*:log")
	flow, log := c.Redis().PTTL(ctx, strings.TrimSuffix(key, ":log")).Val(), c.Redis().PTTL(ctx, key).Val()
	if log <= 0 || log > flow || flow-log > time.Second {
		t.Errorf("the log expires after %s, want %s as the workflow", log, flow)
	}
	if err := run.Delete(ctx); err != nil || c.Redis().Exists(ctx, key).Val() != 0 {
		t.Errorf("%v: the log remains after its workflow", err)
	}
}

// keyOf returns the only key that matches a pattern.
func keyOf(t *testing.T, c *tasks.Client, pattern string) string {
	t.Helper()
	keys, err := c.Redis().Keys(t.Context(), pattern).Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("got the keys %q, %v, want one", keys, err)
	}
	return keys[0]
}

// The last lines of a workflow can be read while it is running.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	logger := slog.New(tasks.LogHandler(slog.NewTextHandler(io.Discard, nil)))
	task, end := tasks.New[int, int]("log.many"), make(chan struct{})
	mux := tasks.NewMux()
	tasks.Handle(mux, task, func(ctx context.Context, n int) (int, error) {
		for i := range 300 {
			logger.InfoContext(ctx, fmt.Sprint("line ", i))
		}
		<-end
		return n, nil
	})
	c := newClient(t, redistest.Server(t).Client())
	w, err := tasks.StartWorker(t.Context(), c, mux, tasks.WorkerConfig{})
	testutil.Ok(t, err)
	run := started(t, c, task.S(1))
	testutil.Eventually(t, "the last lines are stored", func() bool {
		lines, err := c.Workflow(run.ID()).Log(t.Context())
		return err == nil && len(lines) == 200 && lines[0].Text == "line 100" && lines[199].Text == "line 299"
	})
	close(end)
	testutil.Ok(t, w.Stop())
}
