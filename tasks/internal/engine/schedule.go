package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/robfig/cron/v3"
	"golang.org/x/sync/errgroup"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// Schedules changes schedules, and sends their ticks.
type Schedules struct {
	*env
	store.Schedules
	sender *Sender
}

// Schedule is a schedule to put.
type Schedule struct {
	Name, Group, Spec string
	Sig               *graph.Sig
	Opts              *graph.Opts
	CatchUp           int
	Jitter            time.Duration
}

// Limits of schedules.
const (
	maxScheduleName = 200
	maxJitter       = 24 * time.Hour
	maxMissed       = 7 * 24 * time.Hour   // age of the oldest tick that is caught up with
	restartTime     = 15 * time.Second     // how late a tick is sent that is not caught up with, after an outage
	busyTime        = time.Hour            // the same if workers were running, and busy
	blockedTick     = time.Second          // between two looks whether a requested tick can be sent, which waits for the end of a workflow
	overlapTTL      = 366 * 24 * time.Hour // of the unique key of the workflows of a schedule
)

// ErrSchedule means that a schedule cannot be put.
var ErrSchedule = store.Kind(graph.ErrInvalid, "invalid schedule")

// compile returns the stored form of a schedule.
func (s *Schedules) compile(ctx context.Context, c *Schedule) (*store.ScheduleChange, error) {
	invalid := func(format string, args ...any) (*store.ScheduleChange, error) {
		return nil, fmt.Errorf("%w: %w", ErrSchedule, fmt.Errorf(format, args...))
	}
	if !scheduleName(c.Name) {
		return invalid("Name %.50q: give 1 to %d bytes of UTF-8 without control characters", c.Name, maxScheduleName)
	}
	when, err := ParseSpec(c.Spec)
	if err != nil {
		return invalid("Spec: %w", err)
	}
	if c.CatchUp < 0 || c.CatchUp > store.MaxRequests {
		return invalid("CatchUp %d: give 0 to %d", c.CatchUp, store.MaxRequests)
	}
	o := c.Opts
	if d := s.sender.Defaults; d != nil {
		o = d.Over(o)
	}
	if o.ID != "" || o.At != nil || o.Deadline != nil {
		return invalid("Options: drop tasks.ID, tasks.At and tasks.Deadline: each tick has its own ID and time; use tasks.In or tasks.Timeout")
	}
	if o.Overlap != "" && o.Unique == "" {
		own := *o
		own.Unique, own.UniqueTTL = ScheduleKey(c.Name), overlapTTL
		o = &own
	}
	g, err := compile(c.Sig, o)
	if err != nil {
		return nil, fmt.Errorf("%w: Work: %w", ErrSchedule, err)
	}
	raw, err := packed(g, o)
	if err != nil {
		return nil, fmt.Errorf("%w: Work: %w", ErrSchedule, err)
	}
	shard, err := s.store.Schedules.Shard(ctx, c.Name)
	if err != nil {
		return nil, err
	}
	now, err := s.redisTime(ctx, shard)
	if err != nil {
		return nil, err
	}
	first, last := g.Ends()
	out := &store.ScheduleChange{Work: raw, ScheduleEntry: tasktype.ScheduleEntry{Name: c.Name, Group: c.Group, Spec: strings.TrimSpace(c.Spec), Tasks: store.Title(first, last),
		Overlap: o.Overlap, CatchUp: c.CatchUp, Jitter: c.Jitter, Labels: o.Labels}}
	out.Next = when.Next(now)
	if period := when.Next(out.Next).Sub(out.Next); c.Jitter < 0 || c.Jitter > maxJitter || c.Jitter >= period {
		return invalid("Jitter %s: give a duration from 0 to %s that is shorter than the time between ticks, %s", c.Jitter, maxJitter, period)
	}
	out.Due = dueScore(when, c.Name, c.Jitter, out.Next)
	return out, nil
}

