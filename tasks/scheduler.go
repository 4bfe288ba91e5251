package tasks

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"muster/tasks/internal/engine"
	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// SchedulerConfig is the configuration of a [Scheduler].
type SchedulerConfig struct {
	// Location is the time zone of specs that name none. It has an IANA name, which other programs read from Redis. Defaults to UTC.
	Location *time.Location
	// CatchUp is how late a tick may be sent that was due while no scheduler was running. Only the latest such tick
	// is sent, unless the entry has [EachMissed]. Defaults to 0: missed ticks are skipped. A tick that is due while one
	// scheduler takes over from another, or restarts, is not missed: it is sent late.
	CatchUp time.Duration
	// Lease is how long after the last sign of life of a scheduler another one takes over its entries. A scheduler
	// that stops hands them over at once. Defaults to 5 s, and is at least 50 ms.
	Lease time.Duration
	// Name identifies the scheduler; two live schedulers must not share one. Defaults to host-pid-number.
	Name string
	// Logger gets ticks that could not be sent. Defaults to none.
	Logger *slog.Logger
	// Sent, if set, is called with the name of the entry and the id of every workflow that this scheduler sent. It
	// must not block.
	Sent func(name, id string)
}

func (c SchedulerConfig) withDefaults() SchedulerConfig {
	if c.Location == nil {
		c.Location = time.UTC
	}
	c.CatchUp = min(max(c.CatchUp, 0), 7*24*time.Hour) // as long as Redis remembers entries
	c.Lease = max(cmp.Or(c.Lease, 5*time.Second), 50*time.Millisecond)
	if c.Name == "" {
		c.Name = engine.WorkerName()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Scheduler sends work at given times. Any number of schedulers may run with the same entries: each tick is
// sent once. One scheduler leads each entry: it holds a lease in Redis, and Redis stores the work of a tick only while
// that lease is valid. So a leader that was paused and continues too late sends nothing. In addition, the id of a tick's
// workflow is made of the entry's name and the time, and Redis accepts an id only once.
//
// Times are by the clock of Redis, not by the clocks of the schedulers' machines. A Scheduler may be used by many
// goroutines at once.
type Scheduler struct {
	client *Client
	cfg    SchedulerConfig

	mu      sync.Mutex // guards entries
	entries []*entry
	changed chan struct{} // has a value when entries grew
}

// entry is an entry of the schedule. Only Run uses the fields after the blank line.
type entry struct {
	name, spec string
	when       cron.Schedule
	work       func(tick time.Time) Work
	opts       *graph.Opts

	lease store.Lease
	pause time.Duration // before the next attempt to send a tick that could not be sent
	retry time.Time     // of that attempt, by Redis's clock
	check time.Time     // when to look again whether the workflow that a requested tick waits for is running, by Redis's clock
}

// maxEntryName is the longest name of an entry, in bytes.
const maxEntryName = 200

// NewScheduler returns a scheduler without entries. It sends nothing until [Scheduler.Run] is called.
func NewScheduler(c *Client, cfg SchedulerConfig) *Scheduler {
	return &Scheduler{client: c, cfg: cfg.withDefaults(), changed: make(chan struct{}, 1)}
}

// Add adds an entry that sends work at the times of spec: a cron expression of five fields, or of six with leading
// seconds, "@every 90s", or a descriptor such as "@daily". The prefix "CRON_TZ=Europe/Berlin " sets a time zone. Intervals
// count from the Unix epoch, so that all schedulers agree on them. The name identifies the entry: it must be the same in all
// schedulers. Add may be called while the scheduler runs.
//
// A time with a given hour ticks once a day, also on days when the clocks change: if the time occurs twice, at the second; if it
// is skipped, later by as much as the clocks advance, or earlier if later is the next day.
//
// The results of a tick are kept for at least CatchUp, even if [Retention] is shorter. [Overlap] among opts decides about a
// tick while the workflow of an earlier one is running; [EachMissed] sends more than one missed tick.
func (s *Scheduler) Add(name, spec string, work Work, opts ...ScheduleOption) error {
	return s.AddFunc(name, spec, func(time.Time) Work { return work }, opts...)
}

// AddFunc is Add with work that depends on the tick: work is called with the time at which the tick is
// due, in the Location of the [SchedulerConfig]; for a late tick that time is in the past. No other entry ticks while
// work runs, so it must not block. If it returns nil the tick is skipped.
func (s *Scheduler) AddFunc(name, spec string, work func(tick time.Time) Work, opts ...ScheduleOption) error {
	if name == "" || len(name) > maxEntryName {
		return fmt.Errorf("schedule %.20q: the name needs 1 to %d bytes", name, maxEntryName)
	}
	_, err := namedZone(s.cfg.Location.String())
	when, specErr := parseSpec(spec, s.cfg.Location)
	err = errors.Join(err, specErr)
	o := collect(opts, ScheduleOption.forSchedule)
	if o.ID != "" || o.At != nil || o.Deadline != nil {
		err = errors.Join(err, errors.New("an entry takes no tasks.ID, tasks.At or tasks.Deadline: each tick has its own id and time"))
	}
	if o.Overlap == engine.OverlapReplace {
		err = errors.Join(err, errors.New("an entry takes no tasks.OverlapReplace: use OverlapQueue or OverlapCancel"))
	}
	if err = errors.Join(err, o.Err); err != nil {
		return fmt.Errorf("schedule %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if e.name == name {
			return fmt.Errorf("schedule %s: the name is taken", name)
		}
	}
	s.entries = append(s.entries, &entry{name: name, spec: zoned(spec, s.cfg.Location), when: when, work: work, opts: o})
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return nil
}

// Remove removes an entry, so that this scheduler sends no further ticks of it; a tick that it is sending may still be sent.
// Other schedulers that have the entry continue. It does nothing if there is no such entry. Workflows that were sent run on.
// [Client.DeleteSchedule] also removes what Redis remembers of the entry.
func (s *Scheduler) Remove(ctx context.Context, name string) error {
	s.mu.Lock()
	s.entries = slices.DeleteFunc(s.entries, func(e *entry) bool { return e.name == name })
	s.mu.Unlock()
	if err := s.client.eng.Schedule.Resign(ctx, s.cfg.Name, []string{name}); err != nil {
		return fmt.Errorf("remove schedule %s: %w", name, err)
	}
	return nil
}

// Run sends the ticks that are due until ctx is done, and returns nil. While Redis cannot be reached it tries again.
func (s *Scheduler) Run(ctx context.Context) error {
	var renew time.Time // by our clock
	// The times of both clocks at the same moment. The elapsed time since is monotonic, so that setting our clock has
	// no effect.
	theirs, ours := time.Now(), time.Now()
	redisTime := func() time.Time { return theirs.Add(time.Since(ours)) }
	for ctx.Err() == nil {
		entries := s.snapshot()
		if begun := time.Now(); !begun.Before(renew) {
			now, err := s.lead(ctx, entries, redisTime())
			if err != nil && ctx.Err() == nil {
				s.cfg.Logger.WarnContext(ctx, "schedule cannot be read; trying again", "error", err)
			}
			entries = s.resignRemoved(ctx, entries)
			if err == nil {
				if back := redisTime().Sub(now); back > time.Second && !renew.IsZero() {
					s.cfg.Logger.WarnContext(ctx, "the clock of Redis was set back; ticks that were sent are not sent again", "by", back)
				}
				// Redis replied about half a round trip ago; the error is at most that half.
				theirs, ours = now, begun.Add(time.Since(begun)/2)
			}
			renew = begun.Add(s.cfg.Lease / 3)
		}
		soonest := renew
		for _, e := range entries {
			next := s.look(ctx, e, redisTime())
			if at := time.Now().Add(next.Sub(redisTime())); !next.IsZero() && at.Before(soonest) {
				soonest = at
			}
		}
		timer := time.NewTimer(time.Until(soonest))
		select {
		case <-ctx.Done():
		case <-s.changed:
			renew = time.Time{}
		case <-timer.C:
		}
		timer.Stop()
	}
	bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	var names []string
	for _, e := range s.snapshot() {
		names = append(names, e.name)
	}
	if err := s.client.eng.Schedule.Resign(bye, s.cfg.Name, names); err != nil {
		s.cfg.Logger.WarnContext(ctx, "schedule was not handed over; another scheduler takes over after the lease", "error", err)
	}
	return nil
}

// resignRemoved returns the entries without those that were removed while Run claimed them, and gives these up.
func (s *Scheduler) resignRemoved(ctx context.Context, claimed []*entry) []*entry {
	now := s.snapshot()
	var left []*entry
	var removed []string
	for _, e := range claimed {
		if slices.Contains(now, e) {
			left = append(left, e)
		} else {
			removed = append(removed, e.name)
		}
	}
	if len(removed) > 0 {
		if err := s.client.eng.Schedule.Resign(ctx, s.cfg.Name, removed); err != nil && ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "removed entries are given up after their lease", "schedules", removed, "error", err)
		}
	}
	return left
}

