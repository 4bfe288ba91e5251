package crawl

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"muster/sites/definition"
	"muster/sites/internal/store"
	"muster/tasks/workqueue"
)

// maxDeep limits the links of a page beyond limits.max_depth that are counted.
const maxDeep = 100

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
	if deepest := c.def.Limits.MaxDepth; deepest > 0 {
		to = slices.DeleteFunc(to, func(to visit) bool {
			if to.Kind == definition.KindFile {
				return false
			}
			if to.Depth > deepest && len(y.Deep) < maxDeep {
				y.Deep = append(y.Deep, c.itemID(to))
			}
			return to.Depth > deepest
		})
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
