package store

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Program returns the name of the workers with handlers for the tasks, which are sorted.
func Program(tasks []string) string {
	sum := sha256.Sum256([]byte(strings.Join(tasks, "\n")))
	return base32.HexEncoding.EncodeToString(sum[:5])
}

// PoolOf returns the pool of a program in a queue.
func PoolOf(queue, program string) string { return queue + "{" + program + "}" }

// BaseQueue returns the queue of a pool, or the queue itself.
func BaseQueue(queue string) string {
	base, _, _ := strings.Cut(queue, "{")
	return base
}

// routesTTL is how long routes are kept.
const routesTTL = 30 * time.Second

// Route stores the pool of a task of a queue.
func (s Queues) Route(ctx context.Context, queue, task, pool string) error {
	if err := s.scripts["route"].Run(ctx, s.rdb, []string{s.routesKey()}, queue+" "+task, pool, routesTTL.Milliseconds()).Err(); err != nil {
		return fmt.Errorf("store the pool of %s: %w", task, err)
	}
	return nil
}

// Routes returns the pools of "<queue> <task>"; empty for none.
func (s Queues) Routes(ctx context.Context, names []string) ([]string, error) {
	got, err := s.rdb.HMGet(ctx, s.routesKey(), names...).Result()
	if err != nil {
		return nil, fmt.Errorf("read pools of tasks: %w", err)
	}
	out := make([]string, len(names))
	for i := range got {
		out[i] = text(got[i])
	}
	return out, nil
}

// DropRoutes deletes all routes. Workers store them again that move nodes.
func (s Queues) DropRoutes(ctx context.Context) error {
	if err := s.rdb.Del(ctx, s.routesKey()).Err(); err != nil {
		return fmt.Errorf("delete pools of tasks: %w", err)
	}
	return nil
}

// withPools returns the queues, each with its pools in a shard.
func (s Queues) withPools(ctx context.Context, queues []string) (map[string][][]string, error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	pipe := s.rdb.Pipeline()
	pools := make([]*redis.StringSliceCmd, n)
	for shard := range n {
		pools[shard] = pipe.SMembers(ctx, s.poolsKey(shard))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	out := map[string][][]string{}
	for _, q := range queues {
		out[q] = make([][]string, n)
		for shard := range n {
			out[q][shard] = []string{q}
			for _, p := range pools[shard].Val() {
				if BaseQueue(p) == q {
					out[q][shard] = append(out[q][shard], p)
				}
			}
		}
	}
	return out, nil
}
