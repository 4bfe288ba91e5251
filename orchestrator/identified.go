package orchestrator

import (
	"context"
	"log/slog"
	"time"

	"muster/internal/clip"
	"muster/internal/logctx"
	"muster/orchestrator/tracing"
	"muster/sites"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// identified is the middleware of tasks that puts the ids of their request, job, workflow and node into what they
// log. It logs how each attempt ended: failures as info, the rest as debug.
func (s *System) identified(ctx context.Context, info tasktype.Info, next func(context.Context) error) error {
	ctx = logctx.Receive(logctx.With(ctx, logctx.Job, info.Workflow, logctx.Workflow, info.Workflow, logctx.Node, info.Node), info.Headers)
	level, began := slog.LevelDebug, time.Now()
	err := next(ctx)
	if err != nil && !tasks.IsAgain(err) && !tasks.IsPending(err) && ctx.Err() == nil {
		level = slog.LevelInfo
	}
	if !s.logger.Enabled(ctx, level) {
		return err
	}
	args := []any{"task", info.Task, "attempt", info.Attempt, "took", time.Since(began)}
	if err != nil {
		args = append(args, "err", clip.Line(err.Error(), 500))
	}
	s.logger.Log(ctx, level, "task ran", args...)
	return err
}

// observePages makes the spans of pages; nil if tracing is off.
func (s *System) observePages() func(context.Context, sites.Visit) (context.Context, func(sites.Visited)) {
	if s.tracing == nil {
		return nil
	}
	return func(ctx context.Context, v sites.Visit) (context.Context, func(sites.Visited)) {
		ctx, end := s.tracing.Page(ctx, tracing.Page{Site: v.Site, Kind: v.Kind, URL: v.URL, Item: v.Item, Attempt: v.Attempt})
		return ctx, func(r sites.Visited) {
			end(tracing.PageEnd{Status: r.Status, Proxy: r.Via, Class: r.Class, Records: r.Records, Err: r.Err})
		}
	}
}
