package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/tasktype"
)

// ErrLate says that a fenced change came after its time.
var ErrLate = errors.New("came after the lease it was made under")

// keepSchedule is how long an entry is remembered that no scheduler has.
const keepSchedule = 7 * 24 * time.Hour

// leadAtOnce bounds the entries of one script.
const leadAtOnce = 200

// Claim is an entry that a scheduler wants to lead, with what others should see of it.
type Claim struct {
	Name, Spec string
	Next       time.Time
}

// Lease is the answer to a [Claim].
type Lease struct {
	Token int64     // of this leadership; 0 when someone else leads
	Until time.Time // of whoever leads, by Redis's clock
	Last  time.Time // the tick up to which all is decided
}

// Lead claims entries for a scheduler, or renews its claims, and returns the time by Redis's clock.
func (s Schedule) Lead(ctx context.Context, me string, lease time.Duration, claims []Claim) (leases []Lease, now time.Time, err error) {
	leases = make([]Lease, 0, len(claims))
	for len(leases) < len(claims) || now.IsZero() {
		part := claims[len(leases):min(len(claims), len(leases)+leadAtOnce)]
		keys := []string{schedulesKey}
		args := []any{me, lease.Milliseconds(), keepSchedule.Milliseconds()}
		for _, c := range part {
			keys = append(keys, scheduleKey(c.Name))
			args = append(args, c.Name, c.Spec, c.Next.UnixMilli())
		}
		res, err := s.scripts["lead"].Run(ctx, s.rdb, keys, args...).Slice()
		if err != nil {
			return nil, now, fmt.Errorf("lead schedule: %w", err)
		}
		if len(res) != 1+3*len(part) {
			return nil, now, fmt.Errorf("lead schedule: script answered %v", res)
		}
		now = time.UnixMilli(toInt(res[0]))
		for i := range part {
			leases = append(leases, Lease{toInt(res[3*i+1]), time.UnixMilli(toInt(res[3*i+2])), time.UnixMilli(toInt(res[3*i+3]))})
		}
	}
	return leases, now, nil
}

// Tick is what was decided about a tick.
type Tick struct {
	At, Next time.Time
	Workflow string // what was sent; empty when the tick was missed
	Missed   int    // ticks passed over before it, or with it
	Error    string // why nothing was sent
}

// Ticked records a decision of the leader with a token. ok is false if it leads no more.
func (s Schedule) Ticked(ctx context.Context, name string, token int64, t Tick) (ok bool, err error) {
	n, err := s.scripts["tick"].Run(ctx, s.rdb, []string{scheduleKey(name)}, token, t.At.UnixMilli(), t.Next.UnixMilli(),
		t.Workflow, t.Missed, t.Error).Int()
	if err != nil {
		return false, fmt.Errorf("record tick of %s: %w", name, err)
	}
	return n == 1, nil
}

// Resign gives up what a scheduler leads, so that others can lead at once.
func (s Schedule) Resign(ctx context.Context, me string, names []string) error {
	for len(names) > 0 {
		part := names[:min(len(names), leadAtOnce)]
		names = names[len(part):]
		keys := make([]string, len(part))
		for i, n := range part {
			keys[i] = scheduleKey(n)
		}
		if err := s.scripts["resign"].Run(ctx, s.rdb, keys, me).Err(); err != nil {
			return fmt.Errorf("resign from schedule: %w", err)
		}
	}
	return nil
}

// Entries returns the entries that schedulers had in the last days.
func (s Schedule) Entries(ctx context.Context) ([]tasktype.ScheduleEntry, error) {
	now, err := s.rdb.Time(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("read time: %w", err)
	}
	names, err := s.rdb.ZRangeByScore(ctx, schedulesKey, &redis.ZRangeBy{Min: strconv.FormatInt(now.UnixMilli(), 10), Max: "+inf"}).Result()
	if err != nil {
		return nil, fmt.Errorf("list schedule: %w", err)
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.MapStringStringCmd, len(names))
	for i, n := range names {
		cmds[i] = pipe.HGetAll(ctx, scheduleKey(n))
	}
	if len(names) > 0 {
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, fmt.Errorf("read schedule: %w", err)
		}
	}
	out := make([]tasktype.ScheduleEntry, 0, len(names))
	for i, n := range names {
		h := cmds[i].Val()
		if len(h) == 0 {
			continue
		}
		e := tasktype.ScheduleEntry{Name: n, Spec: h["spec"], Next: unixMilli(h["next"]),
			Last: unixMilli(h["ran"]), Workflow: h["workflow"], Error: h["error"]}
		if unixMilli(h["until"]).After(now) {
			e.Leader = h["holder"]
		}
		e.Sent, _ = strconv.ParseInt(h["sent"], 10, 64)
		e.Missed, _ = strconv.ParseInt(h["missed"], 10, 64)
		out = append(out, e)
	}
	return out, nil
}

// unixMilli reads a time; the zero time when there is none.
func unixMilli(s string) time.Time {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(n)
}
