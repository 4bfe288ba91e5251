package tasks

import (
	"context"
	"fmt"
	"time"

	"muster/tasks/internal/store"
)

// errPeriod means that the period of a backfill is invalid or has too many ticks.
var errPeriod = store.Kind(ErrInvalid, "invalid period")

// PauseSchedule pauses an entry: its ticks are neither sent nor counted as missed until [Client.ResumeSchedule]. The pause
// lasts even if the schedulers restart, and is forgotten with the entry, a week after the last scheduler had it. A tick that
// is being sent may still be sent. Queued ticks are dropped; requested ticks are sent during a pause. It does nothing if the
// entry is paused, and returns [ErrNotFound].
func (c *Client) PauseSchedule(ctx context.Context, name string) error {
	return changeError("pause", name, c.eng.Schedule.Pause(ctx, name))
}

// ResumeSchedule ends a pause. The ticks that were due during the pause are not sent; request them with
// [Client.BackfillSchedule]. It does nothing if the entry is not paused, and returns [ErrNotFound].
func (c *Client) ResumeSchedule(ctx context.Context, name string) error {
	return changeError("resume", name, c.eng.Schedule.Resume(ctx, name))
}

// TriggerSchedule requests a tick of an entry now, also while it is paused, and returns the id of the workflow that will be
// sent. The scheduler that leads the entry sends it within a third of its Lease; without one the request is kept for a week.
// Until then no workflow has the id, and a Wait for it returns [ErrNotFound]. See [Overlap] for a trigger while an earlier
// workflow is running. It returns [ErrNotFound] and [ErrFull].
func (c *Client) TriggerSchedule(ctx context.Context, name string) (id string, err error) {
	at, err := c.eng.Schedule.Trigger(ctx, name)
	if err != nil {
		return "", changeError("trigger", name, err)
	}
	return tickID(name, at), nil
}

// BackfillSchedule requests the ticks of an entry from from to to, inclusive, such as the ticks of a pause or an outage, and
// returns their number, at most 1,000. They are sent in their order, each after the end of the workflow before it unless the
// policy is [OverlapAllow]. A tick is not sent again while the results of its workflow are kept. It returns [ErrNotFound],
// [ErrFull] and, for an invalid period, [ErrInvalid].
func (c *Client) BackfillSchedule(ctx context.Context, name string, from, to time.Time) (int, error) {
	e, err := c.Inspect().Schedule(ctx, name)
	if err != nil {
		return 0, err
	}
	when, err := parseSpec(e.Spec, time.UTC)
	if err != nil {
		return 0, changeError("backfill", name, err)
	}
	if from.Year() < 1970 || to.Before(from) || to.After(time.Now()) {
		return 0, changeError("backfill", name, fmt.Errorf("%w from %s to %s: give a time since 1970, and a later one that is not in the future",
			errPeriod, from.Format(time.RFC3339), to.Format(time.RFC3339)))
	}
	var ticks []time.Time
	for t := when.Next(from.Add(-1)); !t.IsZero() && !t.After(to); t = when.Next(t) {
		if len(ticks) == store.MaxRequests {
			return 0, changeError("backfill", name, fmt.Errorf("%w: more than %d ticks from %s to %s", errPeriod, store.MaxRequests,
				from.Format(time.RFC3339), to.Format(time.RFC3339)))
		}
		ticks = append(ticks, t)
	}
	return len(ticks), changeError("backfill", name, c.eng.Schedule.Backfill(ctx, name, ticks))
}

// DeleteSchedule removes the data of an entry from Redis: its counts, its pause and its requested ticks. Running
// workflows continue. It returns [ErrNotFound], and [ErrRunning] while a running scheduler has the entry: stop it, or call
// [Scheduler.Remove].
func (c *Client) DeleteSchedule(ctx context.Context, name string) error {
	return changeError("delete", name, c.eng.Schedule.Delete(ctx, name))
}

func changeError(op, name string, err error) error { return wrap(err, "%s schedule %.200q", op, name) }
