package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// How workers watch each other and the agenda.
const (
	beatEvery    = 2 * time.Second // less than deadConfirm, so that live workers beat between the two looks that find them dead
	deadAfter    = 6 * time.Second // without a beat, found twice, the second time at least deadConfirm after the first
	deadConfirm  = 2500 * time.Millisecond
	sweepEvery   = 4 * time.Second // at the latest: the message that a timer was set can be lost
	wakePatience = time.Second     // how long a wake-task may take to come before it is looked for
	claimFor     = 5 * time.Second // how long no other worker gets the due entries that this one has claimed
	sweepMost    = 500             // entries of a shard in one sweep
)

// sweep sees to the agenda until ctx is done: at intervals, and when a timer is due.
func (w *Worker) sweep(ctx context.Context) {
	next := time.NewTimer(0)
	defer next.Stop()
	planned := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-w.timer:
			if at.Before(planned) {
				planned = at
				next.Reset(time.Until(at))
			}
			continue
		case <-next.C:
		}
		_, wait, err := w.sweepOnce(ctx)
		if err != nil && ctx.Err() == nil {
			w.damaged.Store(true)
			w.log.Warn("sweep of the agenda failed", "error", err)
		}
		planned = time.Now().Add(wait)
		next.Reset(wait)
	}
}

// sweepOnce sees to the entries of the agenda that are due. It returns how many there were, and how long to wait for
// the next ones.
func (w *Worker) sweepOnce(ctx context.Context) (did int, wait time.Duration, err error) {
	shards, err := w.e.store.Agenda.Due(ctx, claimFor, sweepMost)
	if err != nil {
		return 0, sweepEvery, err
	}
	wait = sweepEvery
	var errs []error
	for i := range shards {
		d := &shards[i]
		did += d.Count
		w.e.wake(ctx, d.Wants)
		for _, en := range d.Lines {
			if err := w.attend(ctx, en); err != nil {
				errs = append(errs, fmt.Errorf("workflow %s node %s: %w", en.Flow.ID, en.Node, err))
			}
		}
		if d.Count >= sweepMost {
			wait = 0
		} else if !d.Next.IsZero() {
			wait = min(wait, max(0, d.Next.Sub(d.Now)))
		}
	}
	return did, wait, errors.Join(errs...)
}

// look finds ready nodes that nobody takes, and sends their wake-tasks, again if they were asked for longer than
// patience ago. With the name of a worker, it also deletes damaged keys: those of the shards, of the queues and of that
// worker.
func (e *Engine) look(ctx context.Context, patience time.Duration, worker string, queues []string) error {
	found, err := e.store.Queues.Look(ctx, patience, worker, queues)
	if err != nil {
		return err
	}
	e.wake(ctx, found.Wants)
	for _, key := range found.Deleted {
		e.log.Error("damaged key was deleted; what only this key held is lost", "key", key)
	}
	var errs []error
	for _, k := range found.Overdue {
		errs = append(errs, e.wakeAgain(ctx, k))
	}
	return errors.Join(errs...)
}

// attend takes the step that an entry of the agenda stands for. Another process may have taken it already: each step
// checks that by itself.
func (w *Worker) attend(ctx context.Context, en store.Entry) error {
	e := w.e
	fl, err := e.load(ctx, en.Flow.ID)
	switch {
	case errors.Is(err, ErrUnknown):
		return e.store.Agenda.Remove(ctx, en.Flow, en.Node)
	case errors.Is(err, errUnreadable):
		return w.attendUnreadable(ctx, en, err)
	case err != nil:
		return err
	}
	switch en.Node {
	case revokeNote:
		return e.finishRevoke(ctx, fl.ID)
	case progressNote:
		if err := e.project(ctx, fl); err != nil {
			return err
		}
		return e.store.Agenda.Move(ctx, fl.Flow, progressNote, e.clock.Now().Add(keepAlive))
	}
	if failed, ok := strings.CutPrefix(en.Node, fastNote); ok {
		return e.failFast(ctx, fl, failed)
	}
	if _, _, err := e.nodeOf(ctx, fl, en.Node); errors.Is(err, errUnreadable) {
		return w.attendUnreadable(ctx, en, err)
	} else if err != nil {
		return err
	}
	var t store.Todo
	switch rec := store.ParseRecord(en.Record, fl.Created); rec.State {
	case 'W':
		return e.timeOut(ctx, fl, en.Node, rec.Attempts, w.cfg.Manual)
	case 0, 'D', 'Q', 'E', 'e':
		t.Run = []string{en.Node}
	case 'P':
		t.Plans = []string{en.Node}
	case 'k':
		t.Skips = []string{en.Node}
	default:
		return e.store.Agenda.Remove(ctx, fl.Flow, en.Node)
	}
	return e.settle(ctx, fl, t)
}

// attendUnreadable gives up a workflow that cannot be read; one of a newer release is left to its workers.
func (w *Worker) attendUnreadable(ctx context.Context, en store.Entry, cause error) error {
	if aborted, err := w.e.aborted(ctx, en.Flow); err != nil || aborted != nil {
		return errors.Join(err, w.e.store.Agenda.Remove(ctx, en.Flow, en.Node))
	}
	var v *graph.VersionError
	if errors.As(cause, &v) && v.V > graph.Version {
		return nil // the entry stays, and becomes due again
	}
	return errors.Join(w.e.giveUp(ctx, en.Flow, cause), w.e.store.Agenda.Remove(ctx, en.Flow, en.Node))
}

