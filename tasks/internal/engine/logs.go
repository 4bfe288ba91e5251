package engine

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"muster/internal/clip"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

const (
	logTimeout = time.Second // for storing the lines of all workflows
	maxPending = 5000        // lines of a worker that are not stored yet
	maxLine    = 1000        // bytes
)

// logs collects log lines of tasks until they are stored.
type logs struct {
	*local
	due chan struct{} // gets a value when there is something to store

	mu      sync.Mutex // guards the fields below
	lines   map[store.Flow][]tasktype.LogLine
	pending int
	dropped int
}

func newLogs(l *local) *logs {
	return &logs{local: l, due: make(chan struct{}, 1), lines: map[store.Flow][]tasktype.LogLine{}}
}

// Log adds a log line to the workflow of the run.
func (r *Run) Log(at time.Time, level slog.Level, text string) {
	r.logged.Store(true)
	r.w.logs.add(r.fl.Flow, tasktype.LogLine{Time: at.UTC(), Level: level.String(), Node: r.Info.Node, Task: r.Info.Task, Attempt: r.Info.Attempt, Text: clip.Bytes(text, maxLine)})
}

func (l *logs) add(f store.Flow, line tasktype.LogLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	signal(l.due)
	lines := l.lines[f]
	switch {
	case len(lines) == store.MaxLog:
		lines = slices.Delete(lines, 0, 1) // only the last ones are kept
	case l.pending == maxPending:
		l.dropped++
		return
	default:
		l.pending++
	}
	l.lines[f] = append(lines, line)
}

// once stores the lines. It drops those that it cannot store in time.
func (l *logs) once(ctx context.Context) {
	l.mu.Lock()
	all, dropped := l.lines, l.dropped
	l.lines, l.pending, l.dropped = map[store.Flow][]tasktype.LogLine{}, 0, 0
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	var failed error
	for f, lines := range all {
		if err := l.store.Flows.AddLog(ctx, f, lines); err != nil {
			failed = err
			dropped += len(lines)
		}
	}
	if dropped > 0 {
		l.log.WarnContext(ctx, "log lines of tasks were dropped", "lines", dropped, "error", failed)
	}
}
