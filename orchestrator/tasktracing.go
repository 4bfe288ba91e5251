package orchestrator

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

// useTracing adds the middleware of tasks: log attributes for request, job, workflow and node, a span if tracing is enabled,
// and a log line per attempt (level info for a failure, otherwise debug).
func (s *System) useTracing(mux *tasks.Mux) {
	mux.Use(identify)
	if p := s.tracing.Provider(); p != nil {
		mux.Use(otel.Middleware(s.Client, otel.Config{Provider: p, Logger: s.logger}))
	}
	mux.Use(logRuns(s.logger))
}

func identify(ctx context.Context, info tasktype.Info, next func(context.Context) error) error {
	return next(logctx.Receive(ctx, info.Headers, logctx.Job, info.Workflow, logctx.Workflow, info.Workflow, logctx.Node, info.Node))
}

func logRuns(logger *slog.Logger) tasks.Middleware {
	return func(ctx context.Context, info tasktype.Info, next func(context.Context) error) error {
		level, start := slog.LevelDebug, time.Now()
		err := next(ctx)
		if tasks.IsFailure(err) && ctx.Err() == nil {
			level = slog.LevelInfo
		}
		if !logger.Enabled(ctx, level) {
			return err
		}
		args := []any{"task", info.Task, "attempt", info.Attempt, "took", time.Since(start)}
		if err != nil {
			args = append(args, "err", clip.Line(err.Error(), 500))
		}
		logger.Log(ctx, level, "task ran", args...)
		return err
	}
}
