package engine

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// progress counts how far workflows are, and writes their public progress keys.
type progress struct {
	*env
	graphs *graphs
}

// keepAlive is how often the expiry of progress keys is pushed while nothing else writes them.
const keepAlive = 10 * time.Minute

// publicNames are the progress keys whose expiry is kept alive.
var publicNames = []string{"total_chunks", "completed_chunks", "status", "started_at", "completed_at", "result_count", "total_urls", "error_count"}

// keyKind returns the rule by which a progress key changes.
func keyKind(name, value string) string {
	switch name {
	case "status":
		return store.KeyWord
	case "started_at", "completed_at":
		return store.KeyOnce
	}
	if _, err := strconv.ParseInt(value, 10, 64); err == nil {
		return store.KeyMax
	}
	return store.KeySet
}

// publish writes progress keys of a workflow: pairs of names and values.
func (pr *progress) publish(ctx context.Context, fl *flow, pairs ...string) error {
	for i := 0; i+1 < len(pairs); i += 2 {
		name, value := pairs[i], pairs[i+1]
		if err := pr.store.Progress.Set(ctx, fl.g.Progress, fl.ID(), name, keyKind(name, value), value); err != nil {
			return err
		}
	}
	return nil
}

// dispatched writes the progress keys of a workflow that was just sent.
func (pr *progress) dispatched(ctx context.Context, fl *flow) error {
	if fl.g.Progress == "" {
		return nil
	}
	if err := pr.store.Agenda.Add(ctx, fl.Flow, progressNote, keepAlive); err != nil {
		return err
	}
	return pr.publish(ctx, fl, "total_chunks", "0", "completed_chunks", "0", "result_count", "0", "status", "DISPATCHED",
		"started_at", strconv.FormatInt(fl.Created/1000, 10))
}

// write writes the progress keys from the counts of a workflow: absolute numbers, so that a repeat
// is harmless.
func (pr *progress) write(ctx context.Context, fl *flow) error {
	p, err := pr.of(ctx, fl.Ref)
	if err != nil {
		return err
	}
	pairs := []string{"total_chunks", strconv.Itoa(p.Chunks), "completed_chunks", strconv.Itoa(p.ChunksDone)}
	switch {
	case p.Ended:
		word := "COMPLETE"
		if p.Status != tasktype.Success {
			word = "FAILED"
		}
		now, err := pr.redisTime(ctx, fl.Shard())
		if err != nil {
			return err
		}
		pairs = append(pairs, "completed_at", strconv.FormatInt(now.Unix(), 10), "status", word)
	case p.Chunks > 0:
		pairs = append(pairs, "status", "PROCESSING")
	}
	if err := pr.publish(ctx, fl, pairs...); err != nil {
		return err
	}
	if err := pr.store.Progress.Refresh(ctx, fl.g.Progress, fl.ID(), publicNames); err != nil {
		return err
	}
	if p.Ended {
		return pr.store.Agenda.Remove(ctx, fl.Flow, progressNote)
	}
	return nil
}

// of returns the progress of a workflow.
func (pr *progress) of(ctx context.Context, id string) (tasktype.Progress, error) {
	fl, err := pr.graphs.load(ctx, id)
	if err != nil {
		return tasktype.Progress{}, err
	}
	fields, err := pr.store.Flows.Fields(ctx, fl.Flow, store.FieldTasks, store.FieldTasksEnded, store.FieldSteps, store.FieldStepsEnded, store.FieldMembers, store.FieldMembersEnded,
		fl.Root, store.FieldAborted, store.FieldWasOpen, store.FieldStopped, store.FieldDeadline, store.FieldProgress)
	if err == nil && fields[store.FieldTasks] == "" {
		err = ErrUnknown
	}
	if err != nil {
		return tasktype.Progress{}, err
	}
	return pr.from(ctx, fl, fields, func() (bool, error) {
		running, err := pr.store.Leases.OfFlow(ctx, fl.Flow)
		return len(running) > 0, err
	})
}

