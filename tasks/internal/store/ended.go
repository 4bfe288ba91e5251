package store

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"muster/tasks/tasktype"
)

// Event is the end of a workflow, with its position "<unix ms>-<hash of the reference>".
type Event struct {
	Indexed
	Position string
}

// endedPosition is a place in the order of ends, the earliest first.
type endedPosition struct {
	at   int64 // unix ms
	hash int64
}

func (p endedPosition) String() string { return fmt.Sprintf("%d-%d", p.at, p.hash) }

func (p endedPosition) compare(o endedPosition) int {
	return cmp.Or(cmp.Compare(p.at, o.at), cmp.Compare(p.hash, o.hash))
}

func (e *Indexed) ended() endedPosition {
	h := fnv.New64a()
	_, _ = h.Write([]byte(e.Ref))
	return endedPosition{e.at, int64(h.Sum64() >> 1)}
}

func parseEnded(s string) (endedPosition, error) {
	ms, hash, _ := strings.Cut(s, "-")
	at, err := strconv.ParseInt(ms, 10, 64)
	p := endedPosition{at: at}
	if hash != "" && err == nil {
		p.hash, err = strconv.ParseInt(hash, 10, 64)
	}
	if err != nil {
		return p, fmt.Errorf("%w: %.100q", ErrCursor, s)
	}
	return p, nil
}

// kept is how many of the last ended workflows of a state the index of a shard keeps, as DONE in index.lua.
func kept(state tasktype.WorkflowState) int64 {
	if state == tasktype.WorkflowFailed {
		return 100_000
	}
	return 10_000
}

// Ended returns at most limit workflows that ended after a position, the earliest first, and the position for the next call. "$" is the present, and ""
// is before all. Scripts write the index by the clock of their Redis, so that no later call adds a workflow before an earlier one. gap means that
// workflows after the position may have been dropped from the index.
func (s Index) Ended(ctx context.Context, after string, limit int) (list []Event, next string, gap bool, err error) {
	shards, err := s.shardCount(ctx)
	if err != nil {
		return nil, after, false, err
	}
	until := int64(math.MaxInt64) // at this time more workflows may end
	for shard := range shards {
		now, err := s.Clock(ctx, shard)
		if err != nil {
			return nil, after, false, err
		}
		until = min(until, now.UnixMilli())
	}
	from := endedPosition{at: until}
	if after != "$" {
		from = endedPosition{}
		if after != "" {
			if from, err = parseEnded(after); err != nil {
				return nil, after, false, err
			}
		}
	}
	type source struct {
		state tasktype.WorkflowState
		read  *redis.ZSliceCmd
		first *redis.ZSliceCmd
		size  *redis.IntCmd
	}
	var sources []source
	pipe := s.rdb.Pipeline()
	for shard := range shards {
		for _, state := range WorkflowStates[1:] {
			key := s.indexKey(shard, state)
			sources = append(sources, source{
				state, pipe.ZRangeByScoreWithScores(ctx, key, &redis.ZRangeBy{Min: strconv.FormatInt(from.at, 10), Max: fmt.Sprintf("(%d", until), Count: int64(limit) + tiesMost}),
				pipe.ZRangeWithScores(ctx, key, 0, 0), pipe.ZCard(ctx, key),
			})
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, after, false, fmt.Errorf("read the index of workflows: %w", err)
	}
	for _, src := range sources {
		if first := src.first.Val(); len(first) > 0 && int64(first[0].Score) > from.at && src.size.Val() >= kept(src.state) && after != "" {
			gap = true
		}
		for _, z := range src.read.Val() {
			member, _ := z.Member.(string)
			e, ok := parseIndexed(member, src.state, int64(z.Score))
			if e.State = src.state; ok && e.ended().compare(from) > 0 {
				list = append(list, Event{e, e.ended().String()})
			}
		}
		if n := len(src.read.Val()); n == limit+tiesMost {
			until = min(until, int64(src.read.Val()[n-1].Score)) // of this time not all were read
		}
	}
	slices.SortFunc(list, func(a, b Event) int { return a.ended().compare(b.ended()) })
	list = slices.DeleteFunc(list, func(e Event) bool { return e.at >= until })
	list = list[:min(limit, len(list))]
	if next = from.String(); len(list) > 0 {
		next = list[len(list)-1].Position
	}
	return list, next, gap, nil
}

// tiesMost is more than the workflows that end in a shard in one ms.
const tiesMost = 1000
