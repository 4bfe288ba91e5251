package api

import (
	"context"
	"net/http"

	"muster/orchestrator/api/client"
	"muster/tasks/limit"
)

type resetBreakersInput struct{ Body client.BreakerReset }

// addBreakers adds the operations on circuit breakers.
func addBreakers(s *server) {
	breakers := s.cfg.Breakers
	op := describe(s, http.MethodGet, "/v1/breakers", "listBreakers", tagState, "List the circuit breakers that are not closed")
	route(s, op, 0, func(ctx context.Context, _ *nothing) (*pageOutput[limit.BreakerState], error) {
		list, err := breakers.List(ctx)
		return &pageOutput[limit.BreakerState]{client.Page[limit.BreakerState]{Data: orEmpty(list)}}, err
	})
	op = describe(s, http.MethodPost, "/v1/breakers/reset", "resetBreakers", tagState, "Close circuit breakers and forget their failures", http.StatusNotFound)
	op.Description = "The response has the keys of the breakers that were closed."
	route(s, op, maxBody, func(ctx context.Context, in *resetBreakersInput) (*pageOutput[string], error) {
		var keys []string
		var err error
		switch {
		case in.Body.All == (len(in.Body.Names) > 0):
			return nil, badField("body.names", "give names, or all: true")
		case in.Body.All:
			keys, err = breakers.ResetAll(ctx)
		default:
			keys, err = breakers.Reset(ctx, in.Body.Names...)
		}
		return &pageOutput[string]{client.Page[string]{Data: orEmpty(keys)}}, err
	})
}
