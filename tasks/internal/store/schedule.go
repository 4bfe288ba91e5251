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

// ErrLate means that a fenced change came after its time.
var ErrLate = errors.New("came after the lease it was made under")

// keepSchedule is how long an entry is remembered that no scheduler has.
const keepSchedule = 7 * 24 * time.Hour

// leadAtOnce bounds the entries of one script.
const leadAtOnce = 200

// Claim is a request to lead an entry of the schedule, with the data to display.
type Claim struct {
	Name, Spec string
	Next       time.Time
	Overlap    string // policy for overlapping ticks
}

// Lease is the reply to a [Claim].
type Lease struct {
	Token int64     // of this leadership; 0 when someone else leads
	Until time.Time // of whoever leads, by Redis's clock
	Last  time.Time // the tick up to which all is decided

	Paused   bool
	Request  string // the first requested tick; empty for none
	Workflow string // of the last tick that was sent
}

// Lead claims entries for a scheduler, or renews its claims, and returns the time by Redis's clock.
func (s Schedule) Lead(ctx context.Context, me string, lease time.Duration, claims []Claim) (leases []Lease, now time.Time, err error) {
	leases = make([]Lease, 0, len(claims))
	for len(leases) < len(claims) || now.IsZero() {
		part := claims[len(leases):min(len(claims), len(leases)+leadAtOnce)]
		keys := []string{s.schedulesKey()}
		args := []any{me, lease.Milliseconds(), keepSchedule.Milliseconds()}
		for _, c := range part {
			keys = append(keys, s.scheduleKey(c.Name))
			args = append(args, c.Name, c.Spec, c.Next.UnixMilli(), c.Overlap)
		}
		res, err := s.scripts["lead"].Run(ctx, s.rdb, keys, args...).Slice()
		if err != nil {
			return nil, now, fmt.Errorf("lead schedule: %w", err)
		}
		const size = 6
		if len(res) != 1+size*len(part) {
			return nil, now, fmt.Errorf("lead schedule: script returned %v", res)
		}
		now = time.UnixMilli(toInt(res[0]))
		for i := range part {
			r := res[1+size*i:]
			leases = append(leases, Lease{toInt(r[0]), time.UnixMilli(toInt(r[1])), time.UnixMilli(toInt(r[2])), toInt(r[3]) == 1, text(r[4]), text(r[5])})
		}
	}
	return leases, now, nil
}

// Tick is the decision about a tick.
type Tick struct {
	At, Next time.Time
	Workflow string // the workflow that was sent; empty if the tick was missed
	Missed   int    // ticks passed over before it, or with it
	Error    string // why nothing was sent
	Request  string // the request, if the tick was requested
	Queue    int    // above 0: queue the tick, unless so many ticks were requested
}

// Ticked records a decision of the leader with a token, and returns the first requested tick that remains. ok is false if it
// leads no more.
func (s Schedule) Ticked(ctx context.Context, name string, token int64, t Tick) (request string, ok bool, err error) {
	res, err := s.scripts["tick"].Run(ctx, s.rdb, []string{s.scheduleKey(name), s.scheduleDueKey(name)}, token, t.At.UnixMilli(), t.Next.UnixMilli(),
		t.Workflow, t.Missed, t.Error, t.Request, t.Queue, keepSchedule.Milliseconds()).Slice()
	if err != nil {
		return "", false, fmt.Errorf("record tick of %s: %w", name, err)
	}
	if len(res) == 0 {
		return "", false, nil
	}
	return text(res[0]), true, nil
}

// The errors of changes to entries.
var (
	ErrNoEntry = Kind(ErrNotFound, "no scheduler had an entry with this name in the last week")
	ErrLed     = Kind(ErrRunning, "a running scheduler has the entry")
	ErrFull    = fmt.Errorf("an entry has at most %d requested ticks", MaxRequests)
)

// MaxRequests is the maximum number of requested ticks of an entry.
const MaxRequests = 1000

// Pause stops the ticks of an entry.
func (s Schedule) Pause(ctx context.Context, name string) error {
	_, err := s.change(ctx, "pause", name)
	return err
}

// Resume ends a pause; the ticks that were due in it are not sent.
func (s Schedule) Resume(ctx context.Context, name string) error {
	_, err := s.change(ctx, "resume", name)
	return err
}

// Delete forgets an entry that no scheduler leads.
func (s Schedule) Delete(ctx context.Context, name string) error {
	_, err := s.change(ctx, "delete", name)
	return err
}

// Trigger requests a tick now, and returns its time.
func (s Schedule) Trigger(ctx context.Context, name string) (time.Time, error) {
	at, err := s.change(ctx, "trigger", name)
	return time.UnixMilli(at), err
}

// Backfill requests ticks.
func (s Schedule) Backfill(ctx context.Context, name string, ticks []time.Time) error {
	args := make([]any, len(ticks))
	for i, t := range ticks {
		args[i] = t.UnixMilli()
	}
	_, err := s.change(ctx, "backfill", name, args...)
	return err
}

func (s Schedule) change(ctx context.Context, op, name string, ticks ...any) (int64, error) {
	args := append([]any{op, name, MaxRequests, keepSchedule.Milliseconds()}, ticks...)
	res, err := s.scripts["entry"].Run(ctx, s.rdb, []string{s.scheduleKey(name), s.scheduleDueKey(name), s.schedulesKey()}, args...).Slice()
	if err != nil {
		return 0, err
	}
	switch text(res[0]) {
	case "unknown":
		return 0, ErrNoEntry
	case "full":
		return 0, ErrFull
	case "led":
		return 0, fmt.Errorf("%w: %s; pause the entry, or remove it from the program", ErrLed, text(res[1]))
	}
	return toInt(res[1]), nil
}

// Resign releases the entries that a scheduler leads, so that others can lead them immediately.
func (s Schedule) Resign(ctx context.Context, me string, names []string) error {
	for len(names) > 0 {
		part := names[:min(len(names), leadAtOnce)]
		names = names[len(part):]
		keys := make([]string, len(part))
		for i, n := range part {
			keys[i] = s.scheduleKey(n)
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
	names, err := s.rdb.ZRangeByScore(ctx, s.schedulesKey(), &redis.ZRangeBy{Min: strconv.FormatInt(now.UnixMilli(), 10), Max: "+inf"}).Result()
	if err != nil {
		return nil, fmt.Errorf("list schedule: %w", err)
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.MapStringStringCmd, len(names))
	requests := make([]*redis.IntCmd, len(names))
	for i, n := range names {
		cmds[i], requests[i] = pipe.HGetAll(ctx, s.scheduleKey(n)), pipe.ZCard(ctx, s.scheduleDueKey(n))
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
			Last: unixMilli(h["ran"]), Workflow: h["workflow"], Error: h["error"],
			Overlap: h["overlap"], Paused: unixMilli(h["paused"]), Requested: requests[i].Val()}
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
