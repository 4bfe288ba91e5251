package tasks

import (
	"context"
	"fmt"
	"time"

	"muster/tasks/internal/engine"
	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// Schedule sends work at the times of a spec, see [Schedules.Put].
type Schedule struct {
	// Name identifies the schedule, in 1 to 200 bytes.
	Name string
	// Spec has the times: a cron expression of five fields, or of six with leading seconds, "@every 90s", or a descriptor such as "@daily".
	// They are in UTC unless it begins with a time zone, as in "CRON_TZ=Europe/Berlin 0 3 * * *". Intervals count from the Unix epoch.
	//
	// A time with a given hour ticks once a day, also on days when the clocks change: if the time occurs twice, at the second; if it
	// is skipped, later by as much as the clocks advance, or earlier if later is the next day.
	Spec string
	// Work is sent at each tick. Its handlers find the time of the tick in [tasktype.Info]: a task bound with [HandlePlan] returns work
	// that depends on it. Work has at most 1 MiB with its inputs.
	Work Work
	// Options are those of each send. [Overlap] decides about a tick while the workflow of an earlier one is running; by default both run.
	// ID, At and Deadline are not for schedules.
	Options []SendOption
	// CatchUp is how many ticks are sent that were due while no worker was running: the latest, of the last seven days, one after the other
	// as by [Schedules.Backfill]. Defaults to 0: ticks are skipped that were due more than 15 s
	// before a worker ran again.
	CatchUp int
	// Jitter delays each tick by a random time up to this, so that schedules with equal times do not start at once. It is shorter than the
	// time between ticks, and at most a day. Info has the time without it.
	Jitter time.Duration
}

func (s *Schedule) put() *engine.Schedule {
	c := &engine.Schedule{Name: s.Name, Spec: s.Spec, CatchUp: s.CatchUp, Jitter: s.Jitter, Opts: collect(s.Options, SendOption.forSend)}
	if s.Work != nil {
		c.Sig = s.Work.work()
	}
	return c
}

// Schedules changes schedules. [Inspector.Schedules] lists them.
type Schedules struct{ eng *engine.Schedules }

// Schedules returns the Schedules of c.
func (c *Client) Schedules() *Schedules { return &Schedules{c.eng.Schedules} }

// Put creates a schedule, or changes the one with the same name. While spec and jitter are unchanged, the time of the next tick is kept,
// in any case a pause, counts and requested ticks. The schedule is in Redis: any worker of the namespace sends a tick when it is due, and each
// tick is sent once. Times are by the clock of Redis. While no worker is running, no tick is sent. It returns [ErrInvalid] with the field.
func (s *Schedules) Put(ctx context.Context, schedule Schedule) error {
	return changeError("put", schedule.Name, s.eng.Put(ctx, schedule.put()))
}

// Sync makes the schedules of a group equal to a list: it puts all of them, and deletes those that were in the group and are not in
// the list. Call it when a program is deployed or starts. Each program needs a group of its own: of two with one group, each deletes the schedules
// of the other. A schedule without a group becomes a member; one of another group is an error. If a schedule is invalid, nothing is changed.
func (s *Schedules) Sync(ctx context.Context, group string, list []Schedule) error {
	all := make([]*engine.Schedule, len(list))
	for i := range list {
		all[i] = list[i].put()
	}
	return wrap(s.eng.Sync(ctx, group, all), "sync schedules of group %.200q", group)
}

// Delete deletes a schedule with its counts and requested ticks. Workflows that were sent continue. It returns [ErrNotFound].
func (s *Schedules) Delete(ctx context.Context, name string) error {
	return changeError("delete", name, s.eng.Delete(ctx, name))
}

// Pause pauses a schedule: its ticks are neither sent nor counted as missed until [Schedules.Resume]. Requested ticks are sent
// during a pause. It does nothing if the schedule is paused, and returns [ErrNotFound].
func (s *Schedules) Pause(ctx context.Context, name string) error {
	return changeError("pause", name, s.eng.Pause(ctx, name))
}

// Resume ends a pause. The ticks that were due during the pause are not sent; request them with
// [Schedules.Backfill]. It does nothing if the schedule is not paused, and returns [ErrNotFound].
func (s *Schedules) Resume(ctx context.Context, name string) error {
	return changeError("resume", name, s.eng.Resume(ctx, name))
}

// Trigger requests a tick of a schedule now, also while it is paused, and returns the id of the workflow that a worker will send.
// Until then no workflow has the id, and a Wait for it returns [ErrNotFound]. See [Overlap] for a trigger while an earlier
// workflow is running. It returns [ErrNotFound] and [ErrFull].
func (s *Schedules) Trigger(ctx context.Context, name string) (id string, err error) {
	id, err = s.eng.Trigger(ctx, name)
	return id, changeError("trigger", name, err)
}

// Backfill requests the ticks of a schedule from from to to, inclusive, such as the ticks of a pause or an outage, and
// returns their number, at most 1,000. They are sent in their order; with an [Overlap] policy, each waits for the end of the workflow
// before it. A tick is not sent again while the results of its workflow are kept. It returns [ErrNotFound], [ErrFull] and, for an invalid
// period, [ErrInvalid].
func (s *Schedules) Backfill(ctx context.Context, name string, from, to time.Time) (int, error) {
	ticks, err := s.backfill(ctx, name, from, to)
	if err == nil {
		err = s.eng.Backfill(ctx, name, ticks)
	}
	return len(ticks), changeError("backfill", name, err)
}

func (s *Schedules) backfill(ctx context.Context, name string, from, to time.Time) (ticks []time.Time, err error) {
	_, when, err := s.eng.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	period := fmt.Sprintf("from %s to %s", from.Format(time.RFC3339), to.Format(time.RFC3339))
	if from.Year() < 1970 || to.Before(from) || to.After(time.Now()) {
		return nil, fmt.Errorf("%w %s: give a time since 1970, and a later one that is not in the future", errPeriod, period)
	}
	for t := when.Next(from.Add(-1)); !t.IsZero() && !t.After(to); t = when.Next(t) {
		if len(ticks) == store.MaxRequests {
			return nil, fmt.Errorf("%w: more than %d ticks %s", errPeriod, store.MaxRequests, period)
		}
		ticks = append(ticks, t)
	}
	return ticks, nil
}

// errPeriod means that the period of a backfill is invalid or has too many ticks.
var errPeriod = store.Kind(graph.ErrInvalid, "invalid period")

func changeError(op, name string, err error) error { return wrap(err, "%s schedule %.200q", op, name) }

// NextTick returns the first time after t at which a schedule with this spec ticks. See [Schedule] for specs.
func NextTick(spec string, t time.Time) (time.Time, error) {
	when, err := engine.ParseSpec(spec)
	if err != nil {
		return time.Time{}, err
	}
	return when.Next(t), nil
}