func (s *Scheduler) snapshot() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*entry(nil), s.entries...)
}

// lead claims the entries and returns the time by Redis's clock. now is our estimate of that time.
func (s *Scheduler) lead(ctx context.Context, entries []*entry, now time.Time) (time.Time, error) {
	claims := make([]store.Claim, len(entries))
	for i, e := range entries {
		claims[i] = e.claim(now)
	}
	leases, theirs, err := s.client.eng.Schedule.Lead(ctx, s.cfg.Name, s.cfg.Lease, claims)
	if err != nil {
		return now, err
	}
	for i, e := range entries {
		if e.lease.Token == 0 && leases[i].Token > 0 {
			s.cfg.Logger.DebugContext(ctx, "scheduler leads", "scheduler", s.cfg.Name, "schedule", e.name, "token", leases[i].Token)
		}
		e.lease = leases[i]
	}
	return theirs, nil
}

// claim returns the claim of the scheduler to e.
func (e *entry) claim(now time.Time) store.Claim {
	return store.Claim{Name: e.name, Spec: e.spec, Next: e.when.Next(now), Overlap: e.opts.Overlap}
}

// look sends the tick of e that was requested or is due, if this scheduler leads e, and returns when to call it again. Times
// are by Redis's clock.
func (s *Scheduler) look(ctx context.Context, e *entry, now time.Time) time.Time {
	if e.lease.Token == 0 || !now.Before(e.lease.Until) {
		return now.Add(s.cfg.Lease) // after the next claim, which will wake it
	}
	if e.retry.Sub(now) > e.pause { // the clock of Redis was set back
		e.retry = now.Add(e.pause)
	}
	if now.Before(e.retry) {
		return e.retry
	}
	next := e.when.Next(now)
	t := store.Tick{Next: next}
	if e.lease.Request != "" {
		if e.check.Sub(now) > s.cfg.Lease {
			e.check = now
		}
		running := ""
		if !now.Before(e.check) {
			var err error
			if running, err = s.running(ctx, e, e.lease.Request[0] != 'b'); err != nil {
				return s.failed(ctx, e, now, "the workflow of an earlier tick cannot be read", err)
			}
			if running == "" {
				at, _ := strconv.ParseInt(e.lease.Request[1:], 10, 64)
				t.At, t.Request = time.UnixMilli(at), e.lease.Request
				return s.decide(ctx, e, t, now)
			}
			e.check = now.Add(s.cfg.Lease / 3)
		}
		if e.check.Before(next) {
			next = e.check
		}
	}
	if e.lease.Paused {
		return now.Add(s.cfg.Lease)
	}
	if t.At, t.Missed = e.due(now, s.late()); t.At.IsZero() && t.Missed == 0 {
		return next
	}
	return s.decide(ctx, e, t, now)
}

