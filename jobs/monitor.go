package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"muster/internal/limit"
	"muster/internal/wrap"
	"muster/tasks/workqueue"
)

// maxFutile is how often a job is recovered without any progress before it fails.
const maxFutile = 3

// Run advances due jobs, recovers stuck jobs, and deletes old jobs, until ctx is
// done. It should run in at least one process, and may run in many. Errors are logged.
func (s *Service) Run(ctx context.Context) error {
	s.running.Store(true)
	defer s.running.Store(false)
	var both errgroup.Group
	both.Go(func() error { s.runTodo(ctx); return nil })
	both.Go(func() error { s.runSweeps(ctx); return nil })
	return both.Wait()
}

// runTodo advances jobs when their time has come.
func (s *Service) runTodo(ctx context.Context) {
	for ctx.Err() == nil {
		wait, err := s.todo(ctx)
		if err != nil && ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "jobs are not advanced", "err", err)
			wait = time.Second
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

// todo advances the jobs that are due and returns how long until the next.
func (s *Service) todo(ctx context.Context) (time.Duration, error) {
	for {
		reply, err := s.run(ctx, "read the jobs to advance", "due", []string{todoKey}, 100, s.limits.Load().CheckEvery.Milliseconds())
		if err != nil {
			return 0, err
		}
		for _, v := range reply[2:] {
			id := toString(v)
			if err := s.advanceOnce(ctx, id, toString(reply[0])); err != nil {
				s.cfg.Logger.WarnContext(ctx, "a job is not advanced", "job", id, "err", err)
			}
		}
		if len(reply) > 2 {
			continue
		}
		wait, err := strconv.ParseInt(toString(reply[1]), 10, 64)
		if err != nil || wait < 0 {
			return time.Second, err // another process may add to the list
		}
		return min(max(time.Duration(wait)*time.Millisecond, time.Millisecond), time.Second), nil
	}
}

// advanceOnce advances a job, and removes it from the list unless it was added again.
func (s *Service) advanceOnce(ctx context.Context, id, score string) error {
	if err := s.advance(ctx, id); err != nil {
		return err
	}
	_, err := s.run(ctx, "advance job "+id, "done", []string{todoKey}, id, score)
	return err
}

// runSweeps looks at all open jobs every CheckEvery, in one process at a time.
func (s *Service) runSweeps(ctx context.Context) {
	turn := limit.NewTurn(s.rdb, sweepKey)
	lead := func(ctx context.Context) (bool, error) { return turn.Take(ctx, 2*s.limits.Load().CheckEvery) }
	look := time.NewTicker(s.limits.Load().CheckEvery)
	defer look.Stop()
	if _, err := lead(ctx); err != nil && ctx.Err() == nil { // isRunning looks for it
		s.cfg.Logger.WarnContext(ctx, "open jobs are not looked at", "err", err)
	}
	for {
		select {
		case <-ctx.Done():
			turn.Free(ctx)
			return
		case <-s.tuned:
			look.Reset(s.limits.Load().CheckEvery)
			continue
		case <-look.C:
		}
		mine, err := lead(ctx)
		if err == nil && mine {
			renewing, stop := context.WithCancel(ctx)
			var renewals errgroup.Group
			renewals.Go(func() error { s.keepLead(renewing, lead); return nil })
			err = s.Sweep(ctx)
			stop()
			_ = renewals.Wait()
		}
		if err != nil && ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "open jobs were not looked at", "err", err)
		}
	}
}

// keepLead renews the lead of this process until ctx is done, because a sweep can last longer than the lead.
func (s *Service) keepLead(ctx context.Context, lead func(context.Context) (bool, error)) {
	tick := time.NewTicker(s.limits.Load().CheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := lead(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "the lead of the sweep is not renewed", "err", err)
		}
	}
}

