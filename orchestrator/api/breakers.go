package api

import (
	"context"

	"muster/orchestrator/api/client"
	"muster/tasks/limit"
)

// addBreakers adds the operations on circuit breakers.
func addBreakers(s *server) {
	breakers := s.cfg.Breakers
	implement(s, client.ListBreakers, func(ctx context.Context, _ *client.None) (client.Page[limit.BreakerState], error) {
		return pageOf(breakers.List(ctx))
	})
	implement(s, client.ResetBreakers, func(ctx context.Context, in *client.With[client.BreakerReset]) (out client.Page[string], err error) {
		switch {
		case in.Body.All == (len(in.Body.Names) > 0):
			return out, badField("body.names", "give names, or all: true")
		case in.Body.All:
			return pageOf(breakers.ResetAll(ctx))
		}
		return pageOf(breakers.Reset(ctx, in.Body.Names...))
	})
}
