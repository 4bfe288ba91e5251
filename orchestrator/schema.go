package orchestrator

import (
	"log/slog"

	"muster/orchestrator/store"
	"muster/tasks"
)

// migrations are the migrations of the store, in order. The schema of the store is the number of the last one.
var migrations []store.Migration

// NewStore returns the store of a client: its schema and its migration lock. A nil logger disables logging.
func NewStore(client *tasks.Client, logger *slog.Logger) *store.Store {
	return store.New(client.Redis(), migrations, logger)
}
