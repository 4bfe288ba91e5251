package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"muster/orchestrator/pipeline"
	schema "muster/orchestrator/store"
	"muster/tasks"
	"muster/tasks/workqueue"
)

// Reasons not to restore a job.
var (
	ErrKept    = errors.New("there is a job with this id")
	ErrRunning = errors.New("there is a job with this id that has not ended; cancel it first")
	ErrRan     = errors.New("it ran on this Redis before, which still remembers its workflow, so it cannot run again under the same id")
)

// RestoreOptions say how jobs are restored.
type RestoreOptions struct {
	Lock    *schema.Lock
	Replace bool          // jobs that exist and have ended
	Away    time.Duration // since the backup: jobs that have not ended may take longer by it
}

// Restoring is a job that is being restored. It exists once Commit has returned.
type Restoring struct {
	a      *Archive
	opts   RestoreOptions
	saved  Saved
	r      record
	plan   *pipeline.Pipeline // nil if the job has no items
	queue  *workqueue.Queue
	events []any
}

// Restore begins to restore a job. The errors ErrKept, ErrRunning and ErrRan say why it stays out; others that the job
// is not one, or are of Redis.
func (a *Archive) Restore(ctx context.Context, s Saved, opts RestoreOptions) (*Restoring, error) {
	r, err := s.record()
	if err != nil {
		return nil, err
	}
	v := &Restoring{a: a, opts: opts, saved: s, r: r}
	if v.events, err = eventArgs(s.Events); err != nil {
		return nil, fmt.Errorf("job %s: %w", s.ID, err)
	}
	if r["kind"] == KindPipeline {
		if v.plan, err = r.pipeline(); err != nil {
			return nil, err
		}
		v.queue = a.queue(s.ID)
	}
	was, err := v.before(ctx)
	if err != nil {
		return nil, err
	}
	if v.plan != nil && !r.status().Terminal() {
		if timeout := r.millis("timeout"); timeout > 0 {
			r["timeout"] = strconv.FormatInt((timeout + max(0, opts.Away)).Milliseconds(), 10)
		}
	}
	if was != nil { // its document stays: the job that is restored may have it
		if _, err := a.service.drop(ctx, s.ID, was); err != nil {
			return nil, err
		}
	}
	if v.queue == nil {
		return v, nil
	}
	return v, v.queue.Delete(ctx) // what an import that was stopped has left
}

// before returns the job with the same id that Commit replaces, nil if there is none, or why the job stays out.
func (v *Restoring) before(ctx context.Context) (record, error) {
	id := v.saved.ID
	was, err := v.a.read(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return nil, err
	case !v.opts.Replace:
		return nil, ErrKept
	case !was.status().Terminal():
		return nil, ErrRunning
	}
	if v.plan == nil || v.r.status().Terminal() {
		return was, nil
	}
	_, err = tasks.Attach[string](v.a.cfg.Client, id).Status(ctx)
	if errors.Is(err, tasks.ErrUnknown) {
		return was, nil
	}
	if err == nil {
		err = ErrRan
	}
	return nil, err
}

// Add adds items of the job.
func (v *Restoring) Add(ctx context.Context, items ...SavedItem) error {
	if v.plan == nil {
		return fmt.Errorf("job %s is a %s, which has no items here", v.saved.ID, v.r["kind"])
	}
	infos := make([]workqueue.Info, len(items))
	for i, it := range items {
		info, err := it.queued(v.plan)
		if err != nil {
			return err
		}
		infos[i] = info
	}
	_, err := v.queue.Restore(ctx, infos...)
	return err
}

// Commit adds the job. One that has not ended continues: its workflow is sent again, and begins where its items are.
func (v *Restoring) Commit(ctx context.Context) error {
	id, r := v.saved.ID, v.r
	open := !r.status().Terminal()
	if v.queue != nil && !open {
		if err := v.queue.Seal(ctx); err != nil {
			return err
		}
	}
	none := recordKey(id)
	dedupe, doc, next, advance := none, none, "", 0
	if r["work"] != "" {
		dedupe = dedupeKey(r["work"])
	}
	if d := r.document(); d != nil {
		doc = documentKey(d.Hash)
	}
	switch {
	case open && r["cron"] != "":
		now, err := v.a.now(ctx)
		if err != nil {
			return err
		}
		at, err := nextTick(r["cron"], now)
		if err != nil {
			return fmt.Errorf("job %s: %w", id, err)
		}
		next = strconv.FormatInt(at.UnixMilli(), 10)
	case v.plan != nil && (open || r["final"] == ""):
		advance = 1
	}
	keys := append([]string{none}, eventKeys(id)...)
	keys = append(keys, schema.FenceKey(Slot), seqKey, todoKey, cronKey, usageKey(id), dedupe, doc)
	keys = append(keys, indexes(v.plan, r["kind"], r["name"], r.status(), r.list("labels"), json.RawMessage(r["context"]))...)
	keys = append(keys, itemsKey)
	items := ""
	if v.plan != nil {
		items = r.final().Items.tally()
	}
	args := []any{id, v.opts.Lock.Token(), prefix + "j:", prefix + "after:", next, endedPrefix, advance, items}
	after := r.list("after")
	args = append(args, len(after))
	for _, other := range after {
		args = append(args, other)
	}
	usage := saveUsage(v.saved.Usage)
	args = append(append(args, len(usage)), usage...)
	args = append(append(args, len(v.events)), v.events...)
	for field, value := range r {
		args = append(args, field, value)
	}
	reply, err := v.a.run(ctx, "restore job "+id, scripts["restore"], keys, args...)
	switch {
	case schema.IsFenced(err):
		return schema.ErrLost
	case err != nil:
		return err
	case toInt(reply[0]) == 0:
		return ErrKept
	}
	if v.plan != nil {
		v.a.plans.put(id, v.plan)
	}
	if advance == 0 {
		return nil
	}
	v.a.soon()
	return v.a.service.announceAll(ctx, id)
}
