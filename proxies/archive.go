package proxies

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// firstRecheck is the delay between the removal of a proxy and its first recheck.
const firstRecheck = 5 * time.Minute

// archivedDue returns up to n archived proxies that are due for a check and records the check. The delay since the
// removal doubles with each check.
func (s *store) archivedDue(ctx context.Context, now time.Time, n int) ([]Proxy, error) {
	taken, err := s.rdb.ZRangeWithScores(ctx, archiveKey(s.name), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read archived proxies: %w", err)
	}
	dayAgo := strconv.FormatInt(now.Add(-24*time.Hour).UnixMilli(), 10)
	if err := s.rdb.ZRemRangeByScore(ctx, lookedKey(s.name), "-inf", dayAgo).Err(); err != nil {
		return nil, fmt.Errorf("delete expired check times: %w", err)
	}
	looks, err := s.rdb.ZRangeWithScores(ctx, lookedKey(s.name), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read check times of archived proxies: %w", err)
	}
	looked := make(map[string]int64, len(looks))
	for _, z := range looks {
		looked[z.Member.(string)] = int64(z.Score)
	}
	var ids []string
	for _, z := range taken {
		id, out := z.Member.(string), int64(z.Score)
		last := max(looked[id], out)
		if age := now.UnixMilli() - out; age < 24*time.Hour.Milliseconds() && now.UnixMilli()-last >= max(firstRecheck.Milliseconds(), last-out) && len(ids) < n {
			ids = append(ids, id)
		}
	}
	var due []Proxy
	for chunk := range slices.Chunk(ids, 500) {
		records, err := s.rdb.HMGet(ctx, archivedKey(s.name), chunk...).Result()
		if err != nil {
			return nil, fmt.Errorf("read archived proxies: %w", err)
		}
		marks := make([]redis.Z, len(chunk))
		for i, id := range chunk {
			marks[i] = redis.Z{Score: float64(now.UnixMilli()), Member: id}
			var proxy Proxy
			if text, ok := records[i].(string); ok && json.Unmarshal([]byte(text), &proxy) == nil {
				due = append(due, proxy)
			}
		}
		if err := s.rdb.ZAdd(ctx, lookedKey(s.name), marks...).Err(); err != nil {
			return nil, fmt.Errorf("record a check: %w", err)
		}
	}
	return due, nil
}
