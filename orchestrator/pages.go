package orchestrator

import (
	"context"

	"muster/internal/tracing"
	"muster/sites"
)

// observePage counts the fetch of a page and starts its span if tracing is enabled.
func (s *System) observePage(ctx context.Context, v sites.Visit) (context.Context, func(sites.Visited)) {
	end := func(tracing.PageEnd) {}
	if s.tracing != nil {
		ctx, end = s.tracing.Page(ctx, tracing.Page{Site: v.Site, Kind: v.Kind, URL: v.URL, Item: v.Item, Attempt: v.Attempt})
	}
	return ctx, func(r sites.Visited) {
		s.scrapes.add(v.Site, r)
		end(tracing.PageEnd{Status: r.Status, Proxy: r.Via, Class: r.Class, Delayed: r.Delayed, Records: r.Records, Err: r.Err})
	}
}
