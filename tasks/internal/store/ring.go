package store

import (
	"context"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// RingEntry is an entry that a worker has taken from the ring of a queue.
type RingEntry struct {
	Shard int
	Queue string
	Text  string // see ringKey

	Row *Row // of a workflow of one node, if it was read with the entry
}

// Single reports whether the entry is a workflow of one node.
func (e *RingEntry) Single() bool { return IsSingle(e.Text) }

// IsSingle reports whether an entry of a ring is a workflow of one node.
func IsSingle(entry string) bool { return !strings.ContainsAny(entry, "=+/") }

// Nodes returns how many nodes the entry has at most.
func (e *RingEntry) Nodes() int {
	_, span, ok := strings.Cut(e.Text, "/")
	if !ok && !e.Single() {
		return math.MaxInt
	}
	span, _, _ = strings.Cut(span, "@")
	_, first, last := parseSpan(span)
	return last - first + 1
}

// Element returns the element of the node of a workflow of one node, with the fields that r has.
func (e *RingEntry) Element(r *Row) Element {
	ref, deaths, _ := strings.Cut(e.Text, "@")
	el := Element{Flow: Flow{Ref: ref, shard: e.Shard}, Lost: int(toInt(deaths)), Nodes: []string{"0"}, Records: [][]byte{nil}}
	if r != nil {
		el.Graph, el.Inputs = r.Graph, [][]byte{r.Input}
	}
	return el
}

// Row has the fields of a workflow of one node.
type Row struct {
	Graph, Record, Input []byte
	Stopped              string // see [FieldStopped]
	Exists               bool
	Paused               bool // its queue is
}

func rowOf(fields []any, paused any) *Row {
	if len(fields) < 5 {
		return &Row{Paused: text(paused) != ""}
	}
	return &Row{Graph: []byte(text(fields[0])), Record: raw(fields[1]), Input: raw(fields[4]), Stopped: text(fields[2]), Exists: text(fields[3]) != "", Paused: text(paused) != ""}
}

// idAlphabet is the encoding of generated IDs.
var idAlphabet = base32.HexEncoding.WithPadding(base32.NoPadding)

// NewID returns an ID that sorts by time, made of a time and nine random bytes. It does not start with a dash.
func NewID(at time.Time, random [9]byte) string {
	var b [15]byte
	binary.BigEndian.PutUint64(b[:8], uint64(at.UnixMilli())<<16)
	copy(b[6:], random[:])
	return strings.ToLower(idAlphabet.EncodeToString(b[:]))
}

// SentAt returns the time in a generated ID with which a text begins; zero if it has none.
func SentAt(s string) time.Time {
	if len(s) < 24 {
		return time.Time{}
	}
	b, err := idAlphabet.DecodeString(strings.ToUpper(s[:24]))
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b[:8]) >> 16))
}

// Rings reads the rings of the queues of a worker.
type Rings struct {
	*db
	blocking redis.UniversalClient // its calls block
	worker   string
	close    func() error
}

// Rings returns a reader of rings for a worker, with connections for so many waits at once. Its calls block only them.
func (s Queues) Rings(worker string, waits int) *Rings {
	r := &Rings{s.db, s.rdb, worker, func() error { return nil }}
	switch c := s.rdb.(type) {
	case *redis.Client:
		opt := *c.Options()
		opt.PoolSize, opt.MinIdleConns, opt.MaxIdleConns, opt.MaxActiveConns = waits+1, 0, 0, 0
		own := redis.NewClient(&opt)
		r.blocking, r.close = own, own.Close
	case *redis.ClusterClient:
		opt := *c.Options()
		opt.PoolSize, opt.MinIdleConns, opt.MaxIdleConns, opt.MaxActiveConns = waits+1, 0, 0, 0
		own := redis.NewClusterClient(&opt)
		r.blocking, r.close = own, own.Close
	}
	return r
}

// Owned reports whether the waits have separate connections, whose close ends them.
func (r *Rings) Owned() bool { return r.blocking != r.rdb }

// Close closes the connections, which ends the waits.
func (r *Rings) Close() error { return r.close() }

// takerTTL is how long after its last Join a worker without entries counts as one that may still take them: a call that blocks on a
// ring can take an entry after its worker has died, until Redis learns that the connection is lost.
const takerTTL = time.Minute

// Join lists the worker among the workers that may have taken entries of queues, by the clock of Redis: with that of a worker that is minutes late,
// an entry that it takes after it was found dead would stay in its list.
func (s Queues) Join(ctx context.Context, worker string, queues []string) error {
	if len(queues) == 0 {
		return nil
	}
	now, err := s.rdb.Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("list worker: %w", err)
	}
	members := make([]redis.Z, len(queues))
	for i, q := range queues {
		members[i] = redis.Z{Score: float64(now.UnixMilli()), Member: q + ":" + worker}
	}
	_, err = onShards(ctx, s.db, "list worker", func(pipe redis.Pipeliner, shard int) *redis.IntCmd {
		return pipe.ZAdd(ctx, s.takersKey(shard), members...)
	})
	return err
}

