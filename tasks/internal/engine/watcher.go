package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// How workers watch each other.
const (
	beatEvery   = 800 * time.Millisecond  // less than deadConfirm, so that live workers beat between the two looks that find them dead
	beatWithin  = 2 * time.Second         // for one call
	infoBeats   = 3                       // beats between two writes of what a worker tells about itself
	careBeats   = 5                       // beats between two looks for what was lost
	deadAfter   = 3500 * time.Millisecond // without a beat, found twice, the second time at least deadConfirm after the first
	deadConfirm = time.Second
	leaseAfter  = time.Second // a workflow of one node that runs for longer gets a lease, which has the time
)

// The names of unused queues may have been made for one run of a program.
const (
	unusedFor   = 24 * time.Hour // then a queue is forgotten
	forgetBeats = 4500           // beats of a worker between two looks for such queues: an hour
)

// watcher watches over workers: it beats for its own, and makes the nodes of dead ones ready again.
type watcher struct {
	*local
	slots   *slots
	limiter *limiter
	agenda  *agenda
	leases  *leases
	runs    *runs
	history *history
	tasks   []string // that the worker has handlers for, sorted
	samples map[string]any
	started time.Time
	listed  bool // signed on
	beats   int
}

// memoryInUse returns how many bytes Go has from the system and has not returned.
func memoryInUse() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}

// beat records that the worker is alive, and returns the live and the dead workers.
func (w *watcher) beat(ctx context.Context, first bool) (live, dead []string, err error) {
	w.beats++
	if w.beats%infoBeats != 1 && !first {
		return w.store.Workers.Beat(ctx, w.cfg.Name, false, nil, deadAfter, deadConfirm)
	}
	host, _ := os.Hostname()
	active, limit := w.slots.use()
	return w.store.Workers.Beat(ctx, w.cfg.Name, first, tasktype.Worker{Name: w.cfg.Name, Host: host, PID: w.cfg.PID, Queues: w.cfg.Queues,
		Concurrency: limit, Active: active, Started: w.started, Tasks: w.tasks,
		MaxConcurrency: w.cfg.MaxConcurrency, Stats: w.stats.read(),
		QueueLimits: w.cfg.QueueLimits, Release: w.cfg.Release, Memory: memoryInUse()}, deadAfter, deadConfirm)
}

// run beats until ctx is done. Beside that it makes the nodes of dead workers ready again and does other regular work, which a slow
// server of a Cluster can delay.
func (w *watcher) run(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	var caring sync.WaitGroup
	defer caring.Wait()
	var busy atomic.Bool
	for n := 0; ; {
		live, dead, err := w.heartbeat(ctx)
		if err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "heartbeat failed", "error", err)
		}
		if live != nil && !busy.Swap(true) {
			round := n
			n++
			caring.Go(func() {
				defer busy.Store(false)
				w.attend(ctx, live, dead, round)
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// heartbeat beats, and renews the places of running attempts. It returns the live workers, if they could be read, and the dead ones.
func (w *watcher) heartbeat(ctx context.Context) (live, dead []string, err error) {
	brief, cancel := context.WithTimeout(ctx, beatWithin)
	defer cancel()
	live, dead, err = w.beat(brief, false)
	brief, cancel = context.WithTimeout(ctx, beatWithin)
	defer cancel()
	return live, dead, errors.Join(err, w.limiter.renew(brief))
}

// attend does the regular work of a round.
func (w *watcher) attend(ctx context.Context, live, dead []string, round int) {
	// An idle worker should cost Redis little: the rest is done less often.
	if err := w.care(ctx, live, dead, round%careBeats == 0); err != nil && ctx.Err() == nil {
		w.log.WarnContext(ctx, "watch over workers failed", "error", err)
	}
	if err := w.history.once(ctx); err != nil && ctx.Err() == nil {
		w.log.WarnContext(ctx, "depths of queues were not stored", "error", err)
	}
	if round%forgetBeats == 1 {
		if err := w.store.Queues.Forget(ctx, unusedFor); err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "unused queues were not forgotten", "error", err)
		}
	}
}

// once beats and cares for the workers and queues.
func (w *watcher) once(ctx context.Context) error {
	live, dead, err := w.heartbeat(ctx)
	if live == nil {
		return err
	}
	return errors.Join(err, w.care(ctx, live, dead, true))
}

// careTime bounds a part of care: a slow server of a Cluster must not delay the other parts.
const careTime = 3 * time.Second

// care makes the nodes of dead workers ready again. With all it also looks for leases of unlisted
// workers, for leases and entries that this worker does not know, and for nodes that wait for its handlers.
func (w *watcher) care(ctx context.Context, live, dead []string, all bool) error {
	brief := func(part func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, careTime)
		defer cancel()
		return part(ctx)
	}
	err := brief(func(ctx context.Context) error { return w.reap(ctx, dead) })
	w.leases.lendSlow(w.clock.Now().Add(-leaseAfter))
	if !all {
		return err
	}
	return errors.Join(err,
		brief(func(ctx context.Context) error {
			queues := slices.Sorted(maps.Keys(w.cfg.Queues))
			return errors.Join(w.store.Queues.Look(ctx, queues), w.store.Queues.Join(ctx, w.cfg.Name, queues))
		}),
		brief(func(ctx context.Context) error { return w.findMissing(ctx, live, dead) }),
		brief(w.returnStrays),
		brief(func(ctx context.Context) error { return w.runs.stop(ctx, "") }), // the message can be lost
		brief(w.releaseHandled))
}

