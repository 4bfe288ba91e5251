// Package store defines the Redis keys, scripts and stored values of the packages of sites.
package store

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Keep is how long Redis keeps a job after its last step.
const Keep = 7 * 24 * time.Hour

// ReadJSON reads a JSON value. ok is false if the key does not exist.
func ReadJSON[T any](ctx context.Context, rdb redis.UniversalClient, key string) (v T, ok bool, err error) {
	data, err := rdb.Get(ctx, key).Bytes()
	if errors.Is(err, redis.Nil) {
		return v, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		return v, false, fmt.Errorf("read %s: %w", key, err)
	}
	return v, true, nil
}

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
