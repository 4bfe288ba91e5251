package sites

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"muster/sites/internal/store"
)

// counters counts events of a job by name. Each process counts on its own until
// it flushes to a hash in Redis. It may be used by many goroutines.
type counters struct {
	rdb redis.UniversalClient
	key string

	mu sync.Mutex // guards by
	by map[string]int64
}

func (c *counters) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]int64{}
	}
	c.by[name]++
}

// flush adds what this process has counted to what all have.
func (c *counters) flush(ctx context.Context) error {
	c.mu.Lock()
	by := c.by
	c.by = nil
	c.mu.Unlock()
	if len(by) == 0 {
		return nil
	}
	pipe := c.rdb.Pipeline()
	for name, n := range by {
		pipe.HIncrBy(ctx, c.key, name, n)
	}
	pipe.Expire(ctx, c.key, store.Keep)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("store counts: %w", err)
	}
	return nil
}

// all returns the counts of all processes that have flushed, and of this one.
func (c *counters) all(ctx context.Context) (map[string]int, error) {
	if err := c.flush(ctx); err != nil {
		return nil, err
	}
	return readCounts(ctx, c.rdb, c.key)
}

func readCounts(ctx context.Context, rdb redis.UniversalClient, key string) (map[string]int, error) {
	stored, err := rdb.HGetAll(ctx, key).Result()
	if err != nil {
		return nil, fmt.Errorf("read counts: %w", err)
	}
	by := map[string]int{}
	for name, text := range stored {
		by[name], _ = strconv.Atoi(text) // 0 for what flush has not written
	}
	return by, nil
}