// ScheduleKey returns the unique key of the workflows of a schedule with an overlap policy.
func ScheduleKey(name string) string { return "schedule:" + name }

func scheduleName(name string) bool {
	return name != "" && len(name) <= maxScheduleName && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// dueAt returns when a tick is sent: after a random time that is the same in all workers.
func dueAt(name string, jitter time.Duration, tick time.Time) time.Time {
	if jitter < time.Millisecond {
		return tick
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name + strconv.FormatInt(tick.UnixMilli(), 10)))
	return tick.Add(time.Duration(h.Sum64()%uint64(jitter.Milliseconds())) * time.Millisecond)
}

// dueScore returns when a tick is due, in its stored form.
func dueScore(when cron.Schedule, name string, jitter time.Duration, tick time.Time) string {
	return store.DueScore(dueAt(name, jitter, tick), when.Next(tick).Sub(tick) < time.Minute)
}

// Put creates or changes a schedule.
func (s *Schedules) Put(ctx context.Context, c *Schedule) error {
	change, err := s.compile(ctx, c)
	if err != nil {
		return err
	}
	return s.put(ctx, change)
}

func (s *Schedules) put(ctx context.Context, c *store.ScheduleChange) error {
	wait, err := s.store.Schedules.Put(ctx, c)
	return errors.Join(err, s.wake(ctx, c.Name, wait))
}

// wake makes workers look for a schedule that is due within a time. They look after [sweepEvery] in any case.
func (s *Schedules) wake(ctx context.Context, name string, wait time.Duration) error {
	if wait < 0 || wait > sweepEvery {
		return nil
	}
	shard, err := s.store.Schedules.Shard(ctx, name)
	if err != nil {
		return err
	}
	return s.store.Tell(ctx, shard, "t "+strconv.FormatInt(wait.Milliseconds(), 10))
}

// syncAtOnce is how many schedules are put at once.
const syncAtOnce = 8

// Sync makes a group equal to a list. If a schedule of the list is invalid, nothing has changed.
func (s *Schedules) Sync(ctx context.Context, group string, list []*Schedule) error {
	if !scheduleName(group) {
		return fmt.Errorf("%w: group %.50q: give 1 to %d bytes of UTF-8 without control characters", ErrSchedule, group, maxScheduleName)
	}
	changes, names := make([]*store.ScheduleChange, len(list)), map[string]bool{}
	for i, c := range list {
		c.Group = group
		var err error
		if changes[i], err = s.compile(ctx, c); err != nil {
			return fmt.Errorf("schedule %.200q: %w", c.Name, err)
		}
		if names[c.Name] {
			return fmt.Errorf("%w: Name %q is twice in the list", ErrSchedule, c.Name)
		}
		names[c.Name] = true
	}
	old, err := s.store.Schedules.Group(ctx, group)
	if err != nil {
		return err
	}
	var steps errgroup.Group
	steps.SetLimit(syncAtOnce)
	step := func(name string, do func() error) {
		steps.Go(func() error {
			if err := do(); err != nil {
				return fmt.Errorf("schedule %.200q: %w", name, err)
			}
			return nil
		})
	}
	for _, c := range changes {
		step(c.Name, func() error { return s.put(ctx, c) })
	}
	for _, name := range old {
		if names[name] {
			continue
		}
		step(name, func() error {
			if err := s.store.Schedules.Delete(ctx, name, group); !errors.Is(err, store.ErrNoSchedule) {
				return err
			}
			return nil
		})
	}
	return steps.Wait()
}

// Delete deletes a schedule.
func (s *Schedules) Delete(ctx context.Context, name string) error {
	return s.store.Schedules.Delete(ctx, name, "")
}

