package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// Fleet reads and controls the live workers and their queues.
type Fleet struct{ *env }

// Workers returns the live workers. While Redis takes no writes, workers cannot beat; if no worker is listed then, it
// returns an error.
func (f *Fleet) Workers(ctx context.Context) ([]tasktype.Worker, error) {
	names, _, err := f.store.Workers.Beat(ctx, "", false, nil, deadAfter, deadConfirm)
	if err == nil && len(names) == 0 {
		err = f.store.Writable(ctx)
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	raws, err := f.store.Workers.Infos(ctx, names)
	if err != nil {
		return nil, err
	}
	var out []tasktype.Worker
	for i, raw := range raws {
		if raw == nil {
			continue
		}
		var w tasktype.Worker
		if err := json.Unmarshal(raw, &w); err != nil {
			return nil, fmt.Errorf("info of worker %s: %w", names[i], err)
		}
		out = append(out, w)
	}
	return out, nil
}

// Ping pings the workers, and returns the live workers and all others that replied. It returns when all live workers
// have replied, or after wait. If no worker is listed as live it always waits that long: while Redis rejects writes,
// workers are not listed but can reply.
func (f *Fleet) Ping(ctx context.Context, wait time.Duration) ([]tasktype.Pong, error) {
	live, err := f.Workers(ctx)
	if err != nil && !store.Refused(err) {
		return nil, err
	}
	out := make([]tasktype.Pong, len(live))
	for i, w := range live {
		out[i].Worker = w.Name
	}
	token := newID(time.Now())
	sub := f.store.Redis().Subscribe(ctx, f.store.Workers.PongChannel(token))
	defer func() { _ = sub.Close() }()
	if _, err := sub.Receive(ctx); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	begun := time.Now()
	if err := f.store.Tell(ctx, 0, "p "+token); err != nil {
		return nil, fmt.Errorf("tell workers: %w", err)
	}
	over := time.After(wait)
	for left := len(live); left > 0 || len(live) == 0; {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-over:
			return out, nil
		case m, ok := <-sub.Channel():
			if !ok {
				return out, nil
			}
			i := slices.IndexFunc(out, func(p tasktype.Pong) bool { return p.Worker == m.Payload })
			switch {
			case i < 0: // it is not listed, or joined after we looked
				out = append(out, tasktype.Pong{Worker: m.Payload, Answered: true, After: time.Since(begun)})
			case !out[i].Answered:
				out[i].Answered, out[i].After = true, time.Since(begun)
				left--
			}
		}
	}
	return out, nil
}

// Resume undoes [store.Queues.Pause].
func (f *Fleet) Resume(ctx context.Context, queue string) error {
	if err := f.store.Queues.Resume(ctx, queue); err != nil {
		return err
	}
	return f.store.Tell(ctx, 0, "q "+queue)
}

// ChangeLimit changes a limit, see [store.Limits.Change].
func (f *Fleet) ChangeLimit(ctx context.Context, limit string, key *string, what, value string) error {
	shards, err := f.store.Limits.Change(ctx, limit, key, what, value)
	if err != nil {
		return err
	}
	for _, shard := range shards {
		if err := f.store.Tell(ctx, shard, "t 0"); err != nil {
			return err
		}
	}
	return nil
}

// Errors of SetConcurrency.
var (
	ErrNoWorker    = store.Kind(store.ErrNotFound, "worker not found")
	ErrConcurrency = store.Kind(graph.ErrInvalid, "invalid concurrency")
)

// SetConcurrency sets the number of tasks that the live workers with a name, or all, run concurrently.
func (f *Fleet) SetConcurrency(ctx context.Context, worker string, n int) error {
	live, err := f.Workers(ctx)
	if err != nil {
		return err
	}
	var names []string
	found := false
	for _, w := range live {
		names = append(names, w.Name)
		if worker != "" && worker != w.Name {
			continue
		}
		found = true
		if w.MaxConcurrency > 0 && n > w.MaxConcurrency {
			return fmt.Errorf("%w: worker %s runs at most %d tasks at once", ErrConcurrency, w.Name, w.MaxConcurrency)
		}
	}
	switch {
	case len(live) == 0:
		return fmt.Errorf("%w: no workers are running", ErrNoWorker)
	case !found:
		return fmt.Errorf("%w: %q; the running workers are %s", ErrNoWorker, worker, strings.Join(names, ", "))
	}
	if worker == "" {
		worker = "*"
	}
	if err := f.store.Tell(ctx, 0, "c "+worker+" "+strconv.Itoa(n)); err != nil {
		return fmt.Errorf("tell workers: %w", err)
	}
	return nil
}

// Expire makes the nodes of the named workers, which are dead, ready again.
func (f *Fleet) Expire(ctx context.Context, workers []string) error {
	var errs []error
	for _, name := range workers {
		_, err := f.store.Leases.Reap(ctx, name, true)
		errs = append(errs, err, f.store.Workers.Bye(ctx, name))
	}
	return errors.Join(errs...)
}
