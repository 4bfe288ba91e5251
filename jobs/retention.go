package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// terminal are the states in which a job has ended.
var terminal = []Status{Completed, Failed, Cancelled}

// retention returns the time for which jobs are stored after they have ended in a state; 0 means forever.
func (c *Limits) retention(status Status) time.Duration {
	if d, ok := c.KeepFor[string(status)]; ok {
		return max(d, 0)
	}
	return max(c.Keep, 0)
}

// forget deletes jobs whose retention has expired. It continues with the next job after an error.
func (m *monitor) forget(ctx context.Context) error {
	now, err := m.now(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, status := range terminal {
		if keep := m.limits.Load().retention(status); keep > 0 {
			errs = append(errs, m.forgetBefore(ctx, endedKey(status), now.Add(-keep)))
		}
	}
	return errors.Join(errs...)
}

// forgetBefore deletes up to 1000 jobs of an index of ended jobs that ended before a time.
func (m *monitor) forgetBefore(ctx context.Context, index string, before time.Time) error {
	ids, err := m.rdb.ZRangeByScore(ctx, index, &redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(before.UnixMilli(), 10), Count: 1000}).Result()
	if err != nil {
		return fmt.Errorf("look for old jobs: %w", err)
	}
	var errs []error
	for _, id := range ids {
		r, err := m.read(ctx, id)
		if errors.Is(err, ErrNotFound) {
			err = m.rdb.ZRem(ctx, index, id).Err()
		} else if err == nil {
			err = m.remove(ctx, id, r)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("delete old job %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}