// decide sends the tick t, skips or queues it, records that, and returns when to look at e again. A tick without a time says
// that others were missed.
func (s *Scheduler) decide(ctx context.Context, e *entry, t store.Tick, now time.Time) time.Time {
	if t.At.IsZero() {
		t.At = now
		t.Error = "no scheduler was running in time"
		s.cfg.Logger.WarnContext(ctx, "ticks were missed", "schedule", e.name, "ticks", t.Missed)
	} else if wait, ok := s.send(ctx, e, &t, now); !ok {
		return wait
	}
	request, ok, err := s.client.eng.Schedule.Ticked(ctx, e.name, e.lease.Token, t)
	switch {
	case err != nil && ctx.Err() == nil:
		// The tick was sent; because of its id, sending it again does nothing.
		s.cfg.Logger.WarnContext(ctx, "tick was not recorded", "schedule", e.name, "tick", t.At, "error", err)
		return s.hold(e, now)
	case err != nil:
		return now
	case !ok:
		e.lease.Token = 0
		return now.Add(s.cfg.Lease)
	}
	if t.Request == "" {
		e.lease.Last = t.At
	}
	if t.Workflow != "" {
		e.lease.Workflow = t.Workflow
	}
	e.lease.Request, e.pause, e.retry, e.check = request, 0, time.Time{}, time.Time{}
	if request != "" {
		return now
	}
	return t.Next
}

