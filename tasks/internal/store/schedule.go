package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/tasktype"
)

// ScheduleRef takes the place of the workflow in entries for schedules, see [Due].
const ScheduleRef = "!schedule"

// The errors of changes to schedules.
var (
	ErrNoSchedule = Kind(ErrNotFound, "no schedule has this name")
	ErrFull       = fmt.Errorf("a schedule has at most %d requested ticks", MaxRequests)
	ErrDecided    = errors.New("the tick was decided before, or the schedule has changed")
)

// MaxRequests is the maximum number of requested ticks of a schedule.
const MaxRequests = 1000

// ScheduleState is a schedule as it is stored.
type ScheduleState struct {
	tasktype.ScheduleEntry
	Work    []byte
	Request string // the first requested tick; empty for none
}

// ScheduleChange is the new state of a schedule.
type ScheduleChange struct {
	tasktype.ScheduleEntry
	Work []byte
	Due  string // of Next, see [DueScore]
}

// DueScore writes when a tick is due. A schedule that ticks often comes before others that are due at the same time.
func DueScore(at time.Time, often bool) string {
	if often {
		return strconv.FormatInt(at.UnixMilli()-1, 10) + ".5"
	}
	return strconv.FormatInt(at.UnixMilli(), 10)
}

// Put creates or changes a schedule. Its next tick is kept if its spec and jitter are unchanged. With a group, it becomes a member of it,
// unless it is in another one. It returns how long until something is due, negative for never.
func (s Schedules) Put(ctx context.Context, c *ScheduleChange) (time.Duration, error) {
	labels, err := json.Marshal(c.Labels)
	if err != nil {
		return 0, err
	}
	_, wait, err := s.change(ctx, "put", c.Name, c.Group, c.Next.UnixMilli(), c.Due, c.Work, "spec", c.Spec, "jitter", c.Jitter.Milliseconds(),
		"overlap", c.Overlap, "catchup", c.CatchUp, "labels", labels, "tasks", c.Tasks)
	return wait, err
}

// Delete deletes a schedule. With a group, it deletes it only if it is a member.
func (s Schedules) Delete(ctx context.Context, name, group string) error {
	_, _, err := s.change(ctx, "delete", name, group)
	return err
}

// Pause stops the ticks of a schedule.
func (s Schedules) Pause(ctx context.Context, name string) error {
	_, _, err := s.change(ctx, "pause", name)
	return err
}

// Resume ends a pause. c has the spec and the jitter of which the next tick was computed; ErrDecided means that they have changed.
func (s Schedules) Resume(ctx context.Context, c *ScheduleChange) (time.Duration, error) {
	_, wait, err := s.change(ctx, "resume", c.Name, c.Spec, c.Jitter.Milliseconds(), c.Next.UnixMilli(), c.Due)
	return wait, err
}

// Trigger requests a tick now, and returns its time. A connection may repeat the call.
func (s Schedules) Trigger(ctx context.Context, name string) (time.Time, error) {
	at, _, err := s.change(ctx, "trigger", name, MaxRequests, rand.Text())
	return time.UnixMilli(at), err
}

// Backfill requests ticks.
func (s Schedules) Backfill(ctx context.Context, name string, ticks []time.Time) error {
	args := []any{MaxRequests}
	for _, t := range ticks {
		args = append(args, t.UnixMilli())
	}
	_, _, err := s.change(ctx, "backfill", name, args...)
	return err
}

func (s Schedules) change(ctx context.Context, op, name string, args ...any) (tick int64, wait time.Duration, err error) {
	shard, err := s.Shard(ctx, name)
	if err != nil {
		return 0, 0, err
	}
	res, err := s.call(ctx, "schedule", shard, append([]any{op, name}, args...)...)
	if err != nil {
		return 0, 0, err
	}
	if err := map[string]error{"unknown": ErrNoSchedule, "full": ErrFull, "changed": ErrDecided}[text(res[0])]; err != nil {
		return 0, 0, err
	}
	if text(res[0]) == "group" {
		return 0, 0, fmt.Errorf("it is in the group %q: choose another name, or delete it", text(res[1]))
	}
	return toInt(res[1]), untilDue(res), nil
}

// untilDue returns the third value of a reply, a time in ms; negative for none.
func untilDue(res []any) time.Duration {
	if len(res) < 3 || res[2] == nil {
		return -1
	}
	return time.Duration(toInt(res[2])) * time.Millisecond
}

// Shard returns the shard of a schedule.
func (s Schedules) Shard(ctx context.Context, name string) (int, error) {
	n, err := s.shardCount(ctx)
	return shardOf(name, n), err
}

// Align returns the ID of a workflow in the shard of a schedule: id, if necessary with a suffix. It is the same in all processes.
func (s Schedules) Align(ctx context.Context, name, id string) (string, error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return "", err
	}
	aligned := id
	for k := 0; shardOf(aligned, n) != shardOf(name, n); k++ {
		aligned = id + "_" + strconv.Itoa(k)
	}
	return aligned, nil
}

// Tick is a decision about a tick of a schedule.
type Tick struct {
	Name     string
	Tick     string    // the field next of the schedule, unix ms, or its first requested tick
	Next     time.Time // the tick after it; zero for a requested tick
	Due      string    // of Next, see [DueScore]
	Keep     bool      // a requested tick is decided later, after Wait
	Wait     time.Duration
	Missed   int           // ticks passed over
	Error    string        // why
	Requests []time.Time   // ticks to request
	UntilDue time.Duration // the result: how long until something is due, negative for never
}