// Sweep visits all open jobs once: it advances them, fails jobs over their timeout, recovers stuck jobs, and deletes old
// ones. Run calls it.
func (s *Service) Sweep(ctx context.Context) error {
	var errs []error
	var stuck atomic.Int64
	if s.cfg.Reconcile != nil {
		errs = append(errs, s.cfg.Reconcile(ctx))
	}
	for _, in := range []Status{Created, Processing} {
		var looks errgroup.Group
		looks.SetLimit(atOnce)
		errs = append(errs, s.eachOpen(ctx, in, func(id string, r record) error {
			looks.Go(func() error {
				if err := s.examine(ctx, id, r, &stuck); err != nil && ctx.Err() == nil {
					s.cfg.Logger.WarnContext(ctx, "a job was not looked at", "job", id, "err", err)
				}
				return nil
			})
			return ctx.Err()
		}))
		_ = looks.Wait()
	}
	errs = append(errs, s.storeStuck(ctx, stuck.Load()), s.forget(ctx))
	return errors.Join(errs...)
}

// examine advances, times out or recovers an open job, and counts it if it is stuck.
func (s *Service) examine(ctx context.Context, id string, r record, stuck *atomic.Int64) error {
	if err := s.advanceFrom(ctx, id, r); err != nil {
		return err
	}
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	begun := r.time("created")
	if at := r.time("at"); at.After(begun) {
		begun = at
	}
	if at := r.time("reopened"); at.After(begun) {
		begun = at
	}
	if timeout := r.millis("timeout"); timeout > 0 && now.Sub(begun) > timeout {
		return s.end(ctx, id, r, Failed, "job.failed", "it did not end within "+timeout.String())
	}
	if r.status() != Processing {
		return nil
	}
	// A queue notices leases that have expired when work is taken: without agents, here. This takes nothing.
	batch, err := s.queue(id).LeaseWithin(ctx, "sweep", 1, workqueue.Budget{})
	if err != nil {
		return err
	}
	if batch.Paused { // by a process that died while it ended or recovered the job
		if err := s.unseal(ctx, id); err != nil {
			return err
		}
	}
	if err := s.tellEndings(ctx, id); err != nil { // also of processes that have died
		return err
	}
	j, err := s.job(ctx, id, r)
	if err != nil {
		return err
	}
	if err := s.fill(ctx, &j, r, false, nil); err != nil {
		return err
	}
	if err := s.tally(ctx, &j, r); err != nil {
		return err
	}
	if j.Waiting, err = s.waiting(ctx, &j, r); err != nil {
		return err
	}
	if err := s.announce(ctx, &j); err != nil {
		return err
	}
	if j.Waiting != "" && now.Sub(r.time("waited")) >= j.StuckAfter/2 {
		if _, err := s.note(ctx, id, "", "", "", "waited", now.UnixMilli()); err != nil {
			return err
		}
	}
	if st, is := s.stuck(j, r, now); is {
		stuck.Add(1)
		return s.recover(ctx, &j, r, st, now)
	}
	return nil
}

