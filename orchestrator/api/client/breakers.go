package client

import (
	"context"
	"net/http"

	"muster/tasks/limit"
)

// BreakerReset selects the circuit breakers to close: Names or All.
type BreakerReset struct {
	Names []string `json:"names,omitempty" maxItems:"1000" maxLength:"300" doc:"keys of breakers, or the site, host or id in keys" example:"quotes.toscrape.com"`
	All   bool     `json:"all,omitempty" doc:"close all breakers"`
}

// Breakers lists the circuit breakers that are not closed.
func (c *Client) Breakers(ctx context.Context) ([]limit.BreakerState, error) {
	return all[limit.BreakerState](ctx, c, "/v1/breakers", nil, 0)
}

// ResetBreakers closes breakers, and returns their keys.
func (c *Client) ResetBreakers(ctx context.Context, r BreakerReset) ([]string, error) {
	var closed Page[string]
	err := c.do(ctx, http.MethodPost, "/v1/breakers/reset", nil, r, &closed)
	return closed.Data, err
}
