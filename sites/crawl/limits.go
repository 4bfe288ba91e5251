package crawl

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"muster/sites/internal/store"
	"muster/tasks/workqueue"
)

// follow returns the linked pages as items. The next listing page is first, so that it is fetched concurrently with the items of
// this one.
func (c *crawler) follow(ctx context.Context, v visit, y *yield) ([]workqueue.Item, error) {
	to := y.links
	if y.next != nil && (!y.counted || y.print != "") {
		first, err := c.firstWith(ctx, v, y)
		switch {
		case err != nil:
			return nil, err
		case first == "":
			to = append([]visit{*y.next}, to...)
		case !y.counted: // the numbering continues
			y.Repeats, y.Unfollowed = first, c.itemID(*y.next)
		}
	}
	to, err := c.limitDepth(ctx, to)
	if err != nil {
		return nil, err
	}
	return c.items(to)
}

// firstWith returns the address of an earlier listing page with the same links and records, or "".
func (c *crawler) firstWith(ctx context.Context, v visit, y *yield) (string, error) {
	if y.print == "" {
		return "", nil
	}
	key := store.PrintsKey(c.id)
	self := c.itemID(v) + " " + v.URL
	var first *redis.StringCmd
	_, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSetNX(ctx, key, y.print, self)
		first = p.HGet(ctx, key, y.print)
		p.Expire(ctx, key, store.Keep)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("compare with earlier listing pages: %w", err)
	}
	if first.Val() == self {
		return "", nil
	}
	_, address, _ := strings.Cut(first.Val(), " ")
	return address, nil
}

// printOf returns the hash of a set of addresses and keys, or "" for an empty set.
func printOf(parts []string) string {
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	h := sha256.New()
	for _, p := range slices.Compact(parts) {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// maxDeep limits the pages beyond limits.max_depth that a process stores for their count.
const maxDeep = 10_000

// limitDepth removes pages beyond limits.max_depth and stores them for the report.
func (c *crawler) limitDepth(ctx context.Context, to []visit) ([]visit, error) {
	deepest := c.def.Limits.MaxDepth
	if deepest == 0 {
		return to, nil
	}
	var near []visit
	var deep []any
	for _, v := range to {
		if v.Depth > deepest {
			deep = append(deep, c.itemID(v))
		} else {
			near = append(near, v)
		}
	}
	if len(deep) == 0 || c.deep.Add(int64(len(deep))) > maxDeep {
		return near, nil
	}
	_, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SAdd(ctx, store.DeepKey(c.id), deep...)
		p.Expire(ctx, store.DeepKey(c.id), store.Keep)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store pages beyond limits.max_depth: %w", err)
	}
	return near, nil
}

// limitRecords removes records beyond the limits of the job.
func (c *crawler) limitRecords(ctx context.Context, lease workqueue.Leased, y *yield, records [][]byte) ([][]byte, error) {
	n, err := c.admission.budget.grant(ctx, lease.ID, len(records), y.Bytes)
	if err != nil {
		return nil, err
	}
	for _, typ := range y.types[min(n, len(y.types)):] {
		y.Records[typ]--
	}
	return records[:n], nil
}
