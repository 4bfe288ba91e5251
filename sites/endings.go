package sites

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"muster/sites/internal/store"
)

// endings counts why sessions of a job have ended, in this process until push.
// The zero value is ready for use.
type endings struct {
	mu sync.Mutex // guards by
	by map[string]int64
}

func (e *endings) note(why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.by == nil {
		e.by = map[string]int64{}
	}
	e.by[why]++
}

// take returns what was counted since the last call.
func (e *endings) take() map[string]int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	by := e.by
	e.by = nil
	return by
}

// pushEndings adds what this process has counted to what all have.
func (j *job) pushEndings(ctx context.Context) error {
	by := j.endings.take()
	if len(by) == 0 {
		return nil
	}
	pipe := j.rdb.Pipeline()
	for why, n := range by {
		pipe.HIncrBy(ctx, store.SessionEndsKey(j.id), why, n)
	}
	pipe.Expire(ctx, store.SessionEndsKey(j.id), store.Keep)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("count the sessions that have ended: %w", err)
	}
	return nil
}

// allEndings is why the sessions of the job have ended, and how many of each;
// nil when it has none.
func (j *job) allEndings(ctx context.Context) (map[string]int, error) {
	if j.def.Session == nil {
		return nil, nil
	}
	if err := j.pushEndings(ctx); err != nil {
		return nil, err
	}
	all, err := j.rdb.HGetAll(ctx, store.SessionEndsKey(j.id)).Result()
	if err != nil {
		return nil, fmt.Errorf("count the sessions of job %s: %w", j.id, err)
	}
	by := map[string]int{}
	for why, text := range all {
		by[why], _ = strconv.Atoi(text) // nobody else writes it
	}
	return by, nil
}

// endingsText is a line for people, the commonest reason first.
func endingsText(by map[string]int) string {
	if len(by) == 0 {
		return "none had to end"
	}
	reasons := slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(by[b]-by[a], strings.Compare(a, b)) })
	for i, why := range reasons {
		reasons[i] = fmt.Sprintf("%s %d", why, by[why])
	}
	return "ended: " + strings.Join(reasons, ", ")
}
