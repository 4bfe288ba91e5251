package orchestrator

import (
	"log/slog"

	"muster/internal/schema"
	"muster/tasks"
)

// migrations are the migrations of the store, in order. The schema version of the store is the number of the last migration.
var migrations []schema.Migration

// NewStore returns the store of a client, with its schema version and its migration lock. A nil logger disables logging.
func NewStore(client *tasks.Client, logger *slog.Logger) *schema.Store {
	return schema.New(client.Redis(), migrations, logger)
}
