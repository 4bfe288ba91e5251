package orchestrator

import (
	"log/slog"

	"muster/orchestrator/job"
	"muster/orchestrator/store"
	"muster/tasks"
)

// migrations are all that there have been, in order. The schema of the store is
// the number of the last one.
var migrations = []store.Migration{
	job.EndedByKind(1),
}

// NewStore returns the store that a client is connected to: its schema, and its
// lock. A nil logger logs nothing.
func NewStore(client *tasks.Client, logger *slog.Logger) *store.Store {
	return store.New(client.Redis(), migrations, logger)
}