func (w *Worker) beat(ctx context.Context) (live, dead []string, err error) {
	host, _ := os.Hostname()
	names := slices.Sorted(maps.Keys(w.handlers))
	active, limit := w.slots.use()
	return w.e.store.Workers.Beat(ctx, w.cfg.Name, tasktype.Worker{Name: w.cfg.Name, Host: host, PID: w.cfg.PID, Queues: w.cfg.Queues,
		Concurrency: limit, Active: active, Started: w.started, Tasks: names,
		MaxConcurrency: w.cfg.MaxConcurrency, Stats: w.stats.read(), Version: graph.Version}, deadAfter, deadConfirm)
}

// watch beats until ctx is done, and makes the nodes of dead workers ready again.
func (w *Worker) watch(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		// An idle worker should cost Redis little: the rest is done every second time only.
		if err := w.watchOnce(ctx, n%2 == 0); err != nil && ctx.Err() == nil {
			w.log.Warn("watch over workers failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// watchOnce beats and makes the nodes of dead workers ready again. With all it also looks for batches of unlisted
// workers, for batches that this worker does not know, and for ready nodes that nobody takes.
func (w *Worker) watchOnce(ctx context.Context, all bool) error {
	live, dead, err := w.beat(ctx)
	if err != nil {
		return err
	}
	err = w.reap(ctx, dead)
	if all {
		check := ""
		if w.damaged.Swap(false) {
			check = w.cfg.Name
		}
		err = errors.Join(err, w.findMissing(ctx, live, dead), w.returnStrays(ctx),
			w.e.look(ctx, wakePatience, check, slices.Sorted(maps.Keys(w.cfg.Queues))))
	}
	if err != nil {
		w.damaged.Store(true)
	}
	return err
}

// reap makes the nodes of dead workers ready again. Any worker does that, even one that has just started: the two looks
// that find a worker silent are remembered in Redis.
func (w *Worker) reap(ctx context.Context, dead []string) error {
	var errs []error
	for _, name := range dead {
		if name == w.cfg.Name {
			continue
		}
		n, wants, err := w.e.store.Batches.Reap(ctx, name, true)
		w.e.wake(ctx, wants)
		if n > 0 {
			w.stats.recovered.Add(int64(n))
			w.log.Warn("nodes of a silent worker run again", "worker", name, "nodes", n)
		}
		if err == nil {
			err = w.e.store.Workers.Bye(ctx, name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// findMissing lists the workers that have batches and are not listed, so that they are found dead if they stay silent.
func (w *Worker) findMissing(ctx context.Context, live, dead []string) error {
	holders, err := w.e.store.Batches.Holders(ctx)
	if err != nil {
		return err
	}
	var missing []string
	for _, h := range holders {
		if !slices.Contains(live, h) && !slices.Contains(dead, h) {
			missing = append(missing, h)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return w.e.store.Workers.ListMissing(ctx, missing)
}

// returnStrays returns the batches that are leased to this worker and that it does not have: Redis lost their end, in a
// failover or a crash, or an earlier worker of the same name took them.
func (w *Worker) returnStrays(ctx context.Context) error {
	shards, err := w.e.store.Batches.IDs(ctx, w.cfg.Name)
	if err != nil {
		return err
	}
	for shard, ids := range shards {
		strays := w.batches.strays(ids)
		if len(strays) == 0 {
			continue
		}
		n, wants, err := w.e.store.Batches.Return(ctx, shard, w.cfg.Name, strays)
		w.e.wake(ctx, wants)
		if err != nil {
			return err
		}
		w.stats.recovered.Add(int64(n))
		w.log.Warn("batches that this worker does not have were returned; their nodes run again", "nodes", n)
	}
	return nil
}

// Tend does once what a worker does at intervals: it beats, and sees to the agenda, to dead workers and to ready nodes
// that nobody takes. It returns how many entries of the agenda were due, and when the next one will be; zero if there
// is none.
func (w *Worker) Tend(ctx context.Context) (did int, next time.Time, err error) {
	w.projectAll(ctx)
	if err := w.watchOnce(ctx, true); err != nil {
		return 0, next, err
	}
	did, _, err = w.sweepOnce(ctx)
	if err != nil {
		return did, next, err
	}
	entries, err := w.e.store.Agenda.First(ctx, 1)
	if err != nil {
		return did, next, err
	}
	for _, en := range entries {
		if next.IsZero() || en.Due.Before(next) {
			next = en.Due
		}
	}
	return did, next, nil
}

// projectEvery is how often the progress keys of a workflow are written.
const projectEvery = 100 * time.Millisecond

// touch marks a workflow whose progress keys are to be written.
func (w *Worker) touch(fl *flow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirty[fl.ID] = fl
}

func (w *Worker) projections(ctx context.Context) {
	tick := time.NewTicker(projectEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.projectAll(ctx)
	}
}

// projectAll writes the progress keys of the workflows that were marked since the last time.
func (w *Worker) projectAll(ctx context.Context) {
	w.mu.Lock()
	dirty := w.dirty
	w.dirty = map[string]*flow{}
	w.mu.Unlock()
	for id, fl := range dirty {
		if err := w.e.project(ctx, fl); err != nil && ctx.Err() == nil && !errors.Is(err, ErrUnknown) {
			w.log.Warn("progress keys were not written", "workflow", id, "error", err)
		}
	}
}
