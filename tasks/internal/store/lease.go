package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// NodeLease is the right of a worker to run a node, as Redis has it.
type NodeLease struct {
	Shard  int
	Worker string
	Flow   Flow // with the reference only
	Node   string
	Lost   int       // workers that died with the node
	Taken  time.Time // by Redis; zero for an entry of a ring without a lease
	Call   string    // ID of the call that took the node; empty for an entry of a ring
	Lane   string
}

// Queue returns the queue that the node was taken from.
func (l *NodeLease) Queue() string { return l.Lane[2:] }

// Key identifies the node among the leases of a worker.
func (l *NodeLease) Key() string { return strconv.Itoa(l.Shard) + " " + l.field() }

func (l *NodeLease) field() string { return l.Flow.Ref + "/" + l.Node }

func (l *NodeLease) value() string {
	return strconv.FormatInt(l.Taken.UnixMicro(), 10) + " " + l.Call + " " + l.Lane + " " + strconv.Itoa(l.Lost)
}

// leaseArgs appends the fields and values of leases to args.
func leaseArgs(args []any, leases []NodeLease) []any {
	for i := range leases {
		args = append(args, leases[i].field(), leases[i].value())
	}
	return args
}

func parseLease(shard int, worker, field, value string) (NodeLease, bool) {
	ref, node, ok := strings.Cut(field, "/")
	p := strings.Split(value, " ")
	if !ok || len(p) != 4 || len(p[2]) < 3 {
		return NodeLease{}, false
	}
	return NodeLease{Shard: shard, Worker: worker, Flow: Flow{Ref: ref, shard: shard}, Node: node, Lost: int(toInt(p[3])),
		Taken: time.UnixMicro(toInt(p[0])).UTC(), Call: p[1], Lane: p[2]}, true
}

