package store

import (
	"cmp"
	"context"
	"encoding/json"
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

// Rates returns the counts that q asks for, summed over the shards, by time, queue and task. There is none for a minute
// or hour in which nothing was counted. Counts are kept by minute for a day, and by hour for 30 days.
func (s Counts) Rates(ctx context.Context, q tasktype.RateFilter) ([]tasktype.RatePoint, error) {
	key, step, span, kept := s.minutesKey, time.Minute, time.Hour, 24*time.Hour
	if q.Step == time.Hour {
		key, step, span, kept = s.hoursKey, time.Hour, 24*time.Hour, 30*24*time.Hour
	}
	if oldest := q.Until.Add(-kept); q.Since.Before(oldest) {
		q.Since = oldest
	}
	rates, first := sums[tasktype.RatePoint]{}, q.Since.Truncate(step)
	err := s.read(ctx, &q, key, span, 4, func(start time.Time, slot, n int64, p []string) {
		at := start.Add(time.Duration(slot) * step)
		if at.Before(first) || at.After(q.Until) {
			return
		}
		r := rates.of(at, p)
		r.Time, r.Queue, r.Task = at, p[2], p[3]
		switch p[1] {
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
	})
	return rates.sorted(), err
}

// Durations returns how long handlers ran, by hour, queue and task; an empty queue or task is any.
func (s Counts) Durations(ctx context.Context, queue, task string, since, until time.Time) ([]tasktype.DurationPoint, error) {
	if oldest := until.Add(-24 * time.Hour); since.Before(oldest) {
		since = oldest
	}
	times := sums[tasktype.DurationPoint]{}
	err := s.read(ctx, &tasktype.RateFilter{Queue: queue, Task: task, Since: since, Until: until}, s.timesKey, time.Hour, 3, func(hour time.Time, bucket, n int64, p []string) {
		if bucket >= 0 && bucket < tasktype.DurationBuckets {
			d := times.of(hour, p)
			d.Time, d.Queue, d.Task = hour, p[1], p[2]
			d.Durations[bucket] += n
		}
	})
	return times.sorted(), err
}

// read calls add with the counts of a queue and a task in hashes of all shards, each of a span. A field is a number, and others of so many parts,
// of which the last two are queue and task.
func (s Counts) read(ctx context.Context, q *tasktype.RateFilter, key func(shard int, n int64) string, span time.Duration, parts int, add func(start time.Time, slot, n int64, p []string)) error {
	width := int64(span / time.Second)
	first, last := q.Since.Unix()/width, q.Until.Unix()/width
	hashes, err := onShards(ctx, s.db, "read counts", func(pipe redis.Pipeliner, shard int) (list []*redis.MapStringStringCmd) {
		for n := first; n <= last; n++ {
			list = append(list, pipe.HGetAll(ctx, key(shard, n)))
		}
		return list
	})
	for _, list := range hashes {
		for i, hash := range list {
			for field, value := range hash.Val() {
				p := strings.SplitN(field, " ", parts)
				slot, err := strconv.ParseInt(p[0], 10, 64)
				n, err2 := strconv.ParseInt(value, 10, 64)
				if err == nil && err2 == nil && len(p) == parts && (q.Queue == "" || q.Queue == p[parts-2]) && (q.Task == "" || q.Task == p[parts-1]) {
					add(time.Unix((first+int64(i))*width, 0), slot, n, p)
				}
			}
		}
	}
	return err
}

// sumID is the time, in unix s, and the queue and task of a sum.
type sumID struct {
	at          int64
	queue, task string
}

// sums has sums by time, queue and task.
type sums[P any] map[sumID]*P

// of returns the sum for a time and a field whose last parts are queue and task.
func (s sums[P]) of(at time.Time, p []string) *P {
	id := sumID{at.Unix(), p[len(p)-2], p[len(p)-1]}
	if s[id] == nil {
		s[id] = new(P)
	}
	return s[id]
}

func (s sums[P]) sorted() []P {
	out := make([]P, 0, len(s))
	for _, id := range slices.SortedFunc(maps.Keys(s), func(a, b sumID) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.queue, b.queue), cmp.Compare(a.task, b.task))
	}) {
		out = append(out, *s[id])
	}
	return out
}

// Failures returns up to limit of the latest failed nodes of a task, newest first. It omits nodes of expired
// workflows.
func (s Counts) Failures(ctx context.Context, task string, limit int) ([]tasktype.FailedNode, error) {
	lists, err := onShards(ctx, s.db, "list failed nodes", func(pipe redis.Pipeliner, shard int) *redis.StringSliceCmd {
		return pipe.LRange(ctx, s.failsKey(shard, task), 0, int64(limit)-1)
	})
	if err != nil {
		return nil, err
	}
	type failed struct {
		Entry
		at int64
	}
	var all []failed
	for shard, list := range lists {
		for _, text := range list.Val() {
			ms, member, _ := strings.Cut(text, " ")
			if at, err := strconv.ParseInt(ms, 10, 64); err == nil {
				all = append(all, failed{entry(shard, member), at})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b failed) int { return cmp.Compare(b.at, a.at) })
	all = all[:min(limit, len(all))]
	records, err := onEach(ctx, s.db, "read failed nodes", all, func(pipe redis.Pipeliner, f failed) *redis.StringCmd { return pipe.HGet(ctx, s.Key(f.Flow), f.Node) })
	if err != nil {
		return nil, err
	}
	out := make([]tasktype.FailedNode, 0, len(all))
	for i, f := range all {
		n, rec := tasktype.FailedNode{Workflow: f.Flow.ID(), Node: f.Node, Ended: time.UnixMilli(f.at)}, ParseRecord([]byte(records[i].Val()), 0)
		if rec.State == StateFailed && json.Unmarshal(rec.Body, &n.Failure) == nil {
			out = append(out, n)
		}
	}
	return out, nil
}
