package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"muster/tasks/internal/store"
)

// How workers look at the agenda.
const (
	sweepEvery = 4 * time.Second       // at the latest: the message that a timer was set can be lost
	claimFor   = 5 * time.Second       // how long no other worker gets the due entries that this one has claimed
	sweepMost  = 500                   // entries of a shard in one sweep
	ticksMost  = 64                    // schedules of a shard that a worker has claimed and not begun to handle
	roomEvery  = 20 * time.Millisecond // how often it looks whether there is room for more
)

// agenda handles entries that are due: delayed nodes, steps that a process may have missed, notes, and schedules.
type agenda struct {
	*local
	graphs    *graphs
	advancer  *advancer
	progress  *progress
	completer *Completer
	limiter   *limiter
	schedules *Schedules
	timer     chan time.Time // times at which entries are due, by the clock of this machine
}

// run handles due entries until ctx is done: of each shard separately, because the servers of some can be slow.
func (ag *agenda) run(ctx context.Context, shards int) {
	var loops sync.WaitGroup
	timers := make([]chan time.Time, shards)
	for shard := range timers {
		timers[shard] = make(chan time.Time, cap(ag.timer))
		loops.Go(func() { ag.runShard(ctx, shard, timers[shard]) })
	}
	for {
		select {
		case <-ctx.Done():
			loops.Wait()
			return
		case at := <-ag.timer:
			for _, timer := range timers {
				select {
				case timer <- at:
				default: // there are so many that it looks soon anyway
				}
			}
		}
	}
}

// runShard handles due entries of a shard until ctx is done: at intervals, and when a timer is due.
func (ag *agenda) runShard(ctx context.Context, shard int, timer <-chan time.Time) {
	beside := &attendants{agenda: ag, slots: make(chan struct{}, attendAtOnce), have: map[string]bool{}}
	defer beside.running.Wait()
	next := time.NewTimer(0)
	defer next.Stop()
	planned, last := time.Now(), time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-timer:
			if at.Before(planned) {
				planned = at
				next.Reset(time.Until(at))
			}
			continue
		case <-next.C:
		}
		ticks := beside.room()
		d, wait, err := ag.due(ctx, shard, ticks)
		if back := last.Sub(d.Now); err == nil && back > time.Second {
			ag.log.WarnContext(ctx, "the clock of Redis was set back", "by", back)
			if err = ag.store.Schedules.Recheck(ctx, shard, d.Now); err == nil {
				wait = 0
			}
		}
		switch {
		case err == nil:
			last = d.Now
		case ctx.Err() == nil:
			ag.log.WarnContext(ctx, "sweep of the agenda failed", "error", err)
		}
		beside.attend(ctx, d.Lines)
		if ticks == 0 {
			wait = min(wait, roomEvery)
		}
		planned = time.Now().Add(wait)
		next.Reset(wait)
	}
}

// due makes the delayed nodes of a shard ready that are due, and claims the other due entries of its agenda and so many schedules. It
// also returns how long to wait for the next ones.
func (ag *agenda) due(ctx context.Context, shard, schedules int) (d store.Due, wait time.Duration, err error) {
	wait = cmp.Or(ag.cfg.SweepEvery, sweepEvery)
	d, err = ag.store.Agenda.Due(ctx, shard, claimFor, sweepMost, schedules)
	if err != nil {
		return d, wait, err
	}
	if d.Count >= sweepMost {
		wait = 0
	} else if !d.Next.IsZero() {
		wait = min(wait, max(0, d.Next.Sub(d.Now)))
	}
	return d, wait, nil
}

// once handles the due entries of a shard. It returns how many there were.
func (ag *agenda) once(ctx context.Context, shard int) (int, error) {
	d, _, err := ag.due(ctx, shard, ticksMost)
	errs := []error{err}
	for _, en := range d.Lines {
		errs = append(errs, ag.attend(ctx, en))
	}
	return max(d.Count, len(d.Lines)), errors.Join(errs...)
}

// How many entries of a shard are handled at a time, and how many can wait for that. The others are due again when their claims end.
const (
	attendAtOnce = 8
	attendMost   = 2 * sweepMost
)

// attendants handle entries of a shard beside its loop: a step of a large workflow takes long, and delays no other node.
type attendants struct {
	*agenda
	running sync.WaitGroup
	slots   chan struct{} // has a value for each entry that is handled

	mu      sync.Mutex      // guards the rest
	waiting int             // entries that are not handled yet
	have    map[string]bool // the entries that wait or are handled: their claims can end meanwhile
}

// room returns how many schedules can be claimed.
func (a *attendants) room() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(0, ticksMost-a.waiting)
}

// attend handles entries soon. A schedule that was due again meanwhile may be handled twice at once.
func (a *attendants) attend(ctx context.Context, lines []store.Entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, en := range lines {
		name := en.Flow.Ref + "/" + en.Node
		if en.Flow.Ref != store.ScheduleRef && (a.have[name] || len(a.have) >= attendMost) {
			continue
		}
		a.have[name] = true
		a.waiting++
		a.running.Go(func() { a.run(ctx, name, en) })
	}
}

