package archive

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"muster/internal/clip"
	"muster/sites/sink"
	"muster/tasks"
	"muster/tasks/api"
	"muster/tasks/tasktype"
)

// database is the table muster_workflows of an SQL database, by ID and time of sending. The labels are lines KEY=VALUE, and data is the ArchivedWorkflow.
type database struct{ *sink.DB }

var tables = sink.Tables{
	SQLite: []string{`CREATE TABLE IF NOT EXISTS muster_workflows (id TEXT NOT NULL, created_at TEXT NOT NULL, ended_at TEXT NOT NULL, state TEXT NOT NULL, name TEXT NOT NULL,
 tasks TEXT NOT NULL, origin TEXT NOT NULL, labels TEXT NOT NULL, data TEXT NOT NULL, PRIMARY KEY (id, created_at)) WITHOUT ROWID`, index},
	Postgres: []string{`CREATE TABLE IF NOT EXISTS muster_workflows (id text NOT NULL, created_at timestamptz NOT NULL, ended_at timestamptz NOT NULL, state text NOT NULL, name text NOT NULL,
 tasks text NOT NULL, origin text NOT NULL, labels text NOT NULL, data jsonb NOT NULL, PRIMARY KEY (id, created_at))`, index},
}

const (
	index  = `CREATE INDEX IF NOT EXISTS muster_workflows_ended ON muster_workflows (ended_at, id)`
	insert = `INSERT INTO muster_workflows (id, created_at, ended_at, state, name, tasks, origin, labels, data) VALUES `
	// A workflow that was retried ends again.
	onKnown = ` ON CONFLICT (id, created_at) DO UPDATE SET ended_at = excluded.ended_at, state = excluded.state, data = excluded.data
 WHERE excluded.ended_at >= muster_workflows.ended_at`
	rowsAtOnce = 100
)

