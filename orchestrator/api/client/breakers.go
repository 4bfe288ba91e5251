package client

import (
	"net/http"

	"muster/internal/limit"
)

// BreakerReset selects the circuit breakers to close: Names or All.
type BreakerReset struct {
	Names []string `json:"names,omitempty" cli:"args" maxItems:"1000" maxLength:"300" doc:"keys of breakers, or the site, host or id in keys" example:"quotes.toscrape.com"`
	All   bool     `json:"all,omitempty" cli:"all" doc:"close all breakers"`
}

// Operations on circuit breakers.
var (
	ListBreakers  = Declare[None, Page[limit.BreakerState]]("GET /v1/breakers", "listBreakers", "state", "List the circuit breakers that are not closed")
	ResetBreakers = Declare[With[BreakerReset], Page[string]]("POST /v1/breakers/reset", "resetBreakers", "state", "Close circuit breakers and forget their failures",
		Fails(http.StatusNotFound), Says("The response has the keys of the breakers that were closed."))
)
