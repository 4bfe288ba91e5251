package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/tasktype"
)

// Counted is a task whose attempts are counted, of a queue.
type Counted struct{ Queue, Task string }

// Count counts attempts of a task.
type Count struct {
	ended map[string]int64 // by outcome, as of a [Change]
	ran   time.Duration    // how long the handlers ran, together
	times tasktype.Durations
}

// Add counts an attempt that ended with an outcome, as of a [Change]. If ran is set, its handler took a time.
func (c *Count) Add(outcome string, took time.Duration, ran bool) {
	if c.ended == nil {
		c.ended = map[string]int64{}
	}
	c.ended[outcome]++
	if ran {
		c.ran += took
		c.times[tasktype.DurationBucket(took)]++
	}
}

// Add stores counts of attempts that ended now.
func (s Counts) Add(ctx context.Context, counts map[Counted]*Count) error {
	var args []any
	byName := func(a, b Counted) int { return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Task, b.Task)) }
	for _, id := range slices.SortedFunc(maps.Keys(counts), byName) {
		c := counts[id]
		for _, outcome := range slices.Sorted(maps.Keys(c.ended)) {
			args = append(args, id.Queue, id.Task, outcome, c.ended[outcome])
		}
		if ms := c.ran.Milliseconds(); ms > 0 {
			args = append(args, id.Queue, id.Task, "ms", ms)
		}
		for bucket, n := range c.times {
			if n > 0 {
				args = append(args, id.Queue, id.Task, bucket, n)
			}
		}
	}
	for part := range slices.Chunk(args, 4000) {
		if _, err := s.call(ctx, "tally", 0, part...); err != nil {
			return fmt.Errorf("store counts: %w", err)
		}
	}
	return nil
}

// RateQuery selects the counts to read. Counts are kept by minute for a day, and by hour for 30 days.
type RateQuery struct {
	Queue, Task  string    // empty for all
	Since, Until time.Time // the minutes or hours from Since to Until, inclusive
	Hourly       bool      // by hour, not by minute
}

// Rates returns the counts that q asks for, summed over the shards, by time, queue and task. There is none for a minute
// or hour in which nothing was counted.
func (s Counts) Rates(ctx context.Context, q RateQuery) ([]tasktype.RatePoint, error) {
	shards, err := s.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	key, step, span, kept := s.minutesKey, time.Minute, time.Hour, 24*time.Hour
	if q.Hourly {
		key, step, span, kept = s.hoursKey, time.Hour, 24*time.Hour, 30*24*time.Hour
	}
	if oldest := q.Until.Add(-kept); q.Since.Before(oldest) {
		q.Since = oldest
	}
	sum := rateSum{q: q, step: step, first: q.Since.Truncate(step), rates: map[rateID]*tasktype.RatePoint{}}
	width := int64(span / time.Second)
	for n := q.Since.Unix() / width; n <= q.Until.Unix()/width; n++ {
		hashes, err := s.hashes(ctx, shards, func(shard int) string { return key(shard, n) })
		if err != nil {
			return nil, err
		}
		for _, fields := range hashes {
			sum.add(fields, time.Unix(n*width, 0))
		}
	}
	return sum.sorted(), nil
}

// hashes reads a hash of every shard.
func (s Counts) hashes(ctx context.Context, shards int, key func(shard int) string) ([]map[string]string, error) {
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.MapStringStringCmd, shards)
	for shard := range cmds {
		cmds[shard] = pipe.HGetAll(ctx, key(shard))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read counts: %w", err)
	}
	out := make([]map[string]string, shards)
	for shard, cmd := range cmds {
		out[shard] = cmd.Val()
	}
	return out, nil
}

type rateID struct {
	at          int64 // unix s
	queue, task string
}

// rateSum adds up hashes of counts.
type rateSum struct {
	q     RateQuery
	step  time.Duration
	first time.Time
	rates map[rateID]*tasktype.RatePoint
}

// add adds the counts of a hash. Its first slot begins at start, and each other one a step later.
func (r *rateSum) add(fields map[string]string, start time.Time) {
	for field, value := range fields {
		parts := strings.SplitN(field, " ", 4)
		if len(parts) != 4 {
			continue
		}
		slot, err := strconv.Atoi(parts[0])
		n, err2 := strconv.ParseInt(value, 10, 64)
		if err != nil || err2 != nil {
			continue
		}
		r.addOne(start.Add(time.Duration(slot)*r.step), parts[1], parts[2], parts[3], n)
	}
}

func (r *rateSum) addOne(at time.Time, what, queue, task string, n int64) {
	if at.Before(r.first) || at.After(r.q.Until) || r.q.Queue != "" && r.q.Queue != queue || r.q.Task != "" && r.q.Task != task {
		return
	}
	id := rateID{at.Unix(), queue, task}
	if r.rates[id] == nil {
		r.rates[id] = &tasktype.RatePoint{Time: at, Queue: queue, Task: task}
	}
	addCount(r.rates[id], what, n)
}

// addCount adds a count with the name of a hash field to r.
func addCount(r *tasktype.RatePoint, name string, n int64) {
	switch name {
	case ChangeSucceed:
		r.Succeeded += n
	case ChangeFail:
		r.Failed += n
	case ChangeRevoke:
		r.Revoked += n
	case ChangeAgain:
		r.Retried += n
	case "ms":
		r.Busy += time.Duration(n) * time.Millisecond
	}
}

func (r *rateSum) sorted() []tasktype.RatePoint {
	out := make([]tasktype.RatePoint, 0, len(r.rates))
	for _, v := range r.rates {
		out = append(out, *v)
	}
	slices.SortFunc(out, func(a, b tasktype.RatePoint) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Task, b.Task))
	})
	return out
}
