package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
	before, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if sum.Errors == 0 {
			return nil
		}
	case err != nil:
		return fmt.Errorf("read the failed pages of earlier runs: %w", err)
	default:
		defer before.Close()
	}
	if sum.Errors > 0 {
		sum.Failed = path
	}
	return atomicfile.Write(path, 0o600, func(to io.Writer) error {
		enc := json.NewEncoder(to)
		enc.SetEscapeHTML(false)
		list := failedList{w.queue, enc}
		if err := list.writePages(ctx); err != nil {
			return err
		}
		if before == nil {
			return nil
		}
		return list.writeResolved(ctx, before)
	})
}

// failedList writes pages of a queue.
type failedList struct {
	queue *workqueue.Queue
	to    *json.Encoder
}

// writePages writes the failed pages.
func (l failedList) writePages(ctx context.Context) error {
	for offset := 0; ; {
		ids, err := l.queue.Failed(ctx, offset, failedBatch)
		if err != nil {
			return fmt.Errorf("list failed pages: %w", err)
		}
		if len(ids) == 0 {
			return nil
		}
		offset += len(ids)
		infos, err := l.queue.Get(ctx, ids...)
		if err != nil {
			return fmt.Errorf("read failed pages: %w", err)
		}
		for _, info := range infos {
			f, ok := store.FailureOf(info)
			if !ok {
				continue
			}
			if err := l.to.Encode(f); err != nil {
				return err
			}
		}
	}
}

// writeResolved writes the pages of an earlier list that have not failed again. It skips damaged lines.
func (l failedList) writeResolved(ctx context.Context, before io.Reader) error {
	var batch []report.FailedPage
	for line, err := range lines.Of(before) {
		if err != nil {
			return fmt.Errorf("read the failed pages of earlier runs: %w", err)
		}
		var f report.FailedPage
		if json.Unmarshal(line, &f) == nil && f.Item != "" {
			batch = append(batch, f)
		}
		if len(batch) == failedBatch {
			if err := l.resolve(ctx, batch); err != nil {
				return err
			}
			batch = nil
		}
	}
	return l.resolve(ctx, batch)
}

// resolve writes the pages that have not failed again.
func (l failedList) resolve(ctx context.Context, pages []report.FailedPage) error {
	ids := make([]string, len(pages))
	for i, f := range pages {
		ids[i] = f.Item
	}
	if len(ids) == 0 {
		return nil
	}
	infos, err := l.queue.Get(ctx, ids...)
	if err != nil {
		return fmt.Errorf("read the pages that failed in earlier runs: %w", err)
	}
	now := map[string]workqueue.Info{}
	for _, info := range infos {
		now[info.ID] = info
	}
	for _, f := range pages {
		info, listed := now[f.Item]
		switch info.State {
		case workqueue.StateDone:
			f.Status, f.RetryAfter = report.PageResolved, time.Time{}
		case workqueue.StateSkipped:
			f, listed = store.FailureOf(info)
		default:
			listed = false // in the new list, or of another job
		}
		if !listed {
			continue
		}
		if err := l.to.Encode(f); err != nil {
			return err
		}
	}
	return nil
}
