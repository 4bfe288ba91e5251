package job

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	schema "muster/orchestrator/store"
)

// Slot is the hash slot of all that is kept about jobs but their items.
const Slot = "jobs"

// splitChunk is how many jobs one script moves.
const splitChunk = 500

// EndedByKind is the migration that splits the index of the jobs that have ended, so that each kind and state can be
// kept for a time of its own. Without it the jobs that had ended before would never be deleted.
func EndedByKind(version int) schema.Migration {
	return schema.Migration{
		Version: version, Name: "list jobs that have ended by kind and state", Slots: []string{Slot},
		Count: func(ctx context.Context, rdb redis.UniversalClient) (int64, error) {
			return rdb.ZCard(ctx, endedOnceKey).Result()
		},
		Run: func(ctx context.Context, rdb redis.UniversalClient, lock *schema.Lock) error {
			for {
				n, err := scripts["splitended"].Run(ctx, rdb, []string{schema.FenceKey(Slot), endedOnceKey}, lock.Token(), prefix+"j:", endedPrefix, splitChunk).Int()
				if err != nil {
					return fmt.Errorf("list jobs that have ended: %w", err)
				}
				if n == 0 {
					return nil
				}
			}
		},
	}
}
