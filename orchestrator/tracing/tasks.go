package tracing

import (
	"context"
	"log/slog"
	"time"

	"muster/internal/clip"
	"muster/internal/logctx"
	"muster/tasks"
	"muster/tasks/otel"
	"muster/tasks/tasktype"
)

// Use adds the middleware of tasks: each logs the ids of its request, job, workflow
// and node, has a span unless tracing is off, and how its attempts end is logged:
// failures as info, the rest as debug.
func (t *Tracing) Use(mux *tasks.Mux, client *tasks.Client, logger *slog.Logger) {
	mux.Use(identify)
	if t != nil {
		mux.Use(otel.Middleware(client, otel.Config{Provider: t.provider, Logger: logger}))
	}
	mux.Use(logRuns(logger))
}

func identify(ctx context.Context, info tasktype.Info, next func(context.Context) error) error {
	return next(logctx.Receive(ctx, info.Headers, logctx.Job, info.Workflow, logctx.Workflow, info.Workflow, logctx.Node, info.Node))
}

func logRuns(logger *slog.Logger) tasks.Middleware {
	return func(ctx context.Context, info tasktype.Info, next func(context.Context) error) error {
		level, began := slog.LevelDebug, time.Now()
		err := next(ctx)
		if err != nil && !tasks.IsAgain(err) && !tasks.IsPending(err) && ctx.Err() == nil {
			level = slog.LevelInfo
		}
		if !logger.Enabled(ctx, level) {
			return err
		}
		args := []any{"task", info.Task, "attempt", info.Attempt, "took", time.Since(began)}
		if err != nil {
			args = append(args, "err", clip.Line(err.Error(), 500))
		}
		logger.Log(ctx, level, "task ran", args...)
		return err
	}
}
