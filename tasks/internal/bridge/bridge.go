// Package bridge lets the packages below tasks see what its values are made of, without showing it to
// everybody.
package bridge

import "muster/tasks/internal/engine"

// Set by package tasks before anything else runs.
var (
	// Handlers returns the handlers of a *tasks.Mux by name.
	Handlers func(mux any) map[string]*engine.Handler
	// Engine returns the engine of a *tasks.Client.
	Engine func(client any) *engine.Engine
)
