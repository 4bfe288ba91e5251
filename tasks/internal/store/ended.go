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
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/tasktype"
)

// eventStuck is the letter of stuck workflows in the index.
const eventStuck = 'B'

// eventLetters are the letters of the keys with events.
var eventLetters = map[byte]tasktype.WorkflowState{StateSucceeded: tasktype.WorkflowSucceeded, StateFailed: tasktype.WorkflowFailed,
	StateRevoked: tasktype.WorkflowRevoked, eventStuck: tasktype.WorkflowRunning}

var eventTypes = map[tasktype.WorkflowState]string{tasktype.WorkflowSucceeded: tasktype.EventSucceeded, tasktype.WorkflowFailed: tasktype.EventFailed,
	tasktype.WorkflowRevoked: tasktype.EventRevoked, tasktype.WorkflowRunning: tasktype.EventStuck}

// endedPosition is a place in the order of ends, the earliest first: "<unix ms>-<hash of the reference>".
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
	_, _ = h.Write([]byte(string(e.State) + e.Ref))
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

// Ended returns at most limit workflows that ended after a position, the earliest first, and the position for the next call. "$" is the present, and ""
// is before all. Scripts write the index by the clock of their Redis, so that no later call adds a workflow before an earlier one. gap means that
// workflows after the position may have been dropped from the index.
func (s Index) Ended(ctx context.Context, after string, limit int) (events []tasktype.WorkflowEvent, next string, gap bool, err error) {
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
		letter byte
		read   *redis.ZSliceCmd
		cut    *redis.StringCmd
	}
	sources, err := onShards(ctx, s.db, "read the index of workflows", func(pipe redis.Pipeliner, shard int) (list []source) {
		for letter := range eventLetters {
			list = append(list, source{letter,
				pipe.ZRangeByScoreWithScores(ctx, s.doneKey(shard, letter), &redis.ZRangeBy{Min: strconv.FormatInt(from.at, 10), Max: fmt.Sprintf("(%d", until), Count: int64(limit) + tiesMost}),
				pipe.HGet(ctx, s.cutKey(shard), string(letter))})
		}
		return list
	})
	if err != nil {
		return nil, after, false, err
	}
	var list []Indexed
	for _, src := range slices.Concat(sources...) {
		gap = gap || src.cut.Err() == nil && toInt(src.cut.Val()) >= from.at && after != ""
		for _, z := range src.read.Val() {
			member, _ := z.Member.(string)
			e, ok := parseIndexed(member, tasktype.WorkflowSucceeded, int64(z.Score))
			if e.State = eventLetters[src.letter]; !ok || e.ended().compare(from) <= 0 {
				continue
			}
			if src.letter == eventStuck {
				e.Ended = time.Time{}
			}
			list = append(list, e)
		}
		if n := len(src.read.Val()); n == limit+tiesMost {
			until = min(until, int64(src.read.Val()[n-1].Score)) // of this time not all were read
		}
	}
	slices.SortFunc(list, func(a, b Indexed) int { return a.ended().compare(b.ended()) })
	list = slices.DeleteFunc(list, func(e Indexed) bool { return e.at >= until })
	next = from.String()
	for _, e := range list[:min(limit, len(list))] {
		next = e.ended().String()
		events = append(events, tasktype.WorkflowEvent{Workflow: e.Workflow, Type: eventTypes[e.State], Tasks: e.Tasks, Time: time.UnixMilli(e.at), Position: next})
	}
	return events, next, gap, nil
}

// Mark adds events of stuck workflows, each once.
func (s Index) Mark(ctx context.Context, stuck []Flow) error {
	entries := map[int][]any{}
	for _, f := range stuck {
		entries[f.shard] = append(entries[f.shard], fmt.Sprintf("%s %d %s", f.Ref, f.Created, f.Caption))
	}
	for shard, list := range entries {
		if _, err := s.call(ctx, "stuck", shard, list...); err != nil {
			return fmt.Errorf("mark stuck workflows: %w", err)
		}
	}
	return nil
}

// Reader returns the position of a reader of events, which is from for a new one, as for [Index.Ended], and how many events were cut from the index before it had
// read them. It renews the claim of the reader.
func (s Index) Reader(ctx context.Context, name, from string) (position string, missed int64, err error) {
	key := s.readersKey(0)
	values, err := s.rdb.HMGet(ctx, key, name).Result()
	if err != nil {
		return "", 0, fmt.Errorf("read the position of %s: %w", name, err)
	}
	now, err := s.Clock(ctx, 0)
	if err != nil {
		return "", 0, err
	}
	position, seen, _ := strings.Cut(text(values[0]), " ")
	if position == "" {
		list, next, _, err := s.Ended(ctx, from, 1)
		if err == nil && from == "" {
			if _, next, _, err = s.Ended(ctx, "$", 1); len(list) > 0 {
				next = endedPosition{at: list[0].Time.UnixMilli()}.String()
			}
		}
		if err != nil {
			return "", 0, err
		}
		position = next
		if added, err := s.rdb.HSetNX(ctx, key, name, position+" 0").Result(); err != nil || !added {
			return position, 0, err // another process has added it, and the next call reads its position
		}
	}
	if now.UnixMilli()-toInt(seen) > time.Minute.Milliseconds() {
		if err := s.SetReader(ctx, name, position, false); err != nil {
			return "", 0, err
		}
	}
	shards, err := onShards(ctx, s.db, "read the position of "+name, func(pipe redis.Pipeliner, shard int) *redis.StringCmd {
		return pipe.HGet(ctx, s.readersKey(shard), "!"+name)
	})
	for _, cut := range shards {
		missed += toInt(cut.Val())
	}
	return position, missed, err
}

// SetReader stores the position of a reader, and with reset begins to count cut events again. An empty position removes the reader.
func (s Index) SetReader(ctx context.Context, name, position string, reset bool) error {
	now, err := s.Clock(ctx, 0)
	if err != nil {
		return err
	}
	_, err = onShards(ctx, s.db, "store the position of "+name, func(pipe redis.Pipeliner, shard int) *redis.IntCmd {
		if reset {
			pipe.HDel(ctx, s.readersKey(shard), "!"+name)
		}
		if position == "" {
			return pipe.HDel(ctx, s.readersKey(shard), name)
		}
		return pipe.HSet(ctx, s.readersKey(shard), name, fmt.Sprintf("%s %d", position, now.UnixMilli()))
	})
	return err
}

// tiesMost is more than the workflows that end in a shard in one ms.
const tiesMost = 1000