// announce puts a job into the lists of the roles that it has work for, if an announcement was lost.
func (s *Service) announce(ctx context.Context, j *Job) error {
	for i, st := range j.Stages {
		if st.Pending > 0 || st.Takes == "job" && st.Status != StageCompleted && st.Agent == "" {
			if err := s.announceWork(ctx, j.ID, j.Pipeline.Stages[i].Worker(), 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// recover takes the work of a stuck job from whoever holds it. A job that waits for agents is left alone. One that was
// recovered too often fails.
func (s *Service) recover(ctx context.Context, j *Job, r record, st Stuck, now time.Time) error {
	if j.Waiting != "" { // the event is appended once for each time without progress
		_, err := s.note(ctx, j.ID, "stuck:"+r["progressed"], "job.stuck", encode(st))
		return err
	}
	futile := r.int("futile")
	if futile >= maxFutile {
		return s.end(ctx, j.ID, r, Failed, "job.failed", fmt.Sprintf("stuck in stage %s, also after %d recoveries: %s", st.Stage, futile, st.Reason))
	}
	data, err := json.Marshal(st)
	if err != nil {
		return err
	}
	if _, err := s.note(ctx, j.ID, "", "job.stuck", string(data)); err != nil {
		return err
	}
	// Sealing ends all leases, so that late completions change nothing.
	if err := s.queue(j.ID).Seal(ctx); err != nil {
		return err
	}
	if err := s.unseal(ctx, j.ID); err != nil {
		return err
	}
	if err := s.announce(ctx, j); err != nil {
		return err
	}
	s.cfg.Logger.WarnContext(ctx, "a stuck job was recovered", "job", j.ID, "stage", st.Stage, "reason", st.Reason)
	_, err = s.note(ctx, j.ID, "", "job.recovered", string(data),
		"progressed", now.UnixMilli(), "futile", futile+1, "recoveries", r.int("recoveries")+1)
	return err
}

// terminal are the states in which a job has ended.
var terminal = []Status{Completed, Failed, Cancelled}

// retention returns the time for which jobs are stored after they have ended in a state; 0 means forever.
func (c *Limits) retention(status Status) time.Duration {
	if d, ok := c.KeepFor[string(status)]; ok {
		return max(d, 0)
	}
	return max(c.Keep, 0)
}

// forget deletes jobs whose retention has expired. It continues with the next job after an error.
func (s *Service) forget(ctx context.Context) error {
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, status := range terminal {
		if keep := s.limits.Load().retention(status); keep > 0 {
			errs = append(errs, s.forgetBefore(ctx, endedKey(status), now.Add(-keep)))
		}
	}
	return errors.Join(errs...)
}

// forgetBefore deletes up to 1000 jobs of an index of ended jobs that ended before a time.
func (s *Service) forgetBefore(ctx context.Context, index string, before time.Time) error {
	ids, err := s.rdb.ZRangeByScore(ctx, index, &redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(before.UnixMilli(), 10), Count: 1000}).Result()
	if err != nil {
		return fmt.Errorf("look for old jobs: %w", err)
	}
	var errs []error
	for _, id := range ids {
		r, err := s.read(ctx, id)
		if errors.Is(err, ErrNotFound) {
			err = s.rdb.ZRem(ctx, index, id).Err()
		} else if err == nil {
			err = s.remove(ctx, id, r)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("delete old job %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// Numbers are counters of all jobs, maintained by scripts.
type Numbers struct {
	// Items are the items of all stored pipeline jobs. Items of unfinished jobs are counted by sweeps.
	Items map[ItemStatus]int64
	Stuck int64 // jobs without progress, as the last sweep has seen them
}

// Numbers returns the counters of all jobs.
func (s *Service) Numbers(ctx context.Context) (Numbers, error) {
	items, err := s.rdb.HGetAll(ctx, itemsKey).Result()
	if err != nil {
		return Numbers{}, fmt.Errorf("read the counters of jobs: %w", err)
	}
	r := record(items)
	n := Numbers{Items: map[ItemStatus]int64{}, Stuck: r.int("stuck")}
	for _, state := range ItemStatuses {
		n.Items[state] = r.int(string(state))
	}
	return n, nil
}

// tally is how the scripts get the items by state.
func (c Counts) tally() string {
	var parts []string
	for _, state := range ItemStatuses {
		if n := *c.Of(state); n > 0 {
			parts = append(parts, string(state)+"="+strconv.FormatInt(n, 10))
		}
	}
	return strings.Join(parts, " ")
}

// tally counts the items of a job that has not ended, unless they are counted already, and lists the job if some of them
// wait for a decision.
func (s *Service) tally(ctx context.Context, j *Job, r record) error {
	items := j.Items.tally()
	if items == r["counted"] && j.Items.Review == 0 {
		return nil
	}
	_, err := s.run(ctx, "count the items of job "+j.ID, "tally", []string{recordKey(j.ID), itemsKey, reviewsKey}, items, j.ID, "", "")
	return err
}

// storeStuck stores how many jobs a sweep has found stuck.
func (s *Service) storeStuck(ctx context.Context, n int64) error {
	return wrap.Err(s.rdb.HSet(ctx, itemsKey, "stuck", n).Err(), "store how many jobs are stuck")
}
