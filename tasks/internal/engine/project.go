package engine

import (
	"context"
	"strconv"
	"time"

	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// keepAlive is how often the expiry of progress keys is pushed while nothing else writes them.
const keepAlive = 10 * time.Minute

// publicNames are the progress keys whose expiry is kept alive.
var publicNames = []string{"total_chunks", "completed_chunks", "status", "started_at", "completed_at",
	"result_count", "total_urls", "error_count"}

// keyKind says how a progress key changes.
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

func (e *Engine) publish(ctx context.Context, fl *flow, pairs ...string) error {
	for i := 0; i+1 < len(pairs); i += 2 {
		name, value := pairs[i], pairs[i+1]
		if err := e.store.Progress.Set(ctx, fl.g.Progress, fl.ID, name, keyKind(name, value), value); err != nil {
			return err
		}
	}
	return nil
}

// dispatched writes the progress keys of a workflow that was just sent.
func (e *Engine) dispatched(ctx context.Context, fl *flow) error {
	if err := e.store.Agenda.Add(ctx, fl.Flow, progressNote, e.clock.Now().Add(keepAlive)); err != nil {
		return err
	}
	return e.publish(ctx, fl, "total_chunks", "0", "completed_chunks", "0", "result_count", "0", "status", "DISPATCHED",
		"started_at", strconv.FormatInt(fl.Created/1000, 10))
}

// project writes the progress keys from the counts of a workflow: absolute numbers, so that a repeat
// is harmless.
func (e *Engine) project(ctx context.Context, fl *flow) error {
	p, err := e.Progress(ctx, fl.ID)
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
		pairs = append(pairs, "completed_at", strconv.FormatInt(e.clock.Now().Unix(), 10), "status", word)
	case p.Chunks > 0:
		pairs = append(pairs, "status", "PROCESSING")
	}
	if err := e.publish(ctx, fl, pairs...); err != nil {
		return err
	}
	if err := e.store.Progress.Refresh(ctx, fl.g.Progress, fl.ID, publicNames); err != nil {
		return err
	}
	if p.Ended {
		return e.store.Agenda.Remove(ctx, fl.Flow, progressNote)
	}
	return nil
}
