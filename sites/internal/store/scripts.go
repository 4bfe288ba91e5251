package store

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/grant.lua
	grantLua string
	grantCmd = redis.NewScript(grantLua)
)

// Page is a fetched page that counts against the limits of its job.
type Page struct {
	ID      string
	Records int
	Bytes   int
}

// Grant adds a page to the totals of a job at a key and returns how many of its records to keep. The job may have at most
// maxRecords; 0 is no limit. Grant is idempotent per page.
func Grant(ctx context.Context, rdb redis.UniversalClient, key string, p Page, maxRecords int64) (int, error) {
	n, err := grantCmd.Run(ctx, rdb, []string{key}, p.ID, p.Records, p.Bytes, maxRecords, Keep.Milliseconds()).Int()
	if err != nil {
		return 0, fmt.Errorf("count a page in %s: %w", key, err)
	}
	return n, nil
}