// All returns the leases of all workers. Damaged ones are left out.
func (s Leases) All(ctx context.Context) ([]NodeLease, error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	holders, err := s.Holders(ctx)
	if err != nil {
		return nil, err
	}
	var out []NodeLease
	for shard := range n {
		list, err := s.held(ctx, shard, holders)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// held returns the leases of workers in a shard, and the workflows of one node that any workers have taken.
func (s Leases) held(ctx context.Context, shard int, workers []string) ([]NodeLease, error) {
	leases, err := s.inShard(ctx, shard, workers)
	if err != nil {
		return nil, err
	}
	taken, err := s.taken(ctx, shard)
	return append(leases, taken...), err
}

// taken returns the workflows of one node that workers have taken from rings in a shard and that have no lease.
func (s Leases) taken(ctx context.Context, shard int) ([]NodeLease, error) {
	takers, err := s.rdb.ZRange(ctx, s.takersKey(shard), 0, -1).Result()
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
	var out []NodeLease
	for i, t := range takers {
		queue, worker, _ := strings.Cut(t, ":")
		for _, entry := range lists[i].Val() {
			if e := (RingEntry{Shard: shard, Queue: queue, Text: entry}); e.Single() {
				out = append(out, e.Lease(worker))
			}
		}
	}
	return out, nil
}

// OfFlow returns the leases of the nodes of a workflow, by node.
func (s Leases) OfFlow(ctx context.Context, f Flow) (map[string]*NodeLease, error) {
	holders, err := s.rdb.SMembers(ctx, s.holdersKey(f.shard)).Result()
	if err != nil {
		return nil, fmt.Errorf("list workers with leases: %w", err)
	}
	all, err := s.held(ctx, f.shard, holders)
	if err != nil {
		return nil, err
	}
	out := map[string]*NodeLease{}
	for i := range all {
		if all[i].Flow.Ref == f.Ref {
			out[all[i].Node] = &all[i]
		}
	}
	return out, nil
}

// Of returns the leases of a worker.
func (s Leases) Of(ctx context.Context, worker string) ([]NodeLease, error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	var out []NodeLease
	for shard := range n {
		list, err := s.inShard(ctx, shard, []string{worker})
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// inShard returns the leases that workers have in a shard.
func (s Leases) inShard(ctx context.Context, shard int, workers []string) ([]NodeLease, error) {
	if len(workers) == 0 {
		return nil, nil
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.MapStringStringCmd, len(workers))
	for i, w := range workers {
		cmds[i] = pipe.HGetAll(ctx, s.leaseKey(shard, w))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	var out []NodeLease
	for i, c := range cmds {
		for field, value := range c.Val() {
			if l, ok := parseLease(shard, workers[i], field, value); ok {
				out = append(out, l)
			}
		}
	}
	return out, nil
}

// Holders returns the workers that may have leases, have entries of rings, or were takers of entries long ago.
func (s Leases) Holders(ctx context.Context) ([]string, error) {
	type read struct {
		clock   *redis.TimeCmd
		holders *redis.StringSliceCmd
		takers  *redis.ZSliceCmd
	}
	shards, err := onShards(ctx, s.db, "list workers with leases", func(pipe redis.Pipeliner, shard int) read {
		return read{pipe.Time(ctx), pipe.SMembers(ctx, s.holdersKey(shard)), pipe.ZRangeWithScores(ctx, s.takersKey(shard), 0, -1)}
	})
	if err != nil {
		return nil, err
	}
	var out []string
	pipe, sizes := s.rdb.Pipeline(), map[string][]*redis.IntCmd{} // of the lists of taken entries, by worker
	for shard, r := range shards {
		out = append(out, r.holders.Val()...)
		for _, t := range r.takers.Val() {
			queue, worker, _ := strings.Cut(t.Member.(string), ":")
			if t.Score < float64(r.clock.Val().Add(-takerTTL).UnixMilli()) {
				out = append(out, worker)
				continue
			}
			sizes[worker] = append(sizes[worker], pipe.LLen(ctx, s.takenKey(shard, queue, worker)))
		}
	}
	if len(sizes) > 0 {
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, fmt.Errorf("count entries of workers: %w", err)
		}
	}
	for worker, lists := range sizes {
		if slices.ContainsFunc(lists, func(n *redis.IntCmd) bool { return n.Val() > 0 }) {
			out = append(out, worker)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Taken returns the entries that a worker has taken from rings of queues.
func (s Leases) Taken(ctx context.Context, worker string, queues []string) ([]RingEntry, error) {
	if len(queues) == 0 {
		return nil, nil
	}
	shards, err := onShards(ctx, s.db, "list entries of worker "+worker, func(pipe redis.Pipeliner, shard int) (lists []*redis.StringSliceCmd) {
		for _, q := range queues {
			lists = append(lists, pipe.LRange(ctx, s.takenKey(shard, q, worker), 0, -1))
		}
		return lists
	})
	var out []RingEntry
	for shard, lists := range shards {
		for i, l := range lists {
			for _, entry := range l.Val() {
				out = append(out, RingEntry{Shard: shard, Queue: queues[i], Text: entry})
			}
		}
	}
	return out, err
}

// Return makes nodes of a worker in a shard ready again, as far as it still has these leases of them.
func (s Leases) Return(ctx context.Context, shard int, worker string, leases []NodeLease) (nodes int, err error) {
	slices.SortFunc(leases, func(a, b NodeLease) int { return cmp.Or(a.Taken.Compare(b.Taken), strings.Compare(a.Node, b.Node)) })
	return s.reap(ctx, shard, worker, leaseArgs([]any{worker, 0, ""}, leases))
}

// Reap makes the nodes of all leases of a worker ready again. If the worker has died, its death
// is counted for the nodes; see [Suspect].
func (s Leases) Reap(ctx context.Context, worker string, died bool) (nodes int, err error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return 0, err
	}
	how := 0
	if died {
		how = 1
	}
	for shard := range n {
		takers, err := s.rdb.ZRange(ctx, s.takersKey(shard), 0, -1).Result()
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

func (s Leases) reap(ctx context.Context, shard int, worker string, args []any) (int, error) {
	res, err := s.call(ctx, "reap", shard, args...)
	if err != nil {
		return 0, fmt.Errorf("put back the nodes of worker %s: %w", worker, err)
	}
	return int(toInt(res[0])), nil
}

// Suspect is how many workers die with a node until it is suspected to be the cause.
const Suspect = 3
