package engine

import (
	"log/slog"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/tasks/internal/store"
)

// A node of a workflow that this worker cannot read is put back for a short time, after which the worker looks at it
// again: the timer of a todo does not depend on the workflow.
func TestTimerIsSetThoughItsWorkflowCannotBeRead(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	if err := rdb.HSet(t.Context(), "muster:{0}:w:newer~", "n", 1, "g", `{"v":99}`).Err(); err != nil {
		t.Fatal(err)
	}
	e := New(rdb, store.DefaultNamespace, slog.New(slog.DiscardHandler))
	t.Cleanup(e.Close)
	w := NewWorker(e, nil, WorkerConfig{Queues: map[string]int{"default": 1}, Concurrency: 1, Logger: slog.New(slog.DiscardHandler)})
	begun := time.Now()
	w.dispatcher.settle([]store.Todo{{Ref: "newer~", Timer: time.Minute}})
	select {
	case got := <-w.agenda.timer:
		if got.Before(begun.Add(time.Minute)) {
			t.Errorf("timer: got %v, want one in a minute", got)
		}
	default:
		t.Error("timer: got none, want one in a minute")
	}
}