// Resume ends a pause. The ticks that were due in it are not sent.
func (s *Schedules) Resume(ctx context.Context, name string) error {
	for {
		st, when, err := s.Get(ctx, name)
		if err != nil {
			return err
		}
		shard, err := s.store.Schedules.Shard(ctx, name)
		if err != nil {
			return err
		}
		now, err := s.redisTime(ctx, shard)
		if err != nil {
			return err
		}
		c := store.ScheduleChange{ScheduleEntry: st.ScheduleEntry}
		c.Next = when.Next(now)
		c.Due = dueScore(when, name, st.Jitter, c.Next)
		wait, err := s.store.Schedules.Resume(ctx, &c)
		if !errors.Is(err, store.ErrDecided) {
			return errors.Join(err, s.wake(ctx, name, wait))
		}
	}
}

// Trigger requests a tick now, and returns the ID of its workflow.
func (s *Schedules) Trigger(ctx context.Context, name string) (id string, err error) {
	at, err := s.store.Schedules.Trigger(ctx, name)
	if err != nil {
		return "", err
	}
	id, err = s.tickID(ctx, name, at)
	return id, errors.Join(err, s.wake(ctx, name, 0))
}

// Backfill requests ticks.
func (s *Schedules) Backfill(ctx context.Context, name string, ticks []time.Time) error {
	if err := s.store.Schedules.Backfill(ctx, name, ticks); err != nil {
		return err
	}
	return s.wake(ctx, name, 0)
}