// running returns the id of the workflow of an earlier tick of e, if it is running and e does not allow overlaps. With cancel,
// it cancels the workflow if the policy is [OverlapCancel].
func (s *Scheduler) running(ctx context.Context, e *entry, cancel bool) (string, error) {
	id := e.lease.Workflow
	if id == "" || OverlapPolicy(e.opts.Overlap) == OverlapAllow {
		return "", nil
	}
	p, err := Attach[any](s.client, id).Progress(ctx)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && p.Ended:
		return "", nil
	case err != nil:
		return "", err
	}
	if cancel && OverlapPolicy(e.opts.Overlap) == OverlapCancel {
		if err := s.client.Workflow(id).Cancel(ctx); err != nil && !errors.Is(err, ErrEnded) && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrRevoked) {
			return "", err
		}
	}
	return id, nil
}

// late returns how late a tick may be sent.
func (s *Scheduler) late() time.Duration { return max(s.cfg.CatchUp, 3*s.cfg.Lease, 15*time.Second) }

// due returns the tick to send, zero if there is none, and how many ticks since the last recorded one are skipped.
func (e *entry) due(now time.Time, late time.Duration) (due time.Time, missed int) {
	from := e.lease.Last
	if n := e.opts.EachMissed; n > 0 {
		return e.each(now, n)
	}
	if oldest := now.Add(-late); from.Before(oldest) {
		if t := e.when.Next(from); !t.IsZero() && t.Before(oldest) {
			missed++ // at least one; counting all could take too long
		}
		from = oldest
	}
	for t := e.when.Next(from); !t.IsZero() && !t.After(now); t = e.when.Next(t) {
		if !due.IsZero() {
			missed++
		}
		due = t
	}
	return due, missed
}

// each is due for an entry that sends the latest n of the missed ticks, the oldest of them first.
func (e *entry) each(now time.Time, n int) (due time.Time, missed int) {
	// The number of ticks in a time is not known in advance: it is doubled until it has enough of them.
	for late := time.Minute; ; late *= 2 {
		from := e.lease.Last
		oldest := now.Add(-min(late, maxMissed))
		whole := !from.Before(oldest) || late >= maxMissed
		if from.Before(oldest) {
			from = oldest
		}
		var ticks []time.Time
		for t := e.when.Next(from); !t.IsZero() && !t.After(now); t = e.when.Next(t) {
			ticks = append(ticks, t)
		}
		if !whole && len(ticks) < n {
			continue
		}
		if t := e.when.Next(e.lease.Last); !t.IsZero() && !t.After(from) {
			missed++ // at least one
		}
		if len(ticks) > n {
			missed += len(ticks) - n
			ticks = ticks[len(ticks)-n:]
		}
		if len(ticks) > 0 {
			due = ticks[0]
		}
		return due, missed
	}
}

// maxMissed is the age of the oldest tick that [EachMissed] sends.
const maxMissed = 7 * 24 * time.Hour

