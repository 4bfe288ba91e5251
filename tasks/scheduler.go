package tasks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/robfig/cron/v3"
)

// SchedulerConfig says how ticks are counted.
type SchedulerConfig struct {
	// Location is the time zone of specs that name none. Defaults to UTC.
	Location *time.Location
	// CatchUp sends the latest tick that no scheduler was there for, if it is no older than this.
	// Defaults to 0: missed ticks are skipped.
	CatchUp time.Duration
	// Logger hears of ticks that could not be sent. Defaults to none.
	Logger *slog.Logger
	// Sent, if set, is called with the id of every workflow that this scheduler sent.
	Sent func(name, id string)
}

// Scheduler sends work at its times. However many schedulers run with the same entries, each tick is
// sent once: the id of its workflow is made from the entry's name and the tick's time, and Redis
// keeps the first.
type Scheduler struct {
	client *Client
	cfg    SchedulerConfig

	mu      sync.Mutex // guards entries
	entries []*entry
	changed chan struct{} // has a value when entries grew
}

type entry struct {
	name string
	when cron.Schedule
	work func() Work
	opts []Option
	next time.Time
}

// parser reads five fields or six with leading seconds, and descriptors such as @hourly and @every 5m.
var parser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// NewScheduler returns a scheduler without entries.
func NewScheduler(c *Client, cfg SchedulerConfig) *Scheduler {
	if cfg.Location == nil {
		cfg.Location = time.UTC
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Scheduler{client: c, cfg: cfg, changed: make(chan struct{}, 1)}
}

// Add sends work at the times of spec: a cron expression of five fields, or six with leading
// seconds, "@every 90s" or a descriptor such as "@daily"; "CRON_TZ=Europe/Berlin " before it names a
// time zone. Intervals count from the Unix epoch, so that all schedulers agree on them. The name
// must be the same wherever the same entry is added.
func (s *Scheduler) Add(name, spec string, work Work, opts ...Option) error {
	return s.AddFunc(name, spec, func() Work { return work }, opts...)
}

// AddFunc is Add for work that is made anew for every tick.
func (s *Scheduler) AddFunc(name, spec string, work func() Work, opts ...Option) error {
	when, err := parseSpec(spec, s.cfg.Location)
	if err != nil {
		return fmt.Errorf("schedule %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if e.name == name {
			return fmt.Errorf("schedule %s: the name is taken", name)
		}
	}
	s.entries = append(s.entries, &entry{name: name, when: when, work: work, opts: opts})
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return nil
}

func parseSpec(spec string, loc *time.Location) (cron.Schedule, error) {
	if d, ok := strings.CutPrefix(strings.TrimSpace(spec), "@every "); ok {
		every, err := time.ParseDuration(strings.TrimSpace(d))
		if err != nil || every < 10*time.Millisecond {
			return nil, fmt.Errorf("%q: expected @every and a duration of at least 10ms, as in @every 90s", spec)
		}
		return interval(every), nil
	}
	if !strings.HasPrefix(spec, "TZ=") && !strings.HasPrefix(spec, "CRON_TZ=") {
		spec = "CRON_TZ=" + loc.String() + " " + spec
	}
	when, err := parser.Parse(spec)
	if err != nil {
		return nil, fmt.Errorf("parse spec %q: %w", spec, err)
	}
	return when, nil
}

// interval ticks at the multiples of itself since the Unix epoch.
type interval time.Duration

// Next implements cron.Schedule.
func (i interval) Next(t time.Time) time.Time {
	every := int64(i)
	return time.Unix(0, (t.UnixNano()/every+1)*every)
}

// Run sends what is due until ctx is done.
func (s *Scheduler) Run(ctx context.Context) error {
	for {
		now := time.Now()
		soonest := now.Add(time.Hour)
		for _, e := range s.snapshot() {
			if e.next.IsZero() {
				e.next = s.first(e, now)
			}
			if !e.next.After(now) {
				s.fire(ctx, e, e.next)
				e.next = e.when.Next(time.Now())
			}
			if e.next.Before(soonest) && !e.next.IsZero() {
				soonest = e.next
			}
		}
		timer := time.NewTimer(time.Until(soonest))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-s.changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (s *Scheduler) snapshot() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*entry(nil), s.entries...)
}

// first returns the first tick to send: the next one, or the latest missed one.
func (s *Scheduler) first(e *entry, now time.Time) time.Time {
	next := e.when.Next(now)
	if s.cfg.CatchUp <= 0 {
		return next
	}
	for t := e.when.Next(now.Add(-s.cfg.CatchUp)); !t.IsZero() && !t.After(now); t = e.when.Next(t) {
		next = t
	}
	return next
}

func (s *Scheduler) fire(ctx context.Context, e *entry, tick time.Time) {
	work := e.work()
	if work == nil {
		return
	}
	opts := append([]Option{ID(tickID(e.name, tick))}, e.opts...)
	id, err := s.client.eng.Send(ctx, work.work(), collect(opts))
	switch {
	case errors.Is(err, ErrDuplicate):
	case err != nil && ctx.Err() == nil:
		s.cfg.Logger.Error("scheduled work was not sent", "schedule", e.name, "tick", tick, "error", err)
	case err == nil && s.cfg.Sent != nil:
		s.cfg.Sent(e.name, id)
	}
}

// tickID names the workflow of a tick, the same in every scheduler.
func tickID(name string, tick time.Time) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, name)
	return fmt.Sprintf("%s_%d", clean, tick.UnixMilli())
}