// run handles an entry.
func (a *attendants) run(ctx context.Context, name string, en store.Entry) {
	a.slots <- struct{}{}
	a.mu.Lock()
	a.waiting--
	a.mu.Unlock()
	if ctx.Err() == nil {
		if err := a.agenda.attend(ctx, en); err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "an entry of the agenda was not handled", "error", err)
		}
	}
	<-a.slots
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.have, name)
}

// attend takes the step of an entry of the agenda. Another process may have taken it already: each step
// checks that by itself.
func (ag *agenda) attend(ctx context.Context, en store.Entry) error {
	err := ag.step(ctx, en)
	if errors.Is(err, errUnreadable) {
		err = ag.giveUp(ctx, en, err)
	}
	if err != nil && en.Flow.Ref == store.ScheduleRef {
		return fmt.Errorf("schedule %s: %w", en.Node, err)
	}
	if err != nil {
		return fmt.Errorf("workflow %s node %s: %w", en.Flow.ID(), en.Node, err)
	}
	return nil
}

// step is attend for a workflow that can be read.
func (ag *agenda) step(ctx context.Context, en store.Entry) error {
	switch en.Flow.Ref {
	case store.LimitRef:
		return ag.limiter.expire(ctx, en)
	case store.ScheduleRef:
		var now, since int64
		if _, err := fmt.Sscan(string(en.Record), &now, &since); err != nil {
			return err
		}
		t, err := ag.schedules.tick(ctx, en.Flow.Shard(), en.Node, time.UnixMilli(now), time.UnixMilli(since))
		if err != nil || t == nil {
			return err
		}
		if t.Missed > 0 {
			ag.log.WarnContext(ctx, "ticks were missed", "schedule", en.Node, "ticks", t.Missed, "cause", t.Error)
		}
		if t.UntilDue >= 0 && t.UntilDue < sweepEvery {
			ag.setTimer(t.UntilDue)
		}
		return nil
	}
	fl, err := ag.graphs.load(ctx, en.Flow.Ref)
	switch {
	case errors.Is(err, ErrUnknown):
		return ag.store.Agenda.Remove(ctx, en.Flow, en.Node)
	case err != nil:
		return err
	}
	switch en.Node {
	case revokeNote:
		return ag.advancer.finishRevoke(ctx, fl.Ref, nil)
	case deadlineNote:
		_, err := ag.advancer.cancel(ctx, fl.Flow, store.OpDeadline)
		return err
	case orderNote:
		return ag.advancer.order(ctx, fl)
	case cancelNote:
		return ag.advancer.finishCancel(ctx, fl.Ref)
	case progressNote:
		if err := ag.progress.write(ctx, fl); err != nil {
			return err
		}
		return ag.store.Agenda.Move(ctx, fl.Flow, progressNote, keepAlive)
	}
	if failed, ok := strings.CutPrefix(en.Node, fastNote); ok {
		return ag.advancer.failFast(ctx, fl, failed)
	}
	if task, ok := strings.CutPrefix(en.Node, signalNote); ok {
		return ag.advancer.deliver(ctx, fl, task)
	}
	if _, _, err := ag.graphs.values(fl).named(ctx, en.Node); errors.Is(err, ErrUnknown) { // Redis lost the plan with the node
		return ag.store.Agenda.Remove(ctx, en.Flow, en.Node)
	} else if err != nil {
		return err
	}
	var t store.Todo
	switch rec := store.ParseRecord(en.Record, fl.Created); rec.State {
	case store.StateOpen:
		return ag.completer.timeOut(ctx, fl, en.Node, rec.Attempts, ag.cfg.Manual)
	case 0, store.StateDelayed, store.StateReady, store.StateMapping, store.StateMapped:
		t.Run = []string{en.Node}
	case store.StatePlanned:
		t.Plans = []string{en.Node}
	case store.StateSkipping:
		t.Skips = []string{en.Node}
	default:
		return ag.store.Agenda.Remove(ctx, fl.Flow, en.Node)
	}
	return ag.advancer.settle(ctx, fl, t)
}

// giveUp gives up a workflow that cannot be decoded.
func (ag *agenda) giveUp(ctx context.Context, en store.Entry, cause error) error {
	if aborted, err := ag.graphs.aborted(ctx, en.Flow); err != nil || aborted != nil {
		return errors.Join(err, ag.store.Agenda.Remove(ctx, en.Flow, en.Node))
	}
	return errors.Join(ag.advancer.giveUp(ctx, en.Flow, cause), ag.store.Agenda.Remove(ctx, en.Flow, en.Node))
}

// setTimer makes the worker look at the agenda after d. It travels as a duration: the clocks of machines differ.
func (ag *agenda) setTimer(d time.Duration) {
	select {
	case ag.timer <- time.Now().Add(d):
	default: // there are so many that it looks soon anyway
	}
}
