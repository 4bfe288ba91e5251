package workqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Stats counts the items of a queue by state. Delayed ones are among the
// queued.
type Stats struct {
	Queued     int64 `json:"queued"`
	InProgress int64 `json:"in_progress"`
	Done       int64 `json:"done"`
	Skipped    int64 `json:"skipped"`
	Error      int64 `json:"error"`
	Total      int64 `json:"total"`
	Delayed    int64 `json:"delayed"`
	Outputs    int64 `json:"outputs"` // in the output stream, not yet acknowledged
	Paused     bool  `json:"paused"`
	Sealed     bool  `json:"sealed,omitempty"`

	Refused int64   `json:"refused,omitempty"` // items that were not added because of Config.MaxItems; 10,000 or more are counted inexactly
	Expired int64   `json:"expired"`           // leases that expired, since the queue was made
	Waiting float64 `json:"next_waiting"`      // seconds that the next item has been ready
}

// Open is how many items are not terminal.
func (s Stats) Open() int64 { return s.Queued + s.InProgress }

// Stats reads the counters, all at one moment.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	s, _, err := readStats(ctx, &q.store)
	return s, err
}

// LastSettled returns the time of the last settled item, by the clock of Redis, or the zero time.
func (q *Queue) LastSettled(ctx context.Context) (time.Time, error) {
	if q.err != nil {
		return time.Time{}, q.err
	}
	ms, err := q.rdb.HGet(ctx, q.keys.meta, "settled").Int64()
	if errors.Is(err, redis.Nil) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time of the last settled item: %w", err)
	}
	return time.UnixMilli(ms), nil
}

// Counts are the items of a lane by state. Delayed ones are among the queued.
type Counts struct {
	Queued     int64 `json:"queued"`
	InProgress int64 `json:"in_progress"`
	Done       int64 `json:"done"`
	Skipped    int64 `json:"skipped"`
	Error      int64 `json:"error"`
}

// of returns the counter of a state, nil if it has none.
func (c *Counts) of(s State) *int64 {
	switch s {
	case StateQueued:
		return &c.Queued
	case StateInProgress:
		return &c.InProgress
	case StateDone:
		return &c.Done
	case StateSkipped:
		return &c.Skipped
	case StateError:
		return &c.Error
	}
	return nil
}

// ErrLanesNotCounted means that a queue does not count by lane.
var ErrLanesNotCounted = errors.New("the queue does not count by lane; set Config.CountLanes before its first item is added")

// LaneStats reads the counters by lane, all at one moment. A lane is named by
// the resource keys of its items, in their order, joined by the control
// character U+001F, which no key holds: the key itself if there is one, "" for
// items without. Lanes without items are left out. It returns
// ErrLanesNotCounted unless Config.CountLanes was set when the first item was
// added.
func (q *Queue) LaneStats(ctx context.Context) (map[string]Counts, error) {
	return readLanes(ctx, &q.store)
}

func readLanes(ctx context.Context, s *store) (map[string]Counts, error) {
	v, err := s.run(ctx, "read statistics of lanes", "lanestats")
	if err != nil {
		return nil, err
	}
	list, _ := v.([]any)
	if toInt(list[0]) == 0 {
		return nil, fmt.Errorf("read statistics of lanes in queue %s: %w", s.name, ErrLanesNotCounted)
	}
	lanes := make(map[string]Counts)
	for at := range slices.Chunk(list[1:], 3) {
		addLane(lanes, toString(at[0]), toString(at[1]), toInt(at[2]))
	}
	return lanes, nil
}

// LaneStatsOf is LaneStats of several queues of one Redis, in one round trip.
// The counters of each are of one moment.
func LaneStatsOf(ctx context.Context, queues ...*Queue) ([]map[string]Counts, error) {
	if len(queues) == 0 {
		return nil, nil
	}
	meta, counts := make([]*redis.SliceCmd, len(queues)), make([]*redis.MapStringStringCmd, len(queues))
	if _, err := queues[0].rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, q := range queues {
			if q.err != nil {
				return q.err
			}
			meta[i], counts[i] = p.HMGet(ctx, q.keys.meta, "v", "lanes"), p.HGetAll(ctx, q.keys.counts)
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read statistics of lanes in %d queues: %w", len(queues), err)
	}
	all := make([]map[string]Counts, len(queues))
	for i, q := range queues {
		version, _ := strconv.Atoi(toString(meta[i].Val()[0]))
		uncounted := toString(meta[i].Val()[1]) == "" && len(counts[i].Val()) > 0
		if uncounted || version > newest { // the script returns the error
			lanes, err := q.LaneStats(ctx)
			if err != nil {
				return nil, err
			}
			all[i] = lanes
			continue
		}
		all[i] = map[string]Counts{}
		for field, text := range counts[i].Val() {
			if state, lane, ok := strings.Cut(field, "\x00"); ok {
				n, _ := strconv.ParseInt(text, 10, 64)
				addLane(all[i], state, lane, n)
			}
		}
	}
	return all, nil
}

// newest is the version of queues that this program knows; see lua/common.lua.
const newest = 2

// addLane adds a counter of a lane.
func addLane(lanes map[string]Counts, state, lane string, n int64) {
	name := laneName(lane)
	counts := lanes[name]
	if at := counts.of(State(state)); at != nil {
		*at = n
	}
	lanes[name] = counts
}

// laneName is how LaneStats names a lane of a record.
func laneName(lane string) string { return strings.TrimSuffix(lane, "\x1f") }

// cards are the sizes of the sets beside the counters, and how often the queue
// has changed.
type cards struct{ ready, leased, failed, moves int64 }

func readStats(ctx context.Context, s *store) (Stats, cards, error) {
	n, err := s.ints(ctx, "read statistics", "stats")
	if err != nil {
		return Stats{}, cards{}, err
	}
	return Stats{
		Queued: n[0], InProgress: n[1], Done: n[2], Skipped: n[3], Error: n[4],
		Total:   n[0] + n[1] + n[2] + n[3] + n[4],
		Delayed: n[5], Outputs: n[9], Paused: n[11] == 1, Sealed: n[14] == 1,
		Refused: n[15], Expired: n[12], Waiting: float64(n[13]) / 1000,
	}, cards{ready: n[6], leased: n[7], failed: n[8], moves: n[10]}, nil
}
