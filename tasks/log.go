package tasks

import (
	"bytes"
	"context"
	"log/slog"

	"muster/tasks/internal/engine"
)

// LogHandler returns a handler that passes records to next, and stores the records of tasks with their workflows:
//
//	slog.SetDefault(slog.New(tasks.LogHandler(slog.NewTextHandler(os.Stderr, nil))))
//
// A record belongs to a task if it is logged with the context of the handler, as by [slog.InfoContext]. The last 200 lines of
// a workflow are kept as long as its results, and shown on its page: do not log secrets. A line has at most 1,000 bytes. Workers
// store lines once a second. They drop lines, and log how many, if there are more than 5,000 per second or if Redis does not
// take them within a second. Handle does not wait for Redis.
func LogHandler(next slog.Handler) slog.Handler { return logHandler{next: next} }

type logHandler struct {
	next slog.Handler
	with []func(slog.Handler) slog.Handler // calls of WithAttrs and WithGroup
}

// Enabled implements slog.Handler.
func (h logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if run := engine.RunFrom(ctx); run != nil {
		run.Log(r.Time, r.Level, h.text(ctx, r))
	}
	return h.next.Handle(ctx, r)
}

// text returns the message and the attributes of a record.
func (h logHandler) text(ctx context.Context, r slog.Record) string {
	var attrs bytes.Buffer
	var text slog.Handler = slog.NewTextHandler(&attrs, &slog.HandlerOptions{Level: r.Level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
			return slog.Attr{}
		}
		return a
	}})
	for _, f := range h.with {
		text = f(text)
	}
	_ = text.Handle(ctx, r) // a buffer has no errors
	return string(bytes.TrimSpace(append([]byte(r.Message+" "), attrs.Bytes()...)))
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.and(func(of slog.Handler) slog.Handler { return of.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler {
	return h.and(func(of slog.Handler) slog.Handler { return of.WithGroup(name) })
}

func (h logHandler) and(f func(slog.Handler) slog.Handler) slog.Handler {
	return logHandler{f(h.next), append(h.with[:len(h.with):len(h.with)], f)}
}