// reap makes the nodes of dead workers ready again. Any worker does that, even one that has just started: the two looks
// that find a worker silent are remembered in Redis.
func (w *watcher) reap(ctx context.Context, dead []string) error {
	var errs []error
	for _, name := range dead {
		if name == w.cfg.Name {
			continue
		}
		n, err := w.store.Leases.Reap(ctx, name, true)
		if n > 0 {
			w.stats.recovered.Add(int64(n))
			w.log.WarnContext(ctx, "nodes of a silent worker run again", "worker", name, "nodes", n)
		}
		if err == nil {
			err = w.store.Workers.Remove(ctx, name, deadAfter)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// findMissing lists the workers that have leases and are not listed, so that they are found dead if they stay silent.
func (w *watcher) findMissing(ctx context.Context, live, dead []string) error {
	holders, err := w.store.Leases.Holders(ctx)
	var missing []string
	for _, h := range holders {
		if !slices.Contains(live, h) && !slices.Contains(dead, h) {
			missing = append(missing, h)
		}
	}
	if len(missing) > 0 {
		err = errors.Join(err, w.store.Workers.ListMissing(ctx, missing))
	}
	return err
}

// returnStrays returns the nodes that are leased to this worker and that it does not have: Redis lost their end, in a
// failover or a crash, or an earlier worker of the same name took them.
func (w *watcher) returnStrays(ctx context.Context) error {
	leases, entries, err := w.store.Leases.Of(ctx, w.cfg.Name)
	shards := map[int][]store.NodeLease{}
	for _, l := range w.leases.strays(leases) {
		shards[l.Shard] = append(shards[l.Shard], l)
	}
	for shard, strays := range shards {
		n, failed := w.store.Leases.Return(ctx, shard, w.cfg.Name, strays)
		if err = errors.Join(err, failed); n > 0 { // the others ended after they were read
			w.stats.recovered.Add(int64(n))
			w.log.WarnContext(ctx, "leases that this worker does not have were ended; their nodes run again", "nodes", n)
		}
	}
	for _, e := range w.leases.strayEntries(entries) {
		failed := w.store.Queues.PutBack(ctx, w.cfg.Name, &e)
		if err = errors.Join(err, failed); failed == nil {
			w.stats.recovered.Add(1)
		}
	}
	return err
}

// signOn registers the worker as live once Redis accepts writes. It fails for a Redis that may evict keys of
// workflows.
func (w *watcher) signOn(ctx context.Context) error {
	policy, err := w.store.MemoryPolicy(ctx)
	switch {
	case err != nil:
		return err
	case policy.Evicts():
		return fmt.Errorf("%w; it is %s", store.ErrEvicts, policy.Name)
	case policy.WouldEvict():
		w.log.WarnContext(ctx, "redis has no limit of memory now; set maxmemory-policy noeviction before it gets one, or workflows are lost", "policy", policy.Name)
	case policy.Name == "":
		w.log.InfoContext(ctx, "cannot read the maxmemory-policy of Redis; make sure that it is noeviction")
	}
	if err := w.firstBeat(ctx); err != nil {
		return err
	}
	w.listed = true
	if err := w.store.Workers.StoreSamples(ctx, w.samples); err != nil {
		return err
	}
	return w.store.Queues.Join(ctx, w.cfg.Name, slices.Sorted(maps.Keys(w.cfg.Queues)))
}

// firstBeat beats for the first time. It waits while the memory or the disk of Redis is full, and for the heartbeat of a
// killed worker of the same name to expire.
func (w *watcher) firstBeat(ctx context.Context) error {
	heard := "" // the last heartbeat of another worker of this name
	for waits := false; ; waits = true {
		_, err := w.store.Shards(ctx) // first: in a store that is refused it must not be listed
		if err == nil {
			_, _, err = w.beat(ctx, true)
		}
		other := (*store.NameTaken)(nil)
		taken := errors.As(err, &other)
		if taken && heard != "" && other.Beat != heard {
			return fmt.Errorf("worker %s: %w; give each worker its own Name", w.cfg.Name, err)
		}
		if !taken && !store.Full(err) {
			return err
		}
		switch {
		case taken && heard == "":
			heard = other.Beat
			w.log.InfoContext(ctx, "worker starts when the heartbeat of an earlier worker of its name has expired", "worker", w.cfg.Name)
		case !waits:
			w.log.WarnContext(ctx, "worker starts when there is room", "worker", w.cfg.Name, "error", w.store.Explain(ctx, err))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.killed:
			return err
		case <-time.After(fullPoll):
		}
	}
}

// fullPoll is how often a worker looks whether a Redis that was full has room.
const fullPoll = 500 * time.Millisecond

// signOff signs off the worker that has stopped, if it has signed on. The nodes that it still has, when it was killed, are
// returned.
func (w *watcher) signOff(ctx context.Context) error {
	if !w.listed {
		return nil
	}
	err := w.store.Workers.Bye(ctx, w.cfg.Name)
	_, failed := w.store.Leases.Reap(ctx, w.cfg.Name, false)
	return errors.Join(err, failed)
}
