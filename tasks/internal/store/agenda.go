package store

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/tasktype"
)

// Entry is an entry of the agenda: a node, or a note that begins with "!".
type Entry struct {
	Flow   Flow
	Node   string
	Record []byte
}

func entry(shard int, member string) Entry {
	id, node, _ := strings.Cut(member, "/")
	return Entry{Flow: Flow{Ref: id, shard: shard}, Node: node}
}

// Due has the due entries of a shard, and schedules as entries of [ScheduleRef].
type Due struct {
	Now   time.Time // by Redis
	Next  time.Time // when the next one is due; zero if there is none
	Count int       // entries of the agenda that were due
	Lines []Entry   // entries that the caller has claimed, and must handle
}

// Due makes nodes of a shard ready whose time has come, and claims the other entries that are due: for the time claim, no other
// call returns them. It looks at up to most entries, and claims so many schedules.
func (s Agenda) Due(ctx context.Context, shard int, claim time.Duration, most, schedules int) (Due, error) {
	res, err := s.call(ctx, "due", shard, claim.Milliseconds(), most, schedules)
	if err != nil {
		return Due{}, fmt.Errorf("look through the agenda: %w", err)
	}
	d := Due{Now: time.UnixMilli(toInt(res[0])), Count: int(toInt(res[2]))}
	if at, err := strconv.ParseFloat(text(res[1]), 64); err == nil && at > 0 {
		d.Next = time.UnixMilli(int64(math.Ceil(at)))
	}
	for i := 3; i+1 < len(res); i += 2 {
		e := entry(shard, text(res[i]))
		e.Record = []byte(text(res[i+1]))
		d.Lines = append(d.Lines, e)
	}
	return d, nil
}

// Add adds an entry to the agenda, or changes when it is due.
func (s Agenda) Add(ctx context.Context, f Flow, node string, wait time.Duration) error {
	return s.note(ctx, f, node, wait, s.rdb.ZAdd)
}

// Move changes when an entry is due, if it is still there.
func (s Agenda) Move(ctx context.Context, f Flow, node string, wait time.Duration) error {
	return s.note(ctx, f, node, wait, s.rdb.ZAddXX)
}

func (s Agenda) note(ctx context.Context, f Flow, node string, wait time.Duration, add func(context.Context, string, ...redis.Z) *redis.IntCmd) error {
	now, err := s.Clock(ctx, f.shard)
	if err != nil {
		return err
	}
	return add(ctx, s.agendaKey(f.shard), redis.Z{Score: float64(now.Add(wait).UnixMilli()), Member: f.Ref + "/" + node}).Err()
}

// Remove takes an entry out of the agenda.
func (s Agenda) Remove(ctx context.Context, f Flow, node string) error {
	return s.rdb.ZRem(ctx, s.agendaKey(f.shard), f.Ref+"/"+node).Err()
}

// Waiting is a node that waits for its time.
type Waiting struct {
	Flow  Flow
	Node  string
	Retry bool // after a failed attempt
	Due   time.Time
	Queue string // empty for a step without a task
}

// Waiting returns up to most nodes of each shard that wait for their time, the earliest first, without their inputs. It
// looks at up to ten times as many entries.
func (s Agenda) Waiting(ctx context.Context, most int) ([]Waiting, error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	var out []Waiting
	for shard := range n {
		for found, rank := 0, 0; found < most && rank < 10*most; {
			res, err := s.call(ctx, "scheduled", shard, rank, min(10*most-rank, 1000), most-found)
			if err != nil {
				return nil, fmt.Errorf("read agenda: %w", err)
			}
			looked := int(toInt(res[0]))
			if looked == 0 {
				break
			}
			rank += looked
			for i := 1; i+3 < len(res); i += 4 {
				el := ParseElement(shard, text(res[i]))
				_, queue, _ := strings.Cut(text(res[i+3]), ":")
				for _, node := range el.Nodes[:min(len(el.Nodes), most-found)] {
					out = append(out, Waiting{Flow: el.Flow, Node: node, Retry: text(res[i+1]) == string(StateRetrying), Due: time.UnixMilli(toInt(res[i+2])).UTC(), Queue: queue})
					found++
				}
			}
		}
	}
	return out, nil
}

// Next returns when the earliest entry of all shards is due, and the earliest schedule; zero if there is none.
func (s Agenda) Next(ctx context.Context) (next, tick time.Time, err error) {
	shards, err := onShards(ctx, s.db, "read agenda", func(pipe redis.Pipeliner, shard int) [2]*redis.ZSliceCmd {
		return [2]*redis.ZSliceCmd{pipe.ZRangeWithScores(ctx, s.agendaKey(shard), 0, 0), pipe.ZRangeWithScores(ctx, s.schedulesKey(shard), 0, 0)}
	})
	for _, firsts := range shards {
		for i, earliest := range [...]*time.Time{&next, &tick} {
			for _, z := range firsts[i].Val() {
				if at := time.UnixMilli(int64(math.Ceil(z.Score))); earliest.IsZero() || at.Before(*earliest) {
					*earliest = at
				}
			}
		}
	}
	return next, tick, err
}

// Outbox returns how many entries the agendas of all shards have, and how long the earliest has been due.
func (s Agenda) Outbox(ctx context.Context) (out tasktype.Outbox, err error) {
	type read struct {
		count *redis.IntCmd
		first *redis.ZSliceCmd
		now   *redis.TimeCmd
	}
	shards, err := onShards(ctx, s.db, "read agenda", func(pipe redis.Pipeliner, shard int) read {
		return read{pipe.ZCard(ctx, s.agendaKey(shard)), pipe.ZRangeWithScores(ctx, s.agendaKey(shard), 0, 0), pipe.Time(ctx)}
	})
	for _, r := range shards {
		out.Entries += r.count.Val()
		for _, z := range r.first.Val() {
			out.Overdue = max(out.Overdue, r.now.Val().Sub(time.UnixMilli(int64(z.Score))))
		}
	}
	return out, err
}