// send sends a tick, unless it is skipped or queued. ok reports whether the tick can be recorded; if not, wait is when to look
// at the entry again.
func (s *Scheduler) send(ctx context.Context, e *entry, t *store.Tick, now time.Time) (wait time.Time, ok bool) {
	// The entry may have been paused since the last claim, and this renews the lease.
	leases, _, err := s.client.eng.Schedule.Lead(ctx, s.cfg.Name, s.cfg.Lease, []store.Claim{e.claim(now)})
	if err != nil {
		return s.failed(ctx, e, now, "the schedule cannot be read", err), false
	}
	if e.lease = leases[0]; e.lease.Token == 0 || e.lease.Paused && t.Request == "" || t.Request != "" && e.lease.Request != t.Request {
		return now, false
	}
	if t.Request == "" {
		running, err := s.running(ctx, e, true)
		if err != nil {
			return s.failed(ctx, e, now, "the workflow of an earlier tick cannot be read", err), false
		}
		switch policy := OverlapPolicy(e.opts.Overlap); {
		case policy == OverlapAllow || running == "" && e.lease.Request == "":
		case running == "": // requested ticks come first
			e.check = time.Time{}
			return now, false
		case policy == OverlapSkip:
			s.skip(ctx, e, t, running)
			return now, true
		default:
			t.Queue = max(1, e.opts.EachMissed)
			return now, true
		}
	}
	work := e.work(t.At.In(s.cfg.Location))
	if work == nil {
		t.Missed, t.Error = t.Missed+1, "AddFunc returned no work for it"
		return now, true
	}
	o := *e.opts
	if d := s.client.eng.Sender.Defaults; d != nil {
		o = *d.Over(e.opts)
	}
	o.ID, o.Overlap = tickID(e.name, t.At), "" // the policy was applied above
	keep := max(s.late()+time.Minute, engine.DefaultRetention)
	if o.Retention != nil {
		keep = max(s.late()+time.Minute, *o.Retention)
	}
	o.Retention = &keep
	if o.FailureRetention != nil {
		failed := max(s.late()+time.Minute, *o.FailureRetention)
		o.FailureRetention = &failed
	}
	overdue := now.Sub(t.At)
	if t.Request != "" {
		overdue = 0 // its delays and limits count from now
	}
	id, how, err := s.client.eng.Sender.SendTick(ctx, work.work(), &o, overdue, e.lease.Until)
	switch {
	case errors.Is(err, store.ErrLate):
		s.cfg.Logger.WarnContext(ctx, "tick was not sent in time; another scheduler may have taken over", "schedule", e.name, "tick", t.At)
		e.lease.Token = 0
		return now.Add(s.cfg.Lease), false
	case errors.Is(err, ErrInvalid) && t.Request != "": // it would fail forever and block the others
		s.cfg.Logger.ErrorContext(ctx, "requested tick is dropped: its work is invalid", "schedule", e.name, "tick", t.At, "error", err)
		t.Missed, t.Error = t.Missed+1, err.Error()
		return now, true
	case err != nil:
		if ctx.Err() == nil {
			s.cfg.Logger.ErrorContext(ctx, "scheduled work was not sent", "schedule", e.name, "tick", t.At, "error", err)
		}
		return s.hold(e, now), false
	case how == engine.TickBlocked:
		s.skip(ctx, e, t, id)
		return now, true
	}
	t.Workflow = id
	if how == engine.TickSent && s.cfg.Sent != nil {
		s.cfg.Sent(e.name, id)
	}
	return now, true
}

// skip makes t a missed tick because the workflow of an earlier one is running.
func (s *Scheduler) skip(ctx context.Context, e *entry, t *store.Tick, id string) {
	t.Missed, t.Error = t.Missed+1, "an earlier workflow is still running: "+id
	s.cfg.Logger.InfoContext(ctx, "tick was skipped: an earlier workflow is still running", "schedule", e.name, "tick", t.At, "workflow", id)
}

// failed logs an error of Redis and returns when to look at e again.
func (s *Scheduler) failed(ctx context.Context, e *entry, now time.Time, message string, err error) time.Time {
	if ctx.Err() == nil {
		s.cfg.Logger.WarnContext(ctx, message, "schedule", e.name, "error", err)
	}
	return s.hold(e, now)
}

// hold sets when the tick of an entry that could not be sent is sent again, and returns that time.
func (s *Scheduler) hold(e *entry, now time.Time) time.Time {
	e.pause = min(max(2*e.pause, 250*time.Millisecond), 30*time.Second)
	e.retry = now.Add(e.pause)
	return e.retry
}

// tickID returns the id of the workflow of a tick: the same in every scheduler, and different for every entry.
func tickID(name string, tick time.Time) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, name)
	if clean != name || len(name) > 60 {
		sum := sha256.Sum256([]byte(name))
		clean = clean[:min(len(clean), 60)] + "_" + hex.EncodeToString(sum[:4])
	}
	return fmt.Sprintf("%s_%d", clean, tick.UnixMilli())
}