// from returns the progress of a workflow by its fields. isRunning reports whether nodes run.
func (pr *progress) from(ctx context.Context, fl *flow, fields map[string]string, isRunning func() (bool, error)) (tasktype.Progress, error) {
	num := func(name string) int { n, _ := strconv.Atoi(fields[name]); return n }
	p := tasktype.Progress{Done: num(store.FieldTasksEnded), Total: num(store.FieldTasks), ChunksDone: num(store.FieldMembersEnded), Chunks: num(store.FieldMembers), Ended: over(fields),
		Paused: fields[store.FieldStopped] == store.StoppedByPause, Queued: fields[store.FieldStopped] == store.StoppedByOrder}
	if ms, err := strconv.ParseInt(fields[store.FieldDeadline], 10, 64); err == nil {
		p.Deadline = time.UnixMilli(ms).UTC()
	}
	if p.Total > 0 {
		p.Percent = min(100, 100*(float64(p.Done)+float64(max(0, num(store.FieldProgress)))/1000)/float64(p.Total))
	}
	rec := store.ParseRecord([]byte(fields[fl.Root]), fl.Created)
	p.Status = status(rec)
	if fields[store.FieldAborted] != "" {
		p.Status = tasktype.Failed
	}
	if p.Status == tasktype.Skipped {
		// Its root was skipped because another node failed or was revoked.
		p.Status = tasktype.Failed
		cause, err := pr.graphs.values(fl).record(ctx, rec.Cause)
		if err == nil && cause.State == store.StateRevoked {
			p.Status = tasktype.Revoked
		}
	}
	if p.Status == tasktype.Pending && !p.Ended {
		begun := p.Done > 0 || fields[store.FieldWasOpen] != ""
		if !begun {
			var err error
			if begun, err = isRunning(); err != nil {
				return tasktype.Progress{}, err
			}
		}
		if begun {
			p.Status = tasktype.Started
		}
	}
	return p, nil
}

// over reports whether all of a workflow is terminal, or it was given up, by its fields.
func over(fields map[string]string) bool {
	num := func(name string) int { n, _ := strconv.Atoi(fields[name]); return n }
	return fields[store.FieldAborted] != "" || num(store.FieldTasksEnded) >= num(store.FieldTasks) && num(store.FieldStepsEnded) >= num(store.FieldSteps)
}

// statuses are the statuses of nodes by the states of their records; others are pending.
var statuses = map[byte]tasktype.Status{
	store.StatePlanned: tasktype.Started, store.StateMapping: tasktype.Started, store.StateMapped: tasktype.Started, store.StateOpen: tasktype.Started,
	store.StateRetrying: tasktype.Retry, store.StateSucceeded: tasktype.Success, store.StateFailed: tasktype.Failed, store.StateRevoked: tasktype.Revoked,
	store.StateSkipped: tasktype.Skipped, store.StateSkipping: tasktype.Skipped,
}

// status returns the status of a node with a record.
func status(r store.Record) tasktype.Status { return cmp.Or(statuses[r.State], tasktype.Pending) }

// projectEvery is how often the progress keys of a workflow are written.
const projectEvery = 100 * time.Millisecond

// progressWriter writes the progress keys of the workflows that a worker has run nodes of.
type progressWriter struct {
	*local
	progress *progress
	due      chan struct{} // gets a value when there is something to write

	mu    sync.Mutex       // guards dirty
	dirty map[string]*flow // workflows with progress keys to write, by reference
}

// touch marks a workflow with progress keys to write.
func (w *progressWriter) touch(fl *flow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirty[fl.Ref] = fl
	signal(w.due)
}

// once writes the progress keys of the workflows that were marked since the last time.
func (w *progressWriter) once(ctx context.Context) {
	w.mu.Lock()
	dirty := w.dirty
	w.dirty = map[string]*flow{}
	w.mu.Unlock()
	for _, fl := range dirty {
		if err := w.progress.write(ctx, fl); err != nil && ctx.Err() == nil && !errors.Is(err, ErrUnknown) {
			w.log.WarnContext(ctx, "progress keys were not written", "workflow", fl.ID(), "error", err)
		}
	}
}
