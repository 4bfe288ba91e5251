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
		if list, err = s.taken(ctx, shard); err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// taken returns the workflows of one node that workers have taken from rings in a shard and that have no batch: as batches without an ID.
func (s Batches) taken(ctx context.Context, shard int) ([]Batch, error) {
	takers, err := s.rdb.SMembers(ctx, s.takersKey(shard)).Result()
	if err != nil {
		return nil, fmt.Errorf("list workers with entries: %w", err)
	}
	lists := make([]*redis.StringSliceCmd, len(takers))
	pipe := s.rdb.Pipeline()
	for i, t := range takers {
		queue, worker, _ := strings.Cut(t, ":")
		lists[i] = pipe.LRange(ctx, s.takenKey(shard, queue, worker), 0, -1)
	}
	if len(lists) > 0 {
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, fmt.Errorf("read entries of workers: %w", err)
		}
	}
	var out []Batch
	for i, t := range takers {
		queue, worker, _ := strings.Cut(t, ":")
		for _, entry := range lists[i].Val() {
			if e := (RingEntry{Shard: shard, Queue: queue, Text: entry}); e.Single() {
				out = append(out, Batch{Shard: shard, Worker: worker, Queue: queue, Nodes: []Element{e.Element(nil)}})
			}
		}
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
	taken, err := s.taken(ctx, f.shard)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(append(all, taken...), func(b Batch) bool {
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

// Holders returns the workers that may have batches or entries of rings.
func (s Batches) Holders(ctx context.Context) ([]string, error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	pipe := s.rdb.Pipeline()
	holders, takers := make([]*redis.StringSliceCmd, n), make([]*redis.StringSliceCmd, n)
	for shard := range n {
		holders[shard], takers[shard] = pipe.SMembers(ctx, s.holdersKey(shard)), pipe.SMembers(ctx, s.takersKey(shard))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("list workers with batches: %w", err)
	}
	var out []string
	for shard := range n {
		out = append(out, holders[shard].Val()...)
		for _, t := range takers[shard].Val() {
			_, worker, _ := strings.Cut(t, ":")
			out = append(out, worker)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Taken returns the entries that a worker has taken from rings of queues.
func (s Batches) Taken(ctx context.Context, worker string, queues []string) ([]RingEntry, error) {
	n, err := s.shardCount(ctx)
	if err != nil || len(queues) == 0 {
		return nil, err
	}
	pipe := s.rdb.Pipeline()
	var out []RingEntry
	var lists []*redis.StringSliceCmd
	var of []RingEntry
	for shard := range n {
		for _, q := range queues {
			lists = append(lists, pipe.LRange(ctx, s.takenKey(shard, q, worker), 0, -1))
			of = append(of, RingEntry{Shard: shard, Queue: q})
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("list entries of worker %s: %w", worker, err)
	}
	for i, l := range lists {
		for _, entry := range l.Val() {
			e := of[i]
			e.Text = entry
			out = append(out, e)
		}
	}
	return out, nil
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
	args := []any{worker, 0, ""}
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
		takers, err := s.rdb.SMembers(ctx, s.takersKey(shard)).Result()
		if err != nil {
			return nodes, fmt.Errorf("list workers with entries: %w", err)
		}
		var queues []string
		for _, t := range takers {
			if q, w, _ := strings.Cut(t, ":"); w == worker {
				queues = append(queues, q)
			}
		}
		slices.Sort(queues)
		m, err := s.reap(ctx, shard, worker, []any{worker, how, strings.Join(queues, " ")})
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
