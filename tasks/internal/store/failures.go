package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/tasktype"
)

// Failed is a node that has failed, with its record.
type Failed struct {
	Flow   Flow // with the id only
	Node   string
	At     time.Time
	Record []byte
}

// Failures returns up to limit of the latest failed nodes of a task, newest first. It omits nodes of expired
// workflows.
func (s Counts) Failures(ctx context.Context, task string, limit int) ([]Failed, error) {
	shards, err := s.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	pipe := s.rdb.Pipeline()
	lists := make([]*redis.StringSliceCmd, shards)
	for shard := range lists {
		lists[shard] = pipe.LRange(ctx, s.failsKey(shard, task), 0, int64(limit)-1)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("list failed nodes: %w", err)
	}
	var all []Failed
	for shard, list := range lists {
		for _, text := range list.Val() {
			ms, member, _ := strings.Cut(text, " ")
			if at, err := strconv.ParseInt(ms, 10, 64); err == nil {
				e := entry(shard, member)
				all = append(all, Failed{Flow: e.Flow, Node: e.Node, At: time.UnixMilli(at)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Failed) int { return cmp.Compare(b.At.UnixMilli(), a.At.UnixMilli()) })
	all = all[:min(limit, len(all))]
	pipe = s.rdb.Pipeline()
	records := make([]*redis.StringCmd, len(all))
	for i := range all {
		records[i] = pipe.HGet(ctx, s.Key(all[i].Flow), all[i].Node)
	}
	if _, err := pipe.Exec(ctx); err != nil && len(all) > 0 && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read failed nodes: %w", err)
	}
	for i := range all {
		all[i].Record, _ = records[i].Bytes() // without one it is left out
	}
	return slices.DeleteFunc(all, func(f Failed) bool { return len(f.Record) == 0 || f.Record[0] != StateFailed }), nil
}

// Durations returns how long handlers ran, by hour, queue and task; an empty queue or task is any.
func (s Counts) Durations(ctx context.Context, queue, task string, since, until time.Time) ([]tasktype.DurationPoint, error) {
	shards, err := s.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	if oldest := until.Add(-24 * time.Hour); since.Before(oldest) {
		since = oldest
	}
	first, hours := since.Unix()/3600, until.Unix()/3600-since.Unix()/3600+1
	pipe := s.rdb.Pipeline()
	var cmds []*redis.MapStringStringCmd // by hour and shard
	for n := range hours {
		for shard := range shards {
			cmds = append(cmds, pipe.HGetAll(ctx, s.timesKey(shard, first+n)))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read durations: %w", err)
	}
	sums := map[rateID]*tasktype.DurationPoint{}
	for i, cmd := range cmds {
		hour := first + int64(i/shards)
		for field, value := range cmd.Val() {
			parts := strings.SplitN(field, " ", 3)
			if len(parts) != 3 || queue != "" && queue != parts[1] || task != "" && task != parts[2] {
				continue
			}
			bucket, err := strconv.Atoi(parts[0])
			n, err2 := strconv.ParseInt(value, 10, 64)
			if err != nil || err2 != nil || bucket < 0 || bucket >= tasktype.DurationBuckets {
				continue
			}
			id := rateID{hour, parts[1], parts[2]}
			if sums[id] == nil {
				sums[id] = &tasktype.DurationPoint{Time: time.Unix(hour*3600, 0), Queue: id.queue, Task: id.task}
			}
			sums[id].Durations[bucket] += n
		}
	}
	out := make([]tasktype.DurationPoint, 0, len(sums))
	for _, p := range sums {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b tasktype.DurationPoint) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Task, b.Task))
	})
	return out, nil
}
