package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Batch is a batch of a worker, as its lease in Redis has it.
type Batch struct {
	Shard  int
	Worker string
	ID     string
	Taken  time.Time
	Queue  string
	Nodes  []Element // without records
}

// All returns the batches of all workers. Damaged ones are left out.
func (s Batches) All(ctx context.Context) ([]Batch, error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	holders, err := s.Holders(ctx)
	if err != nil {
		return nil, err
	}
	var out []Batch
	for shard := range n {
		list, err := s.inShard(ctx, shard, holders)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// OfFlow returns the batches of all workers that have nodes of a workflow. A batch may have nodes of others, too.
func (s Batches) OfFlow(ctx context.Context, f Flow) ([]Batch, error) {
	holders, err := s.rdb.SMembers(ctx, s.holdersKey(f.shard)).Result()
	if err != nil {
		return nil, fmt.Errorf("list workers with batches: %w", err)
	}
	all, err := s.inShard(ctx, f.shard, holders)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(b Batch) bool {
		return !slices.ContainsFunc(b.Nodes, func(el Element) bool { return el.Flow.Ref == f.Ref })
	}), nil
}

// inShard returns the batches that workers have in a shard.
func (s Batches) inShard(ctx context.Context, shard int, workers []string) ([]Batch, error) {
	if len(workers) == 0 {
		return nil, nil
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.MapStringStringCmd, len(workers))
	for i, w := range workers {
		cmds[i] = pipe.HGetAll(ctx, s.leaseKey(shard, w))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read batches: %w", err)
	}
	var out []Batch
	for i, c := range cmds {
		for id, value := range c.Val() {
			if b, ok := parseLease(shard, value); ok {
				b.Worker, b.ID = workers[i], id
				out = append(out, b)
			}
		}
	}
	return out, nil
}

func parseLease(shard int, value string) (Batch, bool) {
	parts := strings.SplitN(value, " ", 3)
	if len(parts) < 3 || len(parts[1]) < 3 {
		return Batch{}, false
	}
	b := Batch{Shard: shard, Queue: parts[1][2:], Taken: time.UnixMicro(toInt(strings.TrimSuffix(parts[0], "!")))}
	for text := range strings.SplitSeq(parts[2], ",") {
		if el, err := ParseElement(shard, text); err == nil {
			b.Nodes = append(b.Nodes, el)
		}
	}
	return b, true
}

// Holders returns the workers that may have batches.
func (s Batches) Holders(ctx context.Context) ([]string, error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.StringSliceCmd, n)
	for shard := range n {
		cmds[shard] = pipe.SMembers(ctx, s.holdersKey(shard))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("list workers with batches: %w", err)
	}
	var out []string
	for _, c := range cmds {
		out = append(out, c.Val()...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// IDs returns the ids of the batches of a worker, by shard.
func (s Batches) IDs(ctx context.Context, worker string) ([][]string, error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.StringSliceCmd, n)
	for shard := range n {
		cmds[shard] = pipe.HKeys(ctx, s.leaseKey(shard, worker))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("list batches of worker %s: %w", worker, err)
	}
	out := make([][]string, n)
	for shard, c := range cmds {
		out[shard] = c.Val()
	}
	return out, nil
}

// Return makes the nodes of batches of a worker in a shard ready again, and ends their leases.
func (s Batches) Return(ctx context.Context, shard int, worker string, ids []string) (nodes int, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	args := []any{worker, 0}
	for _, id := range ids {
		args = append(args, id)
	}
	return s.reap(ctx, shard, worker, args)
}

// Reap makes the nodes of all batches of a worker ready again, and ends their leases. If the worker has died, its death
// is counted for the nodes; see [Suspect].
func (s Batches) Reap(ctx context.Context, worker string, died bool) (nodes int, err error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return 0, err
	}
	how := 0
	if died {
		how = 1
	}
	for shard := range n {
		m, err := s.reap(ctx, shard, worker, []any{worker, how})
		if err != nil {
			return nodes, err
		}
		nodes += m
	}
	return nodes, nil
}

func (s Batches) reap(ctx context.Context, shard int, worker string, args []any) (int, error) {
	res, err := s.call(ctx, "reap", shard, args...)
	if err != nil {
		return 0, fmt.Errorf("put back the nodes of worker %s: %w", worker, err)
	}
	return int(toInt(res[0])), nil
}

// Suspect is how many workers die with a node in their batch until the node is suspected to be the cause. Before that
// every such death counts, even while the node only waited in the batch. After that only deaths count that came when
// its handler ran, which [Batches.Enter] records.
const Suspect = 3

// Enter records that the handler of a suspected node, which is alone in its batch, is about to be called. It returns
// false if the worker does not have the batch any more.
func (s Batches) Enter(ctx context.Context, shard int, worker, batch string) (bool, error) {
	res, err := s.call(ctx, "enter", shard, worker, batch)
	if err != nil {
		return false, fmt.Errorf("enter batch %s: %w", batch, err)
	}
	return toInt(res[0]) == 1, nil
}
