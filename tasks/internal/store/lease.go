package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
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

// All returns the leases of all workers, and the workflows of one node that they have taken. Damaged ones are left out.
func (s Leases) All(ctx context.Context) (out []NodeLease, err error) {
	all, err := s.allTakers(ctx, "")
	for i := range all {
		out = append(out, all[i].nodes()...)
	}
	return out, err
}

// allTakers is takers for all shards. With an error it returns those of the other shards.
func (s Leases) allTakers(ctx context.Context, worker string) ([]taker, error) {
	found := make([][]taker, clusterShards)
	err := s.eachShard(ctx, func(ctx context.Context, shard int) (err error) {
		found[shard], err = s.takers(ctx, shard, worker)
		return err
	})
	return slices.Concat(found...), err
}

// OfFlow returns the leases of the nodes of a workflow, by node.
func (s Leases) OfFlow(ctx context.Context, f Flow) (map[string]*NodeLease, error) {
	all, err := s.takers(ctx, f.shard, "")
	out := map[string]*NodeLease{}
	for i := range all {
		for _, l := range all[i].nodes() {
			if l.Flow.Ref == f.Ref {
				out[l.Node] = &l
			}
		}
	}
	return out, err
}

// Of returns the leases of a worker, and the entries that it has taken from rings. With an error it returns those of the other shards.
func (s Leases) Of(ctx context.Context, worker string) (leases []NodeLease, entries []RingEntry, err error) {
	all, err := s.allTakers(ctx, worker)
	for _, t := range all {
		leases, entries = append(leases, t.leases...), append(entries, t.entries...)
	}
	return leases, entries, err
}

// taker is what a worker has taken from a queue. The leases of all its queues are in one of them.
type taker struct {
	queue, worker string
	joined        time.Time
	entries       []RingEntry
	leases        []NodeLease
}

// nodes returns the leases, and the workflows of one node that have none.
func (t *taker) nodes() []NodeLease {
	out := t.leases
	for i := range t.entries {
		if t.entries[i].Single() {
			out = append(out, t.entries[i].Lease(t.worker))
		}
	}
	return out
}

// takers returns what the workers in a shard have taken, or one of them if it is given.
func (s Leases) takers(ctx context.Context, shard int, worker string) ([]taker, error) {
	members, err := s.rdb.ZRangeWithScores(ctx, s.takersKey(shard), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("list workers with leases: %w", err)
	}
	var out []taker
	var lists []*redis.StringSliceCmd
	hashes, pipe := map[string]*redis.MapStringStringCmd{}, s.rdb.Pipeline()
	for _, m := range members {
		queue, name, _ := strings.Cut(m.Member.(string), ":")
		if worker != "" && worker != name {
			continue
		}
		out = append(out, taker{queue: queue, worker: name, joined: time.UnixMilli(int64(m.Score))})
		lists = append(lists, pipe.LRange(ctx, s.takenKey(shard, queue, name), 0, -1))
		if hashes[name] == nil {
			hashes[name] = pipe.HGetAll(ctx, s.leaseKey(shard, name))
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	for i := range out {
		t := &out[i]
		for _, entry := range lists[i].Val() {
			t.entries = append(t.entries, RingEntry{Shard: shard, Queue: t.queue, Text: entry})
		}
		if hash := hashes[t.worker]; hash != nil {
			for field, value := range hash.Val() {
				if l, ok := parseLease(shard, t.worker, field, value); ok {
					t.leases = append(t.leases, l)
				}
			}
		}
		delete(hashes, t.worker)
	}
	return out, nil
}

// Holders returns the workers that have leases or entries of rings, or were takers of entries long ago. With an error it returns those of the other
// shards.
func (s Leases) Holders(ctx context.Context) ([]string, error) {
	found := make([][]string, clusterShards)
	err := s.eachShard(ctx, func(ctx context.Context, shard int) error {
		now, err := s.Clock(ctx, shard)
		if err != nil {
			return err
		}
		all, err := s.takers(ctx, shard, "")
		for i := range all {
			if t := &all[i]; len(t.entries)+len(t.leases) > 0 || t.joined.Before(now.Add(-takerTTL)) {
				found[shard] = append(found[shard], t.worker)
			}
		}
		return err
	})
	out := slices.Concat(found...)
	slices.Sort(out)
	return slices.Compact(out), err
}

// Return makes nodes of a worker in a shard ready again, as far as it still has these leases of them.
func (s Leases) Return(ctx context.Context, shard int, worker string, leases []NodeLease) (nodes int, err error) {
	slices.SortFunc(leases, func(a, b NodeLease) int { return cmp.Or(a.Taken.Compare(b.Taken), strings.Compare(a.Node, b.Node)) })
	return s.reap(ctx, shard, worker, leaseArgs([]any{worker, 0, ""}, leases))
}

// Reap makes the nodes of all leases of a worker ready again. If the worker has died, its death
// is counted for the nodes; see [Suspect].
func (s Leases) Reap(ctx context.Context, worker string, died bool) (int, error) {
	how := 0
	if died {
		how = 1
	}
	var nodes atomic.Int64
	err := s.eachShard(ctx, func(ctx context.Context, shard int) error {
		all, err := s.takers(ctx, shard, worker)
		if err != nil {
			return err
		}
		var queues []string
		for _, t := range all {
			queues = append(queues, t.queue)
		}
		slices.Sort(queues)
		n, err := s.reap(ctx, shard, worker, []any{worker, how, strings.Join(queues, " ")})
		nodes.Add(int64(n))
		return err
	})
	return int(nodes.Load()), err
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