func (t *Tick) args() []any {
	next, due := "", t.Due
	switch {
	case !t.Next.IsZero():
		next = strconv.FormatInt(t.Next.UnixMilli(), 10)
	case !t.Keep:
		due = "done"
	}
	requests := make([]string, len(t.Requests))
	for i, at := range t.Requests {
		requests[i] = strconv.FormatInt(at.UnixMilli(), 10)
	}
	return []any{t.Name, t.Tick, next, due, t.Missed, t.Error, strings.Join(requests, " "), t.Wait.Milliseconds()}
}

// Decide records a tick that sends nothing.
func (s Schedules) Decide(ctx context.Context, shard int, t *Tick) error {
	res, err := s.call(ctx, "tick", shard, t.args()...)
	switch {
	case err != nil:
		return err
	case text(res[0]) == "stale":
		return ErrDecided
	}
	t.UntilDue = untilDue(res)
	return nil
}

// Get returns a schedule.
func (s Schedules) Get(ctx context.Context, name string) (*ScheduleState, error) {
	shard, err := s.Shard(ctx, name)
	if err != nil {
		return nil, err
	}
	pipe := s.rdb.Pipeline()
	fields, work := pipe.HGetAll(ctx, s.scheduleKey(shard, "e:"+name)), pipe.Get(ctx, s.scheduleKey(shard, "work:"+name))
	first, count := pipe.ZRange(ctx, s.scheduleKey(shard, "due:"+name), 0, 0), pipe.ZCard(ctx, s.scheduleKey(shard, "due:"+name))
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read schedule %s: %w", name, err)
	}
	h := fields.Val()
	if len(h) == 0 {
		return nil, ErrNoSchedule
	}
	st := &ScheduleState{ScheduleEntry: scheduleEntry(name, h, count.Val()), Work: []byte(work.Val())}
	if some := first.Val(); len(some) > 0 {
		st.Request = some[0]
	}
	return st, nil
}

func scheduleEntry(name string, h map[string]string, requested int64) tasktype.ScheduleEntry {
	e := tasktype.ScheduleEntry{Name: name, Group: h["group"], Spec: h["spec"], Tasks: h["tasks"], Overlap: h["overlap"], Workflow: h["workflow"], Error: h["error"],
		Jitter: time.Duration(toInt(h["jitter"])) * time.Millisecond, CatchUp: int(toInt(h["catchup"])), Sent: toInt(h["sent"]), Missed: toInt(h["missed"]),
		Next: unixMilli(h["next"]), Last: unixMilli(h["ran"]), Paused: unixMilli(h["paused"]), Requested: requested}
	_ = json.Unmarshal([]byte(h["labels"]), &e.Labels) // Put has written it
	return e
}

// List returns a page of the schedules that f selects, by name, and the cursor of the next page.
func (s Schedules) List(ctx context.Context, f tasktype.ScheduleFilter) (page []tasktype.ScheduleEntry, next string, err error) {
	from := "[" + f.Prefix
	if f.Cursor >= f.Prefix && f.Cursor != "" {
		from = "(" + f.Cursor
	}
	shards, err := onShards(ctx, s.db, "list schedules", func(pipe redis.Pipeliner, shard int) *redis.StringSliceCmd {
		return pipe.ZRangeByLex(ctx, s.scheduleKey(shard, "names"), &redis.ZRangeBy{Min: from, Max: "[" + f.Prefix + "\xff", Count: int64(f.Limit) + 1})
	})
	var names []string
	for _, some := range shards {
		names = append(names, some.Val()...)
	}
	slices.Sort(names)
	if len(names) > f.Limit {
		names = names[:f.Limit]
		next = names[f.Limit-1]
	}
	if err != nil {
		return nil, "", err
	}
	type read struct {
		fields   *redis.MapStringStringCmd
		requests *redis.IntCmd
	}
	reads, err := onEach(ctx, s.db, "list schedules", names, func(pipe redis.Pipeliner, name string) read {
		shard := shardOf(name, len(shards))
		return read{pipe.HGetAll(ctx, s.scheduleKey(shard, "e:"+name)), pipe.ZCard(ctx, s.scheduleKey(shard, "due:"+name))}
	})
	for i, r := range reads {
		h := r.fields.Val() // empty if it was deleted meanwhile
		if e := scheduleEntry(names[i], h, r.requests.Val()); len(h) > 0 && containsAll(e.Labels, f.Labels) {
			page = append(page, e)
		}
	}
	return page, next, err
}

// Group returns the names of the schedules of a group.
func (s Schedules) Group(ctx context.Context, group string) (names []string, err error) {
	shards, err := onShards(ctx, s.db, "read group "+group+" of schedules", func(pipe redis.Pipeliner, shard int) *redis.StringSliceCmd {
		return pipe.SMembers(ctx, s.scheduleKey(shard, "group:"+group))
	})
	for _, some := range shards {
		names = append(names, some.Val()...)
	}
	return names, err
}

// Recheck makes all schedules of a shard due, so that workers compute their next ticks again: after the clock of Redis was set back.
func (s Schedules) Recheck(ctx context.Context, shard int, now time.Time) error {
	for {
		some, err := s.rdb.ZRevRangeByScoreWithScores(ctx, s.schedulesKey(shard), &redis.ZRangeBy{Min: "(" + strconv.FormatInt(now.UnixMilli(), 10), Max: "+inf", Count: 1000}).Result()
		if err != nil || len(some) == 0 {
			return err
		}
		for i := range some {
			some[i].Score = float64(now.UnixMilli())
		}
		if err := s.rdb.ZAddXX(ctx, s.schedulesKey(shard), some...).Err(); err != nil {
			return err
		}
	}
}

// unixMilli reads a time; the zero time when there is none.
func unixMilli(s string) time.Time {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(n)
}