// Next takes the next entry of a queue in a shard. It waits for one at most so long; without a wait it does not block. It returns nil
// if there is none.
func (r *Rings) Next(ctx context.Context, shard int, queue string, wait time.Duration) (*RingEntry, error) {
	ring, taken := r.ringKey(shard, queue), r.takenKey(shard, queue, r.worker)
	var cmd *redis.StringCmd
	if wait > 0 {
		cmd = r.blocking.BLMove(ctx, ring, taken, "LEFT", "RIGHT", wait)
	} else {
		cmd = r.rdb.LMove(ctx, ring, taken, "LEFT", "RIGHT")
	}
	entry, err := cmd.Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("wait for work: %w", err)
	}
	return &RingEntry{Shard: shard, Queue: queue, Text: entry}, nil
}

// Take takes an entry of a queue in each shard for a worker, without waiting, unless the queue is paused.
func (s Queues) Take(ctx context.Context, worker, queue string) ([]RingEntry, error) {
	if err := s.Join(ctx, worker, []string{queue}); err != nil {
		return nil, err
	}
	r := &Rings{db: s.db, worker: worker}
	var out []RingEntry
	for shard := range int(s.shards.Load()) {
		paused, err := s.IsPaused(ctx, shard, queue)
		if err != nil || paused {
			return out, err
		}
		e, err := r.Next(ctx, shard, queue, 0)
		if err != nil {
			return out, err
		}
		if e != nil {
			out = append(out, *e)
		}
	}
	return out, nil
}

// PutBack returns an entry to its ring.
func (s Queues) PutBack(ctx context.Context, worker string, e *RingEntry) error {
	if _, err := s.call(ctx, "putback", e.Shard, worker, e.Queue, e.Text); err != nil {
		return fmt.Errorf("return an entry of queue %s: %w", e.Queue, err)
	}
	return nil
}

// Drop removes an entry without work that a worker has taken.
func (s Queues) Drop(ctx context.Context, worker string, e *RingEntry) error {
	if err := s.rdb.LRem(ctx, s.takenKey(e.Shard, e.Queue, worker), 1, e.Text).Err(); err != nil {
		return fmt.Errorf("drop an entry of queue %s: %w", e.Queue, err)
	}
	return nil
}

// IsPaused reports whether workers may take nothing from a queue in a shard.
func (s Queues) IsPaused(ctx context.Context, shard int, queue string) (bool, error) {
	return s.rdb.HExists(ctx, s.queueKey(shard, queue), "paused").Result()
}

// Read reads the workflow of one node of an entry.
func (s Queues) Read(ctx context.Context, e *RingEntry) (*Row, error) {
	ref, _, _ := strings.Cut(e.Text, "@")
	pipe := s.rdb.Pipeline()
	fields := pipe.HMGet(ctx, s.flowKey(e.Shard, ref), FieldGraph, "0", FieldStopped, FieldTasks, FieldInput+"0")
	paused := pipe.HGet(ctx, s.queueKey(e.Shard, e.Queue), "paused")
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read workflow %s: %w", IDOf(ref), err)
	}
	return rowOf(fields.Val(), paused.Val()), nil
}

// Single is the success of a workflow of one node.
type Single struct {
	Entry  *RingEntry
	Flow   Flow
	Record []byte
	Queues []string // to take the next entry from, in order; none to take none
}

// The results of [Turns.Finish].
const (
	FinishLost = 0 // the result does not count
	FinishOK   = 1
	FinishTurn = 2 // only a turn can store the result, with a lease
)

// Finish stores the success of a workflow of one node, and takes the next entry. It can be repeated if its reply was lost.
func (s Turns) Finish(ctx context.Context, worker string, d *Single) (state int, next *RingEntry, err error) {
	e := d.Entry
	res, err := s.call(ctx, "finish1", e.Shard, worker, e.Queue, e.Text, d.Flow.Ref, d.Record, d.Flow.Retention, d.Flow.Created, d.Flow.Caption, strings.Join(d.Queues, " "))
	if err != nil {
		return 0, nil, fmt.Errorf("finish workflow %s: %w", d.Flow.ID(), err)
	}
	if len(res) > 2 {
		next = &RingEntry{Shard: e.Shard, Queue: text(res[1]), Text: text(res[2])}
	}
	if len(res) > 4 {
		fields, _ := res[4].([]any)
		next.Row = rowOf(fields, res[3])
	}
	return int(toInt(res[0])), next, nil
}

// Lease returns the lease of a workflow of one node, without the fields that an entry does not have.
func (e *RingEntry) Lease(worker string) NodeLease {
	el := e.Element(nil)
	return NodeLease{Shard: e.Shard, Worker: worker, Flow: el.Flow, Node: "0", Lost: el.Lost, Lane: Lane(e.Queue, 0)}
}

// Adopt gives a worker a lease in place of an entry.
func (s Leases) Adopt(ctx context.Context, e *RingEntry, l *NodeLease) error {
	if _, err := s.call(ctx, "adopt", e.Shard, l.Worker, e.Queue, e.Text, l.field(), l.value()); err != nil {
		return fmt.Errorf("lease a node of workflow %s: %w", l.Flow.ID(), err)
	}
	return nil
}