func (d *database) put(ctx context.Context, list []ArchivedWorkflow) error {
	tx, err := d.Begin(ctx)
	if err != nil {
		return fmt.Errorf("write to %s: %w", d.Name, err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	for part := range slices.Chunk(latest(list), rowsAtOnce) {
		var rows []any
		for _, w := range part {
			data, err := json.Marshal(w)
			if err != nil {
				return fmt.Errorf("encode workflow %s: %w", w.ID, err)
			}
			rows = append(rows, w.ID, d.Time(w.CreatedAt), d.Time(w.EndedAt), w.State, d.Text(w.Name), d.Text(w.Tasks), w.Origin, d.Text(lines(w.Labels)), string(d.JSON(data)))
		}
		if err := sink.Insert(ctx, tx, insert, onKnown, 9, rows); err != nil {
			return fmt.Errorf("write to %s: %w", d.Name, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("write to %s: %w", d.Name, err)
	}
	return nil
}

// key identifies a workflow: an ID can be used again.
type key struct {
	id      string
	created int64
}

func keyOf(w *api.Workflow) key { return key{w.ID, w.CreatedAt.UnixMilli()} }

// latest returns the last document of each workflow.
func latest(list []ArchivedWorkflow) (out []ArchivedWorkflow) {
	at := map[key]int{}
	for _, d := range list {
		if i, ok := at[keyOf(&d.Workflow)]; ok {
			out[i] = d
			continue
		}
		at[keyOf(&d.Workflow)] = len(out)
		out = append(out, d)
	}
	return out
}

// lines returns labels as lines KEY=VALUE, each between line breaks. Labels have no control characters.
func lines(labels map[string]string) string {
	text := "\n"
	for k, v := range labels {
		text += k + "=" + v + "\n"
	}
	return text
}

// stamp reads a time of either database.
type stamp struct{ time.Time }

// Scan implements sql.Scanner.
func (s *stamp) Scan(v any) (err error) {
	switch v := v.(type) {
	case time.Time:
		s.Time = v.UTC()
	case string:
		s.Time, err = time.Parse(time.RFC3339Nano, v)
	default:
		err = fmt.Errorf("%T is not a time", v)
	}
	return err
}

// place is a position in a list: after the workflows that ended later, and those that ended then with a larger ID.
type place struct {
	ended time.Time
	id    string
}

func (p place) String() string { return strconv.FormatInt(p.ended.UnixMilli(), 10) + "." + p.id }

func parsePlace(cursor string) (place, error) {
	ms, id, ok := strings.Cut(cursor, ".")
	at, err := strconv.ParseInt(ms, 10, 64)
	if !ok || err != nil {
		return place{}, fmt.Errorf("%w: %.100q", tasks.ErrCursor, cursor)
	}
	return place{time.UnixMilli(at), id}, nil
}

func (d *database) list(ctx context.Context, f tasktype.WorkflowFilter) (page []api.Workflow, next string, err error) {
	var args []any
	where := []string{"1 = 1"}
	and := func(condition string, values ...any) {
		for _, v := range values {
			args = append(args, v)
			condition = strings.Replace(condition, "?", "$"+strconv.Itoa(len(args)), 1)
		}
		where = append(where, strings.ReplaceAll(condition, "find", d.Find))
	}
	if f.State != "" {
		and("state = ?", string(f.State))
	}
	if f.Origin != "" {
		and("origin = ?", f.Origin)
	}
	if f.Name != "" {
		task := f.Name
		if len(task) > 60 { // as the index has it
			task = clip.Bytes(task, 60) + "…"
		}
		and("(name = ? OR tasks = ? OR find(tasks, ?) = 1 OR find(tasks || '|', ?) > 0)", f.Name, task, task+" → ", " → "+task+"|")
	}
	if f.Contains != "" {
		text := strings.ToLower(f.Contains)
		and("(find(lower(name), ?) > 0 OR find(lower(tasks), ?) > 0)", text, text)
	}
	for k, v := range f.Labels {
		and("find(labels, ?) > 0", "\n"+k+"="+v+"\n")
	}
	if !f.After.IsZero() {
		and("ended_at >= ?", d.Time(f.After))
	}
	if !f.Before.IsZero() {
		and("ended_at < ?", d.Time(f.Before))
	}
	if f.Cursor != "" {
		p, err := parsePlace(f.Cursor)
		if err != nil {
			return nil, "", err
		}
		and("(ended_at < ? OR ended_at = ? AND id < ?)", d.Time(p.ended), d.Time(p.ended), p.id)
	}
	rows, err := d.QueryContext(ctx, fmt.Sprintf("SELECT id, created_at, ended_at, state, name, origin, labels FROM muster_workflows WHERE %s ORDER BY ended_at DESC, id DESC LIMIT %d",
		strings.Join(where, " AND "), f.Limit+1), args...)
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	for rows.Next() {
		var w api.Workflow
		var created, ended stamp
		var labels string
		if err := rows.Scan(&w.ID, &created, &ended, &w.State, &w.Name, &w.Origin, &labels); err != nil {
			return nil, "", err
		}
		w.CreatedAt, w.EndedAt = created.Time, ended.Time
		w.Labels, _ = tasktype.ParseLabels(strings.FieldsFunc(labels, func(r rune) bool { return r == '\n' }))
		page = append(page, w)
	}
	page, next = cut(page, f.Limit)
	return page, next, rows.Err()
}

// cut returns a page of the workflows, and the cursor of the next.
func cut(list []api.Workflow, limit int) (page []api.Workflow, next string) {
	if len(list) > limit {
		list = list[:limit]
		next = place{list[limit-1].EndedAt, list[limit-1].ID}.String()
	}
	return list, next
}

func (d *database) get(ctx context.Context, id string) (doc ArchivedWorkflow, err error) {
	var data []byte
	err = d.QueryRowContext(ctx, "SELECT data FROM muster_workflows WHERE id = $1 ORDER BY ended_at DESC LIMIT 1", id).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return doc, fmt.Errorf("%w: %.100s", ErrNoWorkflow, id)
	}
	if err == nil {
		err = json.Unmarshal(data, &doc)
	}
	return doc, err
}

// file is a JSONL file with an ArchivedWorkflow in each line. A workflow that was retried has a line for each end, the last of which counts.
type file struct {
	out  *sink.JSONL
	lock *flock.Flock
}

// line is a document with the key by which the file has it once.
type line struct {
	Key string `json:"_key"`
	ArchivedWorkflow
}

func openFile(path string) (store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of the archive: %w", err)
	}
	lock := flock.New(path+".lock", flock.SetPermissions(0o600)) // a process that was suspended may still write
	if ok, err := lock.TryLock(); err != nil || !ok {
		return nil, errors.Join(err, fmt.Errorf("%s is locked by another process", path))
	}
	out, err := sink.OpenJSONL(path)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &file{out, lock}, nil
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

// Close closes the file.
func (f *file) Close() error {
	return errors.Join(f.out.Close(), f.lock.Close())
}

// ArchivedWorkflow is an archived workflow with its nodes, which have the graph, inputs, results, failures, steps and times.
type ArchivedWorkflow struct {
	api.Workflow
	Tasks   string           `json:"tasks" doc:"its task or, if there are several, the first and the last"`
	Nodes   []api.NodeValues `json:"nodes"`
	Omitted int              `json:"omitted,omitempty" doc:"number of values and nodes that were too large or too many"`
	Expired bool             `json:"expired,omitempty" doc:"the workflow had expired before it was archived: there are no nodes"`
}

// Limits of a document.
const (
	mostNodes  = 10_000
	mostValues = 1000     // nodes with values
	maxValue   = 16 << 10 // bytes
	maxValues  = 1 << 20  // bytes of all values
)

// read returns the document of a workflow that has ended. Its error means that Redis is unavailable.
func read(ctx context.Context, client *tasks.Client, e *tasktype.WorkflowEvent) (ArchivedWorkflow, error) {
	d := ArchivedWorkflow{Workflow: api.WorkflowOf(e.Workflow), Tasks: e.Tasks, Nodes: []api.NodeValues{}}
	w := client.Workflow(e.ID)
	info, err := w.Info(ctx)
	if err == nil && !info.Created.Equal(e.Created) { // a later workflow has the ID
		err = tasks.ErrNotFound
	}
	var nodes []tasktype.Node
	if err == nil {
		nodes, err = w.Nodes(ctx)
	}
	if d.Expired = errors.Is(err, tasks.ErrNotFound); d.Expired {
		return d, nil
	}
	if tasks.Unavailable(err) || ctx.Err() != nil {
		return d, err
	}
	left := maxValues
	keep := func(raw *json.RawMessage) {
		if len(*raw) > min(maxValue, left) {
			*raw = nil
			d.Omitted++
		}
		left -= len(*raw)
	}
	for i := range nodes[:min(len(nodes), mostNodes)] {
		v := api.NodeValues{Node: nodes[i]}
		if i < mostValues {
			values, err := api.ReadNode(ctx, w, v.ID)
			if tasks.Unavailable(err) || ctx.Err() != nil {
				return d, err
			}
			v.Input, v.Result, v.Steps = values.Input, values.Result, values.Steps
			keep(&v.Input)
			keep(&v.Result)
			for i := range v.Steps {
				keep(&v.Steps[i].Value)
			}
		}
		d.Nodes = append(d.Nodes, v)
	}
	d.Omitted += max(len(nodes)-mostNodes, 0)
	return d, nil
}
