package main

import (
	"context"
	"time"
)

// redisRoundTrip is how long one command takes when nothing else runs.
func redisRoundTrip(ctx context.Context, l *lab) (float64, error) {
	const n = 2000
	rdb := l.rdb
	begin := time.Now()
	for range n {
		if err := rdb.Ping(ctx).Err(); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(begin).Microseconds()) / n, nil
}

// redisScripts is how many small scripts a second go through pipelines of 100.
func redisScripts(ctx context.Context, l *lab) (float64, error) {
	const script, batches, size = "return redis.call('INCR', KEYS[1])", 200, 100
	rdb := l.rdb
	sha, err := rdb.ScriptLoad(ctx, script).Result()
	if err != nil {
		return 0, err
	}

	begin := time.Now()
	for range batches {
		pipe := rdb.Pipeline()
		for range size {
			pipe.EvalSha(ctx, sha, []string{"bench:counter"})
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return 0, err
		}
	}
	return batches * size / time.Since(begin).Seconds(), nil
}
