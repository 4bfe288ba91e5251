package orchestrator

import (
	"context"

	"muster/orchestrator/tracing"
	"muster/sites"
)

// observePages makes the spans of pages; nil if tracing is off.
func (s *System) observePages() func(context.Context, sites.Visit) (context.Context, func(sites.Visited)) {
	if s.tracing == nil {
		return nil
	}
	return func(ctx context.Context, v sites.Visit) (context.Context, func(sites.Visited)) {
		ctx, end := s.tracing.Page(ctx, tracing.Page{Site: v.Site, Kind: v.Kind, URL: v.URL, Item: v.Item, Attempt: v.Attempt})
		return ctx, func(r sites.Visited) {
			end(tracing.PageEnd{Status: r.Status, Proxy: r.Via, Class: r.Class, Delayed: r.Delayed, Records: r.Records, Err: r.Err})
		}
	}
}
