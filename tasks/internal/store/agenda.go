package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Entry is an entry of the agenda: a node, or a note that begins with "!".
type Entry struct {
	Flow   Flow
	Node   string
	Record []byte
	Due    time.Time
}

func entry(shard int, member string) Entry {
	id, node, _ := strings.Cut(member, "/")
	return Entry{Flow: Flow{ID: id, shard: shard}, Node: node}
}

// Due is what was due in a shard.
type Due struct {
	Now   time.Time // by Redis
	Next  time.Time // when the next entry is due; zero if there is none
	Count int       // entries that were due
	Wants []Wake    // wake-tasks to send
	Lines []Entry   // entries that the caller has claimed, and must handle
}

// Due makes nodes ready whose time has come, and claims the other entries that are due: for the time claim, no other
// call returns them. It looks at up to most entries of each shard.
func (s Agenda) Due(ctx context.Context, claim time.Duration, most int) ([]Due, error) {
	said, err := s.callEach(ctx, "due", claim.Milliseconds(), most)
	if err != nil {
		return nil, fmt.Errorf("look through the agenda: %w", err)
	}
	out := make([]Due, len(said))
	for shard, res := range said {
		if len(res) < 5 {
			return nil, fmt.Errorf("look through the agenda: script answered %v", res)
		}
		d := Due{Now: time.UnixMilli(toInt(res[0])), Wants: wakes(shard, res[3]), Count: int(toInt(res[4]))}
		if at := toInt(res[1]); at > 0 {
			d.Next = time.UnixMilli(at)
		}
		for i := 5; i+1 < len(res); i += 2 {
			e := entry(shard, text(res[i]))
			e.Record = []byte(text(res[i+1]))
			d.Lines = append(d.Lines, e)
		}
		out[shard] = d
	}
	return out, nil
}

// Add puts an entry into the agenda.
func (s Agenda) Add(ctx context.Context, f Flow, node string, at time.Time) error {
	return s.rdb.ZAdd(ctx, agendaKey(f.shard), redis.Z{Score: float64(at.UnixMilli()), Member: f.ID + "/" + node}).Err()
}

// Move moves an entry to another time, if it is still there.
func (s Agenda) Move(ctx context.Context, f Flow, node string, at time.Time) error {
	return s.rdb.ZAddXX(ctx, agendaKey(f.shard), redis.Z{Score: float64(at.UnixMilli()), Member: f.ID + "/" + node}).Err()
}

// Remove takes an entry out of the agenda.
func (s Agenda) Remove(ctx context.Context, f Flow, node string) error {
	return s.rdb.ZRem(ctx, agendaKey(f.shard), f.ID+"/"+node).Err()
}

// First returns the first entries of each shard, with their records.
func (s Agenda) First(ctx context.Context, limit int) ([]Entry, error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.ZSliceCmd, n)
	for shard := range n {
		cmds[shard] = pipe.ZRangeWithScores(ctx, agendaKey(shard), 0, int64(limit-1))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read agenda: %w", err)
	}
	var out []Entry
	for shard, c := range cmds {
		for _, z := range c.Val() {
			e := entry(shard, fmt.Sprint(z.Member))
			e.Due = time.UnixMilli(int64(z.Score))
			out = append(out, e)
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	pipe = s.rdb.Pipeline()
	recs := make([]*redis.StringCmd, len(out))
	for i, e := range out {
		recs[i] = pipe.HGet(ctx, e.Flow.key(), e.Node)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error; a node without a record is one
	for i, c := range recs {
		out[i].Record, _ = c.Bytes()
	}
	return out, nil
}

// Overdue returns how many entries the agendas of all shards have, and how long the earliest has been due.
func (s Agenda) Overdue(ctx context.Context) (entries int64, overdue time.Duration, err error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return 0, 0, err
	}
	pipe := s.rdb.Pipeline()
	now := pipe.Time(ctx)
	counts, firsts := make([]*redis.IntCmd, n), make([]*redis.ZSliceCmd, n)
	for shard := range n {
		counts[shard] = pipe.ZCard(ctx, agendaKey(shard))
		firsts[shard] = pipe.ZRangeWithScores(ctx, agendaKey(shard), 0, 0)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, 0, fmt.Errorf("read agenda: %w", err)
	}
	for shard := range n {
		entries += counts[shard].Val()
		for _, z := range firsts[shard].Val() {
			overdue = max(overdue, now.Val().Sub(time.UnixMilli(int64(z.Score))))
		}
	}
	return entries, overdue, nil
}
