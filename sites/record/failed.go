package record

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"muster/internal/atomicfile"
	"muster/sites/internal/lines"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks/workqueue"
)

// failedBatch is the number of failed pages per read.
const failedBatch = 500

// writeFailed atomically writes the file of failed pages with their reasons, followed by the resolved pages of earlier runs.
func (w *writer) writeFailed(ctx context.Context, sum *report.Summary) error {
	path := filepath.Join(w.files.dir, "failed.jsonl")
	var before []report.FailedPage
	for line, err := range lines.File(path) {
		if err != nil {
			return fmt.Errorf("read the failed pages of earlier runs: %w", err)
		}
		var f report.FailedPage
		if json.Unmarshal(line, &f) == nil && f.Item != "" { // damaged lines are skipped
			before = append(before, f)
		}
	}
	if sum.Errors == 0 && len(before) == 0 {
		return nil
	}
	if sum.Errors > 0 {
		sum.Failed = path
	}
	return atomicfile.Write(path, 0o600, func(to io.Writer) error {
		enc := json.NewEncoder(to)
		enc.SetEscapeHTML(false)
		if err := w.writePages(ctx, enc); err != nil {
			return err
		}
		return w.writeResolved(ctx, enc, before)
	})
}

// writePages writes the failed pages.
func (w *writer) writePages(ctx context.Context, to *json.Encoder) error {
	for offset := 0; ; {
		ids, err := w.queue.Failed(ctx, offset, failedBatch)
		if err != nil {
			return fmt.Errorf("list failed pages: %w", err)
		}
		if len(ids) == 0 {
			return nil
		}
		offset += len(ids)
		infos, err := w.queue.Get(ctx, ids...)
		if err != nil {
			return fmt.Errorf("read failed pages: %w", err)
		}
		for _, info := range infos {
			f, ok := store.FailureOf(info)
			if !ok {
				continue
			}
			if err := to.Encode(f); err != nil {
				return err
			}
		}
	}
}

// writeResolved writes the pages of an earlier list that have not failed again.
func (w *writer) writeResolved(ctx context.Context, to *json.Encoder, before []report.FailedPage) error {
	for batch := range slices.Chunk(before, failedBatch) {
		byID, ids := map[string]report.FailedPage{}, make([]string, len(batch))
		for i, f := range batch {
			byID[f.Item], ids[i] = f, f.Item
		}
		infos, err := w.queue.Get(ctx, ids...)
		if err != nil {
			return fmt.Errorf("read the pages that failed in earlier runs: %w", err)
		}
		for _, info := range infos {
			f, ok := byID[info.ID], true
			switch info.State {
			case workqueue.StateDone:
				f.Status, f.RetryAfter = report.PageResolved, time.Time{}
			case workqueue.StateSkipped:
				f, ok = store.FailureOf(info)
			default:
				continue // in the new list
			}
			if !ok {
				continue
			}
			if err := to.Encode(f); err != nil {
				return err
			}
		}
	}
	return nil
}
