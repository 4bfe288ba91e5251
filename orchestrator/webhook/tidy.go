package webhook

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	tidyBatch = 500
	// fresh is the minimum retention of an ended delivery: a relay that repeats a round must find it.
	fresh = time.Minute
	// removedFor is how long the log of a removed endpoint is cleaned up, because some process may still add to it.
	removedFor = 10 * time.Minute
)

// tidy periodically removes deliveries that are too many or too old, and disables endpoints with too many waiting deliveries.
func (r *relay) tidy(ctx context.Context) error {
	if time.Since(r.tidied) < tidyEvery {
		return nil
	}
	r.tidied = time.Now()
	if _, err := r.oldest(ctx); err != nil { // removes entries that are no longer open
		return err
	}
	known, err := r.endpoints.records(ctx)
	if err != nil {
		return err
	}
	now, err := r.now(ctx)
	if err != nil {
		return err
	}
	lanes, err := r.queue.LaneStats(ctx)
	if err != nil {
		return err
	}
	for id, rec := range known {
		if n := lanes[id].Queued; n > int64(r.cfg.MaxPending) && !rec.Disabled {
			if err := r.endpoints.disable(ctx, id, fmt.Sprintf("%d waiting deliveries", n)); err != nil {
				return err
			}
		}
		if err := r.trim(ctx, id, now, r.cfg.KeepCount); err != nil {
			return err
		}
	}
	removed, err := r.rdb.ZRangeWithScores(ctx, removedKey, 0, 99).Result()
	if err != nil {
		return fmt.Errorf("read the removed webhooks: %w", err)
	}
	for _, z := range removed {
		id, _ := z.Member.(string)
		if _, back := known[id]; !back {
			if err := r.trim(ctx, id, now, 0); err != nil {
				return err
			}
			n, err := r.rdb.ZCard(ctx, logKey(id)).Result()
			if err != nil {
				return err
			}
			if n > 0 || now.Sub(time.UnixMilli(int64(z.Score))) < removedFor {
				continue
			}
			if err := r.rdb.Del(ctx, numbersKey(id)).Err(); err != nil {
				return err
			}
		}
		if err := r.rdb.ZRem(ctx, removedKey, id).Err(); err != nil {
			return err
		}
	}
	return nil
}

// trim removes the oldest ended deliveries of an endpoint that exceed keep or are older than Config.Keep.
func (r *relay) trim(ctx context.Context, endpoint string, now time.Time, keep int) error {
	total, err := r.rdb.ZCard(ctx, logKey(endpoint)).Result()
	if err != nil || total == 0 {
		return err
	}
	latest := now.Add(-fresh).UnixMilli()
	tooOld := now.Add(-r.cfg.Keep).UnixMilli()
	for offset, seen := int64(0), int64(0); ; {
		page, err := r.rdb.ZRangeWithScores(ctx, logKey(endpoint), offset, offset+tidyBatch-1).Result()
		if err != nil || len(page) == 0 {
			return err
		}
		var ids []string
		for _, z := range page {
			if int64(z.Score) > latest || total-seen <= int64(keep) && int64(z.Score) > tooOld {
				break
			}
			seen++
			message, _ := z.Member.(string)
			ids = append(ids, itemID(message, endpoint))
		}
		gone, err := r.queue.Forget(ctx, ids...)
		if err != nil {
			return err
		}
		if len(gone) > 0 {
			messages := make([]any, len(gone))
			for i, id := range gone {
				messages[i] = strings.TrimSuffix(id, "/"+endpoint)
			}
			if _, err := r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
				p.HDel(ctx, attemptsKey, gone...)
				p.ZRem(ctx, logKey(endpoint), messages...)
				return nil
			}); err != nil {
				return fmt.Errorf("trim the log of webhook %s: %w", endpoint, err)
			}
		}
		if len(ids) < len(page) {
			return nil
		}
		offset += int64(len(page) - len(gone))
	}
}

// oldest returns the time since which the oldest waiting delivery waits, or zero. It removes entries of open deliveries that a
// crashed process left behind.
func (c *core) oldest(ctx context.Context) (time.Time, error) {
	for range 20 {
		page, err := c.rdb.ZRangeWithScores(ctx, openKey, 0, 49).Result()
		if err != nil || len(page) == 0 {
			return time.Time{}, err
		}
		ids := make([]string, len(page))
		for i, z := range page {
			ids[i], _ = z.Member.(string)
		}
		infos, err := c.queue.Get(ctx, ids...)
		if err != nil {
			return time.Time{}, err
		}
		open := map[string]bool{}
		for _, info := range infos {
			open[info.ID] = !info.State.Terminal()
		}
		var ended []any
		for i, z := range page {
			at := time.UnixMilli(int64(z.Score))
			if open[ids[i]] {
				return at, nil
			}
			if time.Since(at) > fresh { // a newer one may not be in the queue yet
				ended = append(ended, ids[i])
			}
		}
		if len(ended) == 0 {
			break
		}
		if err := c.rdb.ZRem(ctx, openKey, ended...).Err(); err != nil {
			return time.Time{}, err
		}
	}
	return time.Time{}, nil
}