// Get returns a schedule and its times.
func (s *Schedules) Get(ctx context.Context, name string) (*store.ScheduleState, cron.Schedule, error) {
	st, err := s.store.Schedules.Get(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	when, err := ParseSpec(st.Spec)
	return st, when, err
}

// maxSchedules bounds a page of schedules.
const maxSchedules = 1000

// List returns a page of the schedules that f selects, by name, and the cursor of the next page.
func (s *Schedules) List(ctx context.Context, f tasktype.ScheduleFilter) (page []tasktype.ScheduleEntry, next string, err error) {
	if f.Limit == 0 {
		f.Limit = defaultPage
	}
	if f.Limit < 1 || f.Limit > maxSchedules {
		return nil, "", fmt.Errorf("limit %d must be 1 to %d", f.Limit, maxSchedules)
	}
	return s.store.Schedules.List(ctx, f)
}

// tick handles a due schedule, which the caller has claimed at now, by the clock of Redis. Since is the end of the last outage of all
// workers. It returns nil if another worker did it.
func (s *Schedules) tick(ctx context.Context, shard int, name string, now, since time.Time) (*store.Tick, error) {
	st, when, err := s.Get(ctx, name)
	var t *store.Tick
	switch {
	case errors.Is(err, store.ErrNoSchedule):
		t = &store.Tick{Name: name}
		err = s.store.Schedules.Decide(ctx, shard, t) // which takes it off the index
	case err == nil:
		t, err = s.decide(ctx, shard, st, when, now, since)
	}
	switch {
	case errors.Is(err, store.ErrDecided):
		return nil, nil
	case err != nil:
		return nil, s.store.Explain(ctx, err)
	}
	return t, nil
}

// decide sends or skips a tick of a schedule. It does nothing if none is due.
func (s *Schedules) decide(ctx context.Context, shard int, st *store.ScheduleState, when cron.Schedule, now, since time.Time) (*store.Tick, error) {
	if st.Request != "" {
		at, _ := strconv.ParseInt(st.Request[1:], 10, 64)
		t := &store.Tick{Name: st.Name, Tick: st.Request}
		err := s.fire(ctx, shard, st, t, time.UnixMilli(at), 0)
		if err != nil || !t.Keep || !st.Paused.IsZero() || dueAt(st.Name, st.Jitter, st.Next).After(now) {
			return t, err
		}
	}
	t := &store.Tick{Name: st.Name, Tick: strconv.FormatInt(st.Next.UnixMilli(), 10)}
	next := func(after time.Time) {
		t.Next = when.Next(after)
		t.Due = dueScore(when, st.Name, st.Jitter, t.Next)
	}
	oldest := since.Add(-restartTime - st.Jitter)
	if busy := now.Add(-busyTime); busy.After(oldest) {
		oldest = busy
	}
	switch {
	case dueAt(st.Name, st.Jitter, st.Next).After(now): // the clock of Redis was set back, or others have sent ticks since now
		now, err := s.store.Clock(ctx, shard)
		if err != nil {
			return nil, err
		}
		next(now)
		if t.Next.After(st.Next) {
			next(st.Next.Add(-1))
		}
	case st.Next.Before(oldest):
		missed := latest(when, st.Next, oldest)
		n := min(len(missed), st.CatchUp)
		t.Requests, t.Missed = missed[len(missed)-n:], len(missed)-n
		if t.Missed > 0 {
			t.Error = "no worker was running in time"
		}
		next(oldest.Add(-1))
	default:
		next(st.Next)
		return t, s.fire(ctx, shard, st, t, st.Next, now.Sub(st.Next))
	}
	return t, s.store.Schedules.Decide(ctx, shard, t)
}

// latest returns the ticks from a tick until before a time: of the last week, and the latest if there are very many.
func latest(when cron.Schedule, from, until time.Time) []time.Time {
	// The number of ticks in a time is not known in advance: it is doubled until it has enough of them.
	for span := time.Minute; ; span *= 2 {
		start, whole := until.Add(-min(span, maxMissed)), span >= maxMissed
		if start.Before(from) {
			start, whole = from, true
		}
		var ticks []time.Time
		for t := when.Next(start.Add(-1)); t.Before(until); t = when.Next(t) {
			ticks = append(ticks, t)
		}
		if whole || len(ticks) >= store.MaxRequests {
			return ticks[max(0, len(ticks)-store.MaxRequests):]
		}
	}
}

// fire sends the workflow of a tick, and records that, or why it is not sent. overdue is the time since the tick from which durations in
// the workflow count.
func (s *Schedules) fire(ctx context.Context, shard int, st *store.ScheduleState, t *store.Tick, tick time.Time, overdue time.Duration) error {
	id, err := s.tickID(ctx, st.Name, tick)
	if err != nil {
		return err
	}
	requested := t.Next.IsZero()
	ref := ""
	sig, o, err := Unpack(st.Work)
	if err == nil {
		o.ID = id
		if requested && o.Unique != "" && !o.Once && (st.Overlap != OverlapCancel || t.Tick[0] == 'b') { // it is not skipped, and a backfill cancels nothing
			o.Overlap = OverlapQueue
		}
		ref, err = s.sender.send(ctx, o, func(after []string) (*prepared, error) {
			g := *sig.Compiled
			g.Tick, g.Behind, g.Overlap = tick.UnixMilli(), max(0, overdue.Milliseconds()), o.Overlap
			p, err := s.sender.place(ctx, &g, o, after)
			if err == nil {
				p.grow.Tick = t
			}
			return p, err
		})
	}
	switch other := store.IDOf(ref); {
	case err == nil:
		return nil
	case errors.Is(err, ErrDuplicate) && other == id: // before the clock of Redis was set back, or by an earlier backfill
	case errors.Is(err, ErrDuplicate) && requested && !o.Once:
		t.Keep, t.Wait = true, blockedTick
	case errors.Is(err, ErrDuplicate):
		t.Missed, t.Error = 1, "an earlier workflow is still running: "+other
	case errors.Is(err, graph.ErrInvalid): // it would fail forever
		t.Missed, t.Error = 1, err.Error()
	default:
		return err
	}
	return s.store.Schedules.Decide(ctx, shard, t)
}

// tickID returns the ID of the workflow of a tick: the same in every worker, and different for every schedule.
func (s *Schedules) tickID(ctx context.Context, name string, tick time.Time) (string, error) {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
	if clean != name || len(name) > 60 {
		sum := sha256.Sum256([]byte(name))
		clean = clean[:min(len(clean), 60)] + "_" + hex.EncodeToString(sum[:4])
	}
	return s.store.Schedules.Align(ctx, name, clean+"_"+strconv.FormatInt(tick.UnixMilli(), 10))
}
