// Package store defines the Redis keys, scripts and stored values of the packages of sites.
package store

import (
	"context"
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
