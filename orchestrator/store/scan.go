package store

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// EachKey calls fn with the keys that a pattern matches, of all masters of a cluster, one call at a time. A key can come
// twice.
func EachKey(ctx context.Context, rdb redis.UniversalClient, pattern string, fn func(key string) error) error {
	var one sync.Mutex // lets one call of fn run
	scan := func(ctx context.Context, c redis.Cmdable) error {
		var cursor uint64
		for {
			keys, next, err := c.Scan(ctx, cursor, pattern, 1000).Result()
			if err != nil {
				return err
			}
			for _, key := range keys {
				one.Lock()
				err := fn(key)
				one.Unlock()
				if err != nil {
					return err
				}
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return scan(ctx, c) })
	}
	return scan(ctx, rdb)
}
