package archive

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gofrs/flock"

	"muster/sites/sink"
	"muster/tasks/api"
	"muster/tasks/tasktype"
)

// file is a JSONL file with an ArchivedWorkflow in each line. A workflow that was retried has a line for each end, the last of which counts.
type file struct {
	path string
	out  *sink.JSONL // nil for a reader
	lock *flock.Flock
}

// line is a document with the key by which the file has it once.
type line struct {
	Key string `json:"_key"`
	ArchivedWorkflow
}

func openFile(path string, write bool) (store, error) {
	f := &file{path: path}
	if !write {
		return f, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of the archive: %w", err)
	}
	f.lock = flock.New(path+".lock", flock.SetPermissions(0o600)) // a process that was suspended may still write
	if ok, err := f.lock.TryLock(); err != nil || !ok {
		return nil, errors.Join(err, fmt.Errorf("%s is locked by another process", path))
	}
	var err error
	if f.out, err = sink.OpenJSONL(path); err != nil {
		return nil, errors.Join(err, f.lock.Close())
	}
	return f, nil
}

func (f *file) put(_ context.Context, list []ArchivedWorkflow) error {
	for i := range list {
		d := &list[i]
		l := line{fmt.Sprintf("%s %d %d", d.ID, d.CreatedAt.UnixMilli(), d.EndedAt.UnixMilli()), *d}
		raw, err := json.Marshal(l)
		if err == nil {
			_, err = f.out.Put(l.Key, raw)
		}
		if err != nil {
			return err
		}
	}
	return f.out.Sync()
}

// Close implements store.
func (f *file) Close() error {
	if f.out == nil {
		return nil
	}
	return errors.Join(f.out.Close(), f.lock.Close())
}

// each calls do with all complete lines.
func (f *file) each(ctx context.Context, do func(raw json.RawMessage) error) error {
	in, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	for dec := json.NewDecoder(in); ctx.Err() == nil; {
		var raw json.RawMessage
		if err := dec.Decode(&raw); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read %s: %w", f.path, err)
		}
		if err := do(raw); err != nil {
			return fmt.Errorf("read %s: %w", f.path, err)
		}
	}
	return context.Cause(ctx)
}

func (f *file) list(ctx context.Context, q tasktype.WorkflowFilter) (page []api.Workflow, next string, err error) {
	var from *place
	if q.Cursor != "" {
		p, err := parsePlace(q.Cursor)
		if err != nil {
			return nil, "", err
		}
		from = &p
	}
	found := map[key]api.Workflow{}
	err = f.each(ctx, func(raw json.RawMessage) error {
		var w struct {
			api.Workflow
			Tasks string `json:"tasks"`
		}
		if err := json.Unmarshal(raw, &w); err != nil {
			return err
		}
		delete(found, keyOf(&w.Workflow))
		if matches(&q, &w.Workflow, w.Tasks) && (from == nil || compare(&w.Workflow, &api.Workflow{ID: from.id, EndedAt: from.ended}) > 0) {
			found[keyOf(&w.Workflow)] = w.Workflow
		}
		return nil
	})
	for _, w := range found {
		page = append(page, w)
	}
	slices.SortFunc(page, func(a, b api.Workflow) int { return compare(&a, &b) })
	page, next = cut(page, q.Limit)
	return page, next, err
}

// compare orders workflows: the latest first.
func compare(a, b *api.Workflow) int {
	return cmp.Or(cmp.Compare(b.EndedAt.UnixMilli(), a.EndedAt.UnixMilli()), strings.Compare(b.ID, a.ID))
}

// matches reports whether a filter selects a workflow.
func matches(q *tasktype.WorkflowFilter, w *api.Workflow, tasks string) bool {
	for k, v := range q.Labels {
		if got, ok := w.Labels[k]; !ok || got != v {
			return false
		}
	}
	contains := func(text string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(q.Contains)) }
	return (q.State == "" || string(q.State) == w.State) && (q.Origin == "" || q.Origin == w.Origin) &&
		(q.After.IsZero() || !w.EndedAt.Before(q.After)) && (q.Before.IsZero() || w.EndedAt.Before(q.Before)) &&
		(contains(w.Name) || contains(tasks)) &&
		(q.Name == "" || q.Name == w.Name || slices.Contains(append(strings.Split(tasks, " → "), tasks), q.Name))
}

func (f *file) get(ctx context.Context, id string) (doc ArchivedWorkflow, err error) {
	found := false
	err = f.each(ctx, func(raw json.RawMessage) error {
		var w struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(raw, &w); err != nil || w.ID != id {
			return err
		}
		doc, found = ArchivedWorkflow{}, true
		return json.Unmarshal(raw, &doc)
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: %.100s", ErrNoWorkflow, id)
	}
	return doc, err
}
