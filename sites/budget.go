package sites

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"muster/sites/definition"
	"muster/sites/internal/store"
)

// budget counts the records and bytes of a job against limits.max_records and
// limits.max_total_bytes, for all processes. Without these limits it costs
// nothing.
type budget struct {
	rdb     redis.UniversalClient
	job     string
	records int64 // 0: no limit, as with bytes
	bytes   int64
}

func newBudget(rdb redis.UniversalClient, job string, l definition.Limits) *budget {
	return &budget{rdb: rdb, job: job, records: int64(l.MaxRecords), bytes: int64(l.MaxTotalBytes)}
}

func (b *budget) bounded() bool { return b.records > 0 || b.bytes > 0 }

// grant counts a fetched page and returns how many of its records may be kept.
// A second call with the same page counts nothing and returns the same.
func (b *budget) grant(ctx context.Context, page string, records, bytes int) (int, error) {
	if !b.bounded() {
		return records, nil
	}
	n, err := store.Grant(ctx, b.rdb, store.SpentKey(b.job), store.Page{ID: page, Records: records, Bytes: bytes}, b.records)
	if err != nil {
		return 0, fmt.Errorf("count records and bytes of job %s: %w", b.job, err)
	}
	return n, nil
}

// reached lists the limits that are reached.
func (b *budget) reached(ctx context.Context) ([]limitReached, error) {
	if !b.bounded() {
		return nil, nil
	}
	got, err := b.rdb.HMGet(ctx, store.SpentKey(b.job), "records", "bytes").Result()
	if err != nil {
		return nil, fmt.Errorf("look at the limits of job %s: %w", b.job, err)
	}
	count := func(v any) int64 {
		text, _ := v.(string)
		n, _ := strconv.ParseInt(text, 10, 64) // 0 when there is none
		return n
	}
	var reached []limitReached
	if n := count(got[0]); b.records > 0 && n >= b.records {
		reached = append(reached, limitReached{fmt.Sprintf("limits.max_records (%d) was reached", b.records), true})
	}
	if n := count(got[1]); b.bytes > 0 && n >= b.bytes {
		reached = append(reached, limitReached{fmt.Sprintf("limits.max_total_bytes (%d) was reached, with %d bytes", b.bytes, n), false})
	}
	return reached, nil
}
