package store

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Close notes that a job will have no more records to write.
func Close(ctx context.Context, rdb redis.UniversalClient, run string) error {
	if err := rdb.SRem(ctx, OpenJobsKey, run).Err(); err != nil {
		return fmt.Errorf("close job %s: %w", run, err)
	}
	return nil
}
