package ui

import (
	"context"
	"time"

	"muster/internal/webui"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/orchestrator/health"
	"muster/proxies"
	"muster/sites"
)

// known caches data for all pages that takes many Redis commands. It is safe for concurrent use.
type known struct {
	checks   webui.Cache[health.Report]
	activity webui.Cache[[]agent.Activity]
	stuck    webui.Cache[[]jobs.Stuck]
	review   webui.Cache[int64]
	sites    webui.Cache[[]sites.State]
	pool     webui.Cache[proxies.Stats]
}

// cached returns the only value of a cache, if it is not older than keep, or reads it.
func cached[T any](ctx context.Context, c *webui.Cache[T], keep time.Duration, read func(context.Context) (T, error)) (T, error) {
	return c.Get(ctx, "", func(ctx context.Context) (T, time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, webui.AskTime)
		defer cancel()
		v, err := read(ctx)
		return v, keep, err
	})
}
