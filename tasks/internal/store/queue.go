package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/tasktype"
)

// Names returns the queues that work was sent to, or that a worker serves.
func (s Queues) Names(ctx context.Context) ([]string, error) {
	known, err := s.rdb.SMembers(ctx, queuesKey).Result()
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	sets, err := onShards(ctx, s.db, "list queues", func(pipe redis.Pipeliner, shard int) *redis.StringSliceCmd {
		return pipe.ZRange(ctx, s.shardQueuesKey(shard), 0, -1)
	})
	names := map[string]bool{}
	for _, name := range known {
		if q := s.OwnQueue(name); q != "" {
			names[q] = true
		}
	}
	for _, set := range sets {
		for _, q := range set.Val() {
			names[q] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), err
}

// Forget deletes the data of the queues that have nothing ready, are not paused and were not used for a time. Asynq's list keeps
// queues with tasks of its own.
func (s Queues) Forget(ctx context.Context, unused time.Duration) error {
	shards, err := s.callEach(ctx, "forget", unused.Milliseconds())
	if err != nil {
		return fmt.Errorf("forget unused queues: %w", err)
	}
	for _, names := range shards {
		for _, name := range names {
			q := text(name)
			var keys []string
			for _, part := range []string{"paused", "groups", "pending", "active", "scheduled", "retry", "archived"} {
				keys = append(keys, s.asynqKey(q, part))
			}
			n, err := s.rdb.Exists(ctx, keys...).Result()
			if err == nil && n == 0 {
				err = s.rdb.SRem(ctx, queuesKey, s.AsynqQueue(q)).Err()
			}
			if err != nil {
				return fmt.Errorf("forget queue %s: %w", q, err)
			}
		}
	}
	return nil
}

// Paused reports whether a queue is paused.
func (s Queues) Paused(ctx context.Context, queue string) (bool, error) {
	n, err := s.rdb.Exists(ctx, s.asynqKey(queue, "paused")).Result()
	if err != nil {
		return false, fmt.Errorf("read queue %s: %w", queue, err)
	}
	return n == 1, nil
}

// checkName returns an error if a queue has no name.
func checkName(queue string) error {
	if strings.TrimSpace(queue) == "" {
		return errors.New("a queue needs a name")
	}
	return nil
}

// Pause stops workers from taking from a queue, and asynq from taking its own tasks. Unlike in asynq, pausing a paused queue
// succeeds.
func (s Queues) Pause(ctx context.Context, queue string) error {
	if err := checkName(queue); err != nil {
		return err
	}
	if err := s.rdb.SetNX(ctx, s.asynqKey(queue, "paused"), time.Now().Unix(), 0).Err(); err != nil {
		return fmt.Errorf("pause queue %s: %w", queue, err)
	}
	now, err := s.Clock(ctx, 0)
	if err != nil {
		return err
	}
	_, err = onShards(ctx, s.db, "pause queue "+queue, func(pipe redis.Pipeliner, shard int) *redis.BoolCmd {
		return pipe.HSetNX(ctx, s.queueKey(shard, queue), "paused", now.UnixMilli())
	})
	return err
}

// Resume undoes Pause.
func (s Queues) Resume(ctx context.Context, queue string) error {
	if err := checkName(queue); err != nil {
		return err
	}
	if err := s.rdb.Del(ctx, s.asynqKey(queue, "paused")).Err(); err != nil {
		return fmt.Errorf("resume queue %s: %w", queue, err)
	}
	_, err := onShards(ctx, s.db, "resume queue "+queue, func(pipe redis.Pipeliner, shard int) *redis.IntCmd {
		return pipe.HDel(ctx, s.queueKey(shard, queue), "paused")
	})
	return err
}

// Depth is how many nodes of a queue are ready, and since when none of them was taken or the first of them has waited; zero if none are
// ready.
type Depth struct {
	Ready int64
	Since time.Time
}

// Depths returns the depths of queues.
func (s Queues) Depths(ctx context.Context, queues []string) (map[string]Depth, error) {
	type read struct {
		queue  string
		counts *redis.SliceCmd
		ring   *redis.IntCmd
		head   *redis.StringCmd
	}
	shards, err := onShards(ctx, s.db, "read depths of queues", func(pipe redis.Pipeliner, shard int) (list []read) {
		for _, q := range queues {
			list = append(list, read{q, pipe.HMGet(ctx, s.queueKey(shard, q), "ready:n", "ready:h", "ready:k", "taken"), pipe.LLen(ctx, s.ringKey(shard, q)), pipe.LIndex(ctx, s.ringKey(shard, q), 0)})
		}
		return list
	})
	out := map[string]Depth{}
	for _, list := range shards {
		for _, c := range list {
			d := out[c.queue]
			v := c.counts.Val()
			if len(v) < 4 {
				continue
			}
			ready := max(0, toInt(v[0])) + max(0, toInt(v[1])) + max(0, c.ring.Val()-max(0, toInt(v[2])))
			d.Ready += ready
			at := time.UnixMilli(toInt(v[3]))
			if IsSingle(c.head.Val()) {
				at = SentAt(c.head.Val())
			}
			if ready > 0 && at.Unix() > 0 && (d.Since.IsZero() || at.Before(d.Since)) {
				d.Since = at
			}
			out[c.queue] = d
		}
	}
	return out, err
}

// Foreign has the numbers of asynq's own tasks in a queue. asynq's inspector would also measure the memory of the queue each time,
// with some 30 commands.
type Foreign struct {
	Pending, Active, Archived int64
	tasktype.DueCount                   // of the tasks that wait for their time
	Since                     time.Time // time since which the oldest pending task is pending; zero if there is none
	Paused                    bool
}

// Foreign returns the numbers of asynq's own tasks in queues.
func (s Queues) Foreign(ctx context.Context, queues []string) (map[string]Foreign, error) {
	type read struct {
		paused, archived, pending, active, scheduled, retry *redis.IntCmd
		oldest                                              *redis.StringCmd
	}
	reads, err := onEach(ctx, s.db, "read queues", queues, func(pipe redis.Pipeliner, q string) read {
		return read{pipe.Exists(ctx, s.asynqKey(q, "paused")), pipe.ZCard(ctx, s.asynqKey(q, "archived")), pipe.LLen(ctx, s.asynqKey(q, "pending")), pipe.LLen(ctx, s.asynqKey(q, "active")),
			pipe.ZCard(ctx, s.asynqKey(q, "scheduled")), pipe.ZCard(ctx, s.asynqKey(q, "retry")), pipe.LIndex(ctx, s.asynqKey(q, "pending"), -1)}
	})
	if err != nil {
		return nil, err
	}
	out := map[string]Foreign{}
	for i, q := range queues {
		r := reads[i]
		f := Foreign{Paused: r.paused.Val() == 1, Archived: r.archived.Val(), Pending: r.pending.Val(), Active: r.active.Val(),
			DueCount: tasktype.DueCount{Queue: q, Scheduled: r.scheduled.Val(), Retry: r.retry.Val()}}
		if id := r.oldest.Val(); id != "" {
			since, err := s.rdb.HGet(ctx, s.asynqKey(q, "t:"+id), "pending_since").Int64()
			if err != nil && !errors.Is(err, redis.Nil) { // it has begun meanwhile
				return nil, fmt.Errorf("read queue %s: %w", q, err)
			}
			if since > 0 {
				f.Since = time.Unix(0, since)
			}
		}
		out[q] = f
	}
	return out, nil
}

// Ready returns up to limit ready elements of a queue, high priority first.
func (s Queues) Ready(ctx context.Context, queue string, limit int) ([]Element, error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	var out []Element
	for shard := range n {
		high, err := s.rdb.LRange(ctx, s.highKey(shard, queue), 0, int64(limit-1)).Result()
		if err != nil {
			return nil, fmt.Errorf("list ready nodes: %w", err)
		}
		entries, err := s.rdb.LRange(ctx, s.ringKey(shard, queue), 0, int64(limit-1)).Result()
		if err != nil {
			return nil, fmt.Errorf("list ready nodes: %w", err)
		}
		for i, entry := range append(high, entries...) {
			texts, key, ok, priority := []string{entry}, entry, true, 1
			if i >= len(high) {
				key, ok = strings.CutPrefix(entry, "=")
				priority = 0
			}
			switch {
			case ok:
				if texts, err = s.rdb.LRange(ctx, s.readyKey(shard, Lane(queue, priority), key), 0, int64(limit-1)).Result(); err != nil {
					return nil, fmt.Errorf("list ready nodes: %w", err)
				}
			case entry == "+":
				continue
			case IsSingle(entry):
				ref, deaths, _ := strings.Cut(entry, "@")
				texts = []string{ref + "/0@" + deaths}
			}
			for _, t := range texts {
				if out = append(out, ParseElement(shard, t)); len(out) == limit {
					return out, nil
				}
			}
		}
	}
	return out, nil
}

// Look registers queues with asynq, which forgets a queue that an operator deletes, and pauses and resumes them as asynq does.
func (s Queues) Look(ctx context.Context, queues []string) error {
	paused, err := onEach(ctx, s.db, "look for paused queues", queues, func(pipe redis.Pipeliner, q string) *redis.IntCmd {
		pipe.SAdd(ctx, queuesKey, s.AsynqQueue(q))
		return pipe.Exists(ctx, s.asynqKey(q, "paused"))
	})
	if err != nil || len(queues) == 0 {
		return err
	}
	var args []any
	for i, q := range queues {
		args = append(args, q, paused[i].Val())
	}
	if _, err := s.callEach(ctx, "look", args...); err != nil {
		return fmt.Errorf("pause queues as asynq does: %w", err)
	}
	return nil
}

// Lane returns the lane in which ready nodes of a queue and priority wait.
func Lane(queue string, priority int) string {
	if priority > 0 {
		return "h:" + queue
	}
	return "n:" + queue
}
