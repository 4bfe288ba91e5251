package api

import (
	"context"
	"net/http"

	"muster/orchestrator/api/client"
	"muster/tasks/limit"
)

// addBreakers adds the operations on circuit breakers.
func addBreakers(s *server) {
	breakers := s.cfg.Breakers
	op := describe(s, http.MethodGet, "/v1/breakers", "listBreakers", tagState, "List the circuit breakers that are not closed")
	route(s, op, 0, body(func(ctx context.Context, _ *nothing) (client.Page[limit.BreakerState], error) {
		return pageOf(breakers.List(ctx))
	}))
	op = describe(s, http.MethodPost, "/v1/breakers/reset", "resetBreakers", tagState, "Close circuit breakers and forget their failures", http.StatusNotFound)
	op.Description = "The response has the keys of the breakers that were closed."
	route(s, op, maxBody, body(func(ctx context.Context, in *request[client.BreakerReset]) (out client.Page[string], err error) {
		switch {
		case in.Body.All == (len(in.Body.Names) > 0):
			return out, badField("body.names", "give names, or all: true")
		case in.Body.All:
			return pageOf(breakers.ResetAll(ctx))
		}
		return pageOf(breakers.Reset(ctx, in.Body.Names...))
	}))
}
