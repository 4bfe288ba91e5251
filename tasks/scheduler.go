package tasks

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"muster/tasks/internal/engine"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// SchedulerConfig says how ticks are counted.
type SchedulerConfig struct {
	// Location is the time zone of specs that name none. Defaults to UTC.
	Location *time.Location
	// CatchUp is how late a tick may be sent that no scheduler was there for: the latest one, once,
	// however many were missed. Defaults to 0: missed ticks are skipped. A tick that comes due while
	// one scheduler takes over from another, or starts again, is not missed but late.
	CatchUp time.Duration
	// Lease is how long the others wait for a scheduler that fell silent, before one of them takes
	// over. One that stops hands over at once. Defaults to 5 s.
	Lease time.Duration
	// Name identifies the scheduler; two live schedulers must not share one. Defaults to host-pid-number.
	Name string
	// Logger gets ticks that could not be sent. Defaults to none.
	Logger *slog.Logger
	// Sent, if set, is called with the id of every workflow that this scheduler sent.
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

// Scheduler sends work at its times. However many schedulers run with the same entries, each tick is
// sent once. Of every entry one scheduler is the leader: it holds a lease in Redis, under which the
// work of a tick is stored only while Redis itself finds the lease to last, so that a leader that was
// paused and wakes up too late sends nothing. Beyond that, a tick's workflow has an id made of the
// entry's name and the time, which Redis takes once.
//
// Redis's clock counts, not those of the schedulers' machines.
type Scheduler struct {
	client *Client
	cfg    SchedulerConfig

	mu      sync.Mutex // guards entries
	entries []*entry
	changed chan struct{} // has a value when entries grew
}

// entry is a line of the schedule. All but the first four fields belong to Run.
type entry struct {
	name, spec string
	when       cron.Schedule
	work       func(tick time.Time) Work
	opts       []SendOption

	lease store.Lease
	pause time.Duration // before the next try of a tick that could not be sent
	retry time.Time
}

// maxEntryName bounds the name of an entry.
const maxEntryName = 200

// NewScheduler returns a scheduler without entries.
func NewScheduler(c *Client, cfg SchedulerConfig) *Scheduler {
	return &Scheduler{client: c, cfg: cfg.withDefaults(), changed: make(chan struct{}, 1)}
}

// Add sends work at the times of spec: a cron expression of five fields, or six with leading
// seconds, "@every 90s" or a descriptor such as "@daily"; "CRON_TZ=Europe/Berlin " before it names a
// time zone. Times that are given by the hour happen once a day also when clocks change. Intervals
// count from the Unix epoch, so that all schedulers agree on them. The name must be the same
// wherever the same entry is added.
//
// The results of a tick are kept for at least CatchUp, whatever [Retention] says. With [Unique] among
// opts, a tick is skipped while the work of an earlier one is under way.
func (s *Scheduler) Add(name, spec string, work Work, opts ...SendOption) error {
	return s.AddFunc(name, spec, func(time.Time) Work { return work }, opts...)
}

// AddFunc is Add for work that is made anew for every tick: work is called with the time that the tick is
// due, which is in the past when it is late or caught up with, and is in the Location of the
// [SchedulerConfig]. While work runs no other entry ticks, so it must not block. When it returns nil the
// tick is skipped.
func (s *Scheduler) AddFunc(name, spec string, work func(tick time.Time) Work, opts ...SendOption) error {
	if name == "" || len(name) > maxEntryName {
		return fmt.Errorf("schedule %.20q: the name needs 1 to %d bytes", name, maxEntryName)
	}
	when, err := parseSpec(spec, s.cfg.Location)
	o := collect(opts, SendOption.forSend)
	if o.ID != "" || o.At != nil {
		err = errors.Join(err, errors.New("an entry takes neither tasks.ID nor tasks.At: each tick has its own id and time"))
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
	s.entries = append(s.entries, &entry{name: name, spec: spec, when: when, work: work, opts: opts})
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return nil
}

// Schedule returns the entries of all schedulers that were up in the last week, the longest unseen
// first.
func (c *Client) Schedule(ctx context.Context) ([]tasktype.ScheduleEntry, error) {
	list, err := c.eng.Schedule.Entries(ctx)
	if err != nil {
		return nil, fmt.Errorf("read schedule: %w", err)
	}
	return list, nil
}

// Run sends what is due until ctx is done. While Redis is away it keeps trying.
func (s *Scheduler) Run(ctx context.Context) error {
	var ahead time.Duration // how much Redis's clock is ahead of ours
	var renew time.Time     // by our clock
	for ctx.Err() == nil {
		entries := s.snapshot()
		if now := time.Now(); !now.Before(renew) {
			theirs, err := s.lead(ctx, entries, now.Add(ahead))
			if err != nil && ctx.Err() == nil {
				s.cfg.Logger.Warn("schedule waits for Redis", "error", err)
			}
			if err == nil {
				// Half of the way there and back: what is left of the error is no more than that.
				ahead = theirs.Sub(now.Add(time.Since(now) / 2))
			}
			renew = now.Add(s.cfg.Lease / 3)
		}
		soonest := renew
		for _, e := range entries {
			at := s.look(ctx, e, time.Now().Add(ahead)).Add(-ahead)
			if at.Before(soonest) {
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
		s.cfg.Logger.Warn("schedule was not handed over; others take it when its lease is over", "error", err)
	}
	return nil
}

func (s *Scheduler) snapshot() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*entry(nil), s.entries...)
}

// lead claims the entries and returns the time by Redis's clock. now is our guess at it.
func (s *Scheduler) lead(ctx context.Context, entries []*entry, now time.Time) (time.Time, error) {
	claims := make([]store.Claim, len(entries))
	for i, e := range entries {
		claims[i] = store.Claim{Name: e.name, Spec: e.spec, Next: e.when.Next(now)}
	}
	leases, theirs, err := s.client.eng.Schedule.Lead(ctx, s.cfg.Name, s.cfg.Lease, claims)
	if err != nil {
		return now, err
	}
	for i, e := range entries {
		if e.lease.Token == 0 && leases[i].Token > 0 {
			s.cfg.Logger.Debug("scheduler leads", "scheduler", s.cfg.Name, "schedule", e.name, "token", leases[i].Token)
		}
		e.lease = leases[i]
	}
	return theirs, nil
}

// look sends the tick of e that is due, if it leads, and returns when to look again. Times are by
// Redis's clock.
func (s *Scheduler) look(ctx context.Context, e *entry, now time.Time) time.Time {
	if e.lease.Token == 0 || !now.Before(e.lease.Until) {
		return now.Add(s.cfg.Lease) // after the next claim, which will wake it
	}
	due, missed := e.due(now, s.late())
	if due.IsZero() && missed == 0 {
		return e.when.Next(now)
	}
	if now.Before(e.retry) {
		return e.retry
	}
	t := store.Tick{At: due, Next: e.when.Next(now), Missed: missed}
	if due.IsZero() {
		t.At = now
		t.Error = "no scheduler was there in time"
		s.cfg.Logger.Warn("ticks were missed", "schedule", e.name, "ticks", missed)
	} else if !s.send(ctx, e, &t, now) {
		if e.lease.Token == 0 {
			return now.Add(s.cfg.Lease)
		}
		return e.retry
	}
	ok, err := s.client.eng.Schedule.Ticked(ctx, e.name, e.lease.Token, t)
	switch {
	case err != nil && ctx.Err() == nil:
		// It was sent all the same; sending it again is no second time.
		s.cfg.Logger.Warn("tick was not recorded", "schedule", e.name, "tick", t.At, "error", err)
		return s.hold(e, now)
	case !ok:
		e.lease.Token = 0
	default:
		e.lease.Last, e.pause, e.retry = t.At, 0, time.Time{}
	}
	return t.Next
}

// late is how late a tick may be sent.
func (s *Scheduler) late() time.Duration { return max(s.cfg.CatchUp, 3*s.cfg.Lease, 15*time.Second) }

// due returns the tick to send, if any, and how many come after the last one decided that are not to
// be sent.
func (e *entry) due(now time.Time, late time.Duration) (due time.Time, missed int) {
	from := e.lease.Last
	if oldest := now.Add(-late); from.Before(oldest) {
		if t := e.when.Next(from); !t.IsZero() && t.Before(oldest) {
			missed++ // at least: there may be millions
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

// send sends a tick, and reports whether it is decided.
func (s *Scheduler) send(ctx context.Context, e *entry, t *store.Tick, now time.Time) bool {
	work := e.work(t.At.In(s.cfg.Location))
	if work == nil {
		t.Missed, t.Error = t.Missed+1, "there was no work for it"
		return true
	}
	o := collect(append([]SendOption{ID(tickID(e.name, t.At))}, e.opts...), SendOption.forSend)
	keep := max(s.late()+time.Minute, engine.DefaultRetention)
	if o.Retention != nil {
		keep = max(s.late()+time.Minute, *o.Retention)
	}
	o.Retention = &keep
	id, how, err := s.client.eng.Sender.SendTick(ctx, work.work(), o, now.Sub(t.At), e.lease.Until)
	switch {
	case errors.Is(err, store.ErrLate):
		s.cfg.Logger.Warn("another scheduler may have taken over", "schedule", e.name, "tick", t.At)
		e.lease.Token = 0
		return false
	case err != nil:
		if ctx.Err() == nil {
			s.cfg.Logger.Error("scheduled work was not sent", "schedule", e.name, "tick", t.At, "error", err)
		}
		s.hold(e, now)
		return false
	case how == engine.TickBlocked:
		t.Missed, t.Error = t.Missed+1, "an earlier run is under way: "+id
		s.cfg.Logger.Info("tick was skipped: an earlier run is under way", "schedule", e.name, "tick", t.At, "workflow", id)
		return true
	}
	t.Workflow = id
	if how == engine.TickSent && s.cfg.Sent != nil {
		s.cfg.Sent(e.name, id)
	}
	return true
}

// hold lets an entry wait before its tick is tried again, and returns until when.
func (s *Scheduler) hold(e *entry, now time.Time) time.Time {
	e.pause = min(max(2*e.pause, 250*time.Millisecond), 30*time.Second)
	e.retry = now.Add(e.pause)
	return e.retry
}

// tickID names the workflow of a tick, the same in every scheduler and for no other entry.
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
