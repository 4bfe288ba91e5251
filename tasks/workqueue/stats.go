package workqueue

import (
	"cmp"
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
	all, err := Glances(ctx, Wanted{Queue: q})
	if err != nil {
		return nil, err
	}
	return all[0].Lanes, nil
}

// Wanted are the items of a queue that Glances reads.
type Wanted struct {
	Queue *Queue
	IDs   []string
}

// A Glance is a part of the state of a queue.
type Glance struct {
	Lanes map[string]Counts // as LaneStats returns them
	Items []Info            // those wanted that exist, with their state, attempts, token, worker and note only
}

// Glances reads the counters by lane and some items of queues of one Redis, without a script and in one round trip: lists are cheap.
// The counters of a queue are of one moment, but its items may be of an earlier one.
func Glances(ctx context.Context, wanted ...Wanted) ([]Glance, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	type reads struct {
		meta       *redis.MapStringStringCmd
		item, note *redis.SliceCmd
	}
	cmds := make([]reads, len(wanted))
	for _, w := range wanted {
		if w.Queue.err != nil {
			return nil, w.Queue.err
		}
	}
	if _, err := wanted[0].Queue.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, w := range wanted {
			k := w.Queue.keys
			if len(w.IDs) > 0 {
				cmds[i].item, cmds[i].note = p.HMGet(ctx, k.rec, w.IDs...), p.HMGet(ctx, k.note, w.IDs...) // a note is not older than its record
			}
			cmds[i].meta = p.HGetAll(ctx, k.meta)
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read queue %s and %d others: %w", wanted[0].Queue.name, len(wanted)-1, err)
	}
	all := make([]Glance, len(wanted))
	for i, w := range wanted {
		meta := cmds[i].meta.Val()
		if v, _ := strconv.Atoi(meta["v"]); v > version {
			return nil, fmt.Errorf("read queue %s: %w", w.Queue.name, ErrNewer)
		}
		all[i].Lanes = lanesOf(meta)
		if meta["lanes"] == "" && meta["moves"] != "" {
			return nil, fmt.Errorf("read statistics of lanes in queue %s: %w", w.Queue.name, ErrLanesNotCounted)
		}
		for k, id := range w.IDs {
			rec := toString(cmds[i].item.Val()[k])
			if rec == "" {
				continue
			}
			info := Info{Item: Item{ID: id}, Note: toString(cmds[i].note.Val()[k])}
			if err := info.setRecord(rec); err != nil {
				return nil, err
			}
			all[i].Items = append(all[i].Items, info)
		}
	}
	return all, nil
}

// lanesOf returns the counters of lanes in the metadata of a queue.
func lanesOf(meta map[string]string) map[string]Counts {
	lanes := map[string]Counts{}
	for field, text := range meta {
		state, lane, ok := strings.Cut(field, "\x00")
		if !ok || text == "0" {
			continue
		}
		of := lanes[laneName(lane)]
		if n := of.of(State(state)); n != nil {
			*n, _ = strconv.ParseInt(text, 10, 64)
		}
		lanes[laneName(lane)] = of
	}
	return lanes
}

// laneName is how LaneStats names a lane of a record.
func laneName(lane string) string { return strings.TrimSuffix(lane, "\x1f") }

// cutLane returns the lane at the end of a record, and the worker after it.
func cutLane(end string) (lane, worker string) {
	at := strings.LastIndexByte(end, '\x1f') + 1
	return end[:at], end[at:]
}

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

// maxScan bounds the items that Scan is asked for at a time.
const maxScan = 1000

// Scan reads a page of about n items in any state; n is at most 1000, and a small queue may be one page. The cursor
// is "" for the first page, then next of the previous page; next is "" after the last page. An item that is in the
// queue during the whole scan is in at least one page, and may be in two. The items of a page are in the order in
// which they were last queued: the order of their addition, except for items that were delayed, failed or requeued
// since.
func (q *Queue) Scan(ctx context.Context, cursor string, n int) (items []Info, next string, err error) {
	if q.err != nil {
		return nil, "", q.err
	}
	var at uint64
	if cursor != "" {
		if at, err = strconv.ParseUint(cursor, 10, 64); err != nil || at == 0 {
			return nil, "", fmt.Errorf("list the items of queue %s: cursor %.40q is not one that Scan returned", q.name, cursor)
		}
	}
	n = min(max(n, 1), maxScan)
	for {
		kv, after, err := q.rdb.HScan(ctx, q.keys.rec, at, "", int64(n)).Result()
		if err != nil {
			return nil, "", fmt.Errorf("list the items of queue %s: %w", q.name, err)
		}
		if items, err = readScanned(ctx, q, kv); err != nil {
			return nil, "", err
		}
		if at = after; at == 0 {
			return items, "", nil
		}
		if len(items) > 0 {
			return items, strconv.FormatUint(at, 10), nil
		}
	}
}

// readScanned reads the items of a page of records, in their order.
func readScanned(ctx context.Context, q *Queue, kv []string) ([]Info, error) {
	// A scan may show a field twice while the hash is being resized.
	places := make(map[string]int64, len(kv)/2)
	ids := make([]string, 0, len(kv)/2)
	for i := 0; i+1 < len(kv); i += 2 {
		if _, ok := places[kv[i]]; !ok {
			places[kv[i]] = placeOf(kv[i+1])
			ids = append(ids, kv[i])
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(places[a], places[b]), cmp.Compare(a, b))
	})
	return q.Get(ctx, ids...)
}

// version is the newest version of a queue that this program can use, see lua/common.lua.
const version = 2

// recordFields is how many fields a record has, see lua/common.lua; the last is
// the lane with the worker, which may hold spaces.
const recordFields = 9

// placeOf returns the place of a record's item among the ready items. Later items have higher places.
func placeOf(record string) int64 {
	f := strings.SplitN(record, " ", recordFields)
	if len(f) != recordFields {
		return 0
	}
	n, _ := strconv.ParseInt(f[5], 10, 64)
	return n
}
