package store

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"

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

// withPools returns the queues, each with its pools in a shard.
func (s Queues) withPools(ctx context.Context, queues []string) (map[string][][]string, error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	pipe := s.rdb.Pipeline()
	pools := make([]*redis.StringSliceCmd, n)
	for shard := range n {
		pools[shard] = pipe.SMembers(ctx, poolsKey(shard))
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
