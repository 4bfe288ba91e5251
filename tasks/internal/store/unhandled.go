package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// UnhandledTask is a task with nodes that wait for a worker of their queue with a handler.
type UnhandledTask struct {
	Queue, Task string
	Nodes       int64
}

// key returns the name of a queue and a task in the keys of nodes without a handler.
func (u UnhandledTask) key() string { return u.Queue + " " + u.Task }

// Wait lets a node wait for a handler, for a time, and returns the rest of that time, which is not positive once it is over. The
// caller delays the node, with [AgainUnhandled]. anew: the node has not waited since it became ready.
func (s Unhandled) Wait(ctx context.Context, f Flow, node, queue, task string, wait time.Duration, anew bool) (time.Duration, error) {
	res, err := s.call(ctx, "unhandled", f.shard, UnhandledTask{Queue: queue, Task: task}.key(), f.Ref+"/"+node, wait.Milliseconds(), anew)
	if err != nil {
		return 0, fmt.Errorf("wait for a handler of %s: %w", task, err)
	}
	return time.Duration(toInt(res[0])) * time.Millisecond, nil
}

// Names returns the tasks with nodes that wait for a handler, without the number of nodes.
func (s Unhandled) Names(ctx context.Context) ([]UnhandledTask, error) {
	names, err := onShards(ctx, s.db, "list tasks without a handler", func(pipe redis.Pipeliner, shard int) *redis.StringSliceCmd {
		return pipe.ZRange(ctx, s.unhandledKey(shard, ""), 0, -1)
	})
	if err != nil {
		return nil, err
	}
	var all []string
	for _, c := range names {
		all = append(all, c.Val()...)
	}
	slices.Sort(all)
	var out []UnhandledTask
	for _, name := range slices.Compact(all) {
		queue, task, _ := strings.Cut(name, " ")
		out = append(out, UnhandledTask{Queue: queue, Task: task})
	}
	return out, nil
}

// Tasks returns the tasks with nodes that wait for a handler.
func (s Unhandled) Tasks(ctx context.Context) ([]UnhandledTask, error) {
	out, err := s.Names(ctx)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	shards, err := onShards(ctx, s.db, "count nodes without a handler", func(pipe redis.Pipeliner, shard int) (counts []*redis.IntCmd) {
		for _, u := range out {
			counts = append(counts, pipe.ZCard(ctx, s.unhandledKey(shard, u.key())))
		}
		return counts
	})
	for _, counts := range shards {
		for i, c := range counts {
			out[i].Nodes += c.Val()
		}
	}
	return out, err
}

// Flows returns the workflows of the first nodes of a task that wait for a handler.
func (s Unhandled) Flows(ctx context.Context, u UnhandledTask, limit int) (out []Flow, err error) {
	shards, err := onShards(ctx, s.db, "list nodes of "+u.Task, func(pipe redis.Pipeliner, shard int) *redis.StringSliceCmd {
		return pipe.ZRange(ctx, s.unhandledKey(shard, u.key()), 0, int64(limit-1))
	})
	for shard, nodes := range shards {
		for _, node := range nodes.Val() {
			out = append(out, entry(shard, node).Flow)
		}
	}
	return out, err
}

// releaseMost bounds the nodes of one call of [Unhandled.Release].
const releaseMost = 1000

// Release makes the nodes of a task ready that wait for a handler. Those that their workers have not delayed yet stay listed.
func (s Unhandled) Release(ctx context.Context, u UnhandledTask) error {
	n, err := s.shardCount(ctx)
	if err != nil {
		return err
	}
	for shard := range n {
		for kept := int64(0); ; {
			list, err := s.rdb.ZRange(ctx, s.unhandledKey(shard, u.key()), kept, kept+releaseMost-1).Result()
			if err != nil {
				return fmt.Errorf("release nodes of %s: %w", u.Task, err)
			}
			args := []any{AgainUnhandled, u.key()}
			for _, node := range list {
				ref, id, _ := strings.Cut(node, "/")
				args = append(args, ref, id)
			}
			states, err := s.call(ctx, "hasten", shard, args...)
			if err != nil {
				return fmt.Errorf("release nodes of %s: %w", u.Task, err)
			}
			for _, state := range states {
				if toInt(state) == nodeElsewhere {
					kept++
				}
			}
			if len(list) < releaseMost {
				break
			}
		}
	}
	return nil
}
