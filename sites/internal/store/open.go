package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Open records that a job will have records to write. It is idempotent.
func Open(ctx context.Context, rdb redis.UniversalClient, run string) error {
	now, err := rdb.Time(ctx).Result()
	if err == nil {
		_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.SAdd(ctx, OpenJobsKey, run)
			p.ZAddNX(ctx, ProgressKey, redis.Z{Score: float64(now.UnixMilli()), Member: run})
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("store job %s: %w", run, err)
	}
	return nil
}

// Close records that a job will have no more records to write.
func Close(ctx context.Context, rdb redis.UniversalClient, run string) error {
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SRem(ctx, OpenJobsKey, run)
		p.ZRem(ctx, ProgressKey, run)
		return nil
	})
	if err != nil {
		return fmt.Errorf("close job %s: %w", run, err)
	}
	return nil
}

// NoteProgress stores the current time as the time of an open job's last settled page.
func NoteProgress(ctx context.Context, rdb redis.UniversalClient, run string) error {
	now, err := rdb.Time(ctx).Result()
	if err == nil {
		err = rdb.ZAddXX(ctx, ProgressKey, redis.Z{Score: float64(now.UnixMilli()), Member: run}).Err()
	}
	if err != nil {
		return fmt.Errorf("store the progress of job %s: %w", run, err)
	}
	return nil
}

// Idle is an open job without a recently settled page.
type Idle struct {
	Run string
	For time.Duration
}

// IdleJobs returns the open jobs without a settled page for at least d, longest first.
func IdleJobs(ctx context.Context, rdb redis.UniversalClient, d time.Duration) ([]Idle, error) {
	now, err := rdb.Time(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("read the progress of jobs: %w", err)
	}
	found, err := rdb.ZRangeByScoreWithScores(ctx, ProgressKey, &redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(now.Add(-d).UnixMilli(), 10), Count: 100}).Result()
	if err != nil {
		return nil, fmt.Errorf("read the progress of jobs: %w", err)
	}
	jobs := make([]Idle, len(found))
	for i, z := range found {
		jobs[i].Run, _ = z.Member.(string)
		jobs[i].For = now.Sub(time.UnixMilli(int64(z.Score)))
	}
	return jobs, nil
}
