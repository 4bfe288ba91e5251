package backup

import (
	"bufio"
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
	"muster/orchestrator/agent"
	"muster/orchestrator/job"
	"muster/orchestrator/pipeline"
	"muster/orchestrator/store"
)

// ImportOptions say what Import does.
type ImportOptions struct {
	// Replace replaces jobs that exist and have ended, and files of pipelines. The export must be an [io.ReadSeeker]: it
	// is read whole first, so that no job is removed for one that is not whole.
	Replace bool
	// Documents is a folder with documents, named by their SHA-256. Defaults to none.
	Documents string
	// Put stores a document. Required with Documents.
	Put func(ctx context.Context, name string, r io.Reader) (job.Document, error)
}

// Imported is what Import has done.
type Imported struct {
	Jobs      int      `json:"jobs"`
	Items     int      `json:"items"` // of these jobs, with the stages that take the job
	Agents    int      `json:"agents"`
	Pipelines int      `json:"pipelines"`
	Sites     int      `json:"paused_sites"`
	Requests  int      `json:"requests"` // jobs that were created
	Documents int      `json:"documents"`
	Kept      int      `json:"kept"`              // jobs, agents and pipelines that exist, and were left as they are
	Missing   int      `json:"documents_missing"` // documents of these jobs that are not stored
	Refused   []string `json:"refused"`           // what was not restored, and why; at most 100
}

// LineError is an error in a line of an import.
type LineError struct {
	Line int
	Err  error
}

// Error begins with the number of the line.
func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns what is wrong with the line.
func (e *LineError) Unwrap() error { return e.Err }

// importer is a run of Import.
type importer struct {
	Store
	opts ImportOptions
	lock *store.Lock
	away time.Duration // since the export
	out  Imported

	id    string         // the job whose lines follow, "" if there is none
	job   *job.Restoring // nil if it stays out
	saved job.Saved
	items int             // of the job, so far
	part  []job.SavedItem // not stored yet
	size  int             // of part, in bytes
}

// Bounds of the items that are stored at a time.
const (
	partItems = 500
	partBytes = 4 << 20
)

// Import reads what Export has written, or what people have written in the same format, and adds what is not in the
// store yet. It may be stopped at any point and repeated. It holds the lock of the store. An error in a line is a
// *LineError; what is before the line stays.
func Import(ctx context.Context, s Store, r io.Reader, opts ImportOptions) (Imported, error) {
	m := &importer{Store: s, opts: opts, out: Imported{Refused: []string{}}}
	if opts.Replace {
		file, ok := r.(io.ReadSeeker)
		if !ok {
			return m.out, errors.New("import: replacing reads the export twice: give it as a file")
		}
		if err := checkWhole(file); err != nil {
			return m.out, fmt.Errorf("import: %w", err)
		}
	}
	err := s.Schema.Hold(ctx, "importing a backup", func(ctx context.Context, lock *store.Lock) error {
		m.lock = lock
		if err := lock.Claim(ctx, job.Slot); err != nil {
			return err
		}
		return m.run(ctx, r)
	})
	if err != nil {
		return m.out, fmt.Errorf("import: %w", err)
	}
	return m.out, nil
}

func (m *importer) run(ctx context.Context, r io.Reader) error {
	in := &lines{r: bufio.NewReaderSize(r, 256<<10)}
	fail := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &LineError{in.n, err}
	}
	line, err := in.next()
	if errors.Is(err, io.EOF) {
		return errors.New("the file is empty")
	}
	var head header
	if err == nil {
		if json.Unmarshal(line, &head) != nil { // what is no export at all is told so
			head = header{}
		}
		err = head.check()
	}
	if err != nil {
		return fail(err)
	}
	if !head.Created.IsZero() {
		m.away = time.Since(head.Created)
	}
	for whole := head.Created.IsZero(); ; {
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			if !whole || m.id != "" {
				return fail(errors.New("the export ends here, and is not whole: take another copy of it, or export again"))
			}
			return nil
		}
		if err == nil {
			whole, err = m.line(ctx, line, whole)
		}
		if err != nil {
			return fail(err)
		}
	}
}

// line does what a line says. It reports whether the export is whole with it.
func (m *importer) line(ctx context.Context, line []byte, whole bool) (bool, error) {
	var is struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(line, &is); err != nil {
		return whole, fmt.Errorf("it is no JSON object: %w", err)
	}
	if m.id != "" && is.Kind != kindItem && is.Kind != kindEnd {
		return whole, fmt.Errorf("a line of kind %.40q within job %s; its items and its end come first", is.Kind, m.id)
	}
	switch is.Kind {
	case kindJob:
		return whole, m.beginJob(ctx, line)
	case kindItem:
		return whole, m.item(ctx, line)
	case kindEnd:
		return whole, m.endJob(ctx, line)
	case kindAgent:
		return whole, m.agent(ctx, line)
	case kindPipeline:
		return whole, m.pipeline(line)
	case kindPausedSite:
		return whole, m.site(ctx, line)
	case kindRequest:
		return whole, m.request(ctx, line)
	case kindDone:
		return true, nil
	}
	return whole, fmt.Errorf("no kind of lines is called %.40q", is.Kind)
}

func (m *importer) refuse(what string, err error) {
	m.out.Refused = addReason(m.out.Refused, fmt.Sprintf("%s: %v", what, err))
}

func (m *importer) beginJob(ctx context.Context, line []byte) error {
	var l jobLine
	if err := decode(line, &l); err != nil {
		return err
	}
	restoring, err := m.Jobs.Restore(ctx, l.Saved, job.RestoreOptions{Lock: m.lock, Replace: m.opts.Replace, Away: m.away})
	switch {
	case errors.Is(err, job.ErrKept):
		m.out.Kept++
	case errors.Is(err, job.ErrRunning), errors.Is(err, job.ErrRan):
		m.refuse("job "+l.ID, err)
	case err != nil:
		return err
	}
	m.id, m.job, m.saved, m.items = l.ID, restoring, l.Saved, 0
	return nil
}

func (m *importer) item(ctx context.Context, line []byte) error {
	if m.job == nil && m.id != "" { // it stays out
		return nil
	}
	var l itemLine
	if err := decode(line, &l); err != nil {
		return err
	}
	if m.id == "" || l.Job != m.id {
		return fmt.Errorf("an item of job %.100q, whose line is not before it", l.Job)
	}
	m.items++
	m.part, m.size = append(m.part, l.SavedItem), m.size+len(line)
	if len(m.part) < partItems && m.size < partBytes {
		return nil
	}
	return m.flush(ctx)
}

func (m *importer) flush(ctx context.Context) error {
	part := m.part
	m.part, m.size = m.part[:0], 0
	if len(part) == 0 {
		return nil
	}
	return m.job.Add(ctx, part...)
}

func (m *importer) endJob(ctx context.Context, line []byte) error {
	var l endLine
	if err := decode(line, &l); err != nil {
		return err
	}
	restoring := m.job
	if m.id == "" || l.Job != m.id {
		return fmt.Errorf("the end of job %.100q, whose line is not before it", l.Job)
	}
	if restoring == nil {
		m.id = ""
		return nil
	}
	if l.Error != "" {
		m.refuse("job "+m.id, errors.New("the export could not read it: "+l.Error))
		m.id, m.job, m.part = "", nil, m.part[:0]
		return nil
	}
	if l.Items != m.items {
		return fmt.Errorf("job %s has %d items here, and should have %d", m.id, m.items, l.Items)
	}
	if err := m.flush(ctx); err != nil {
		return err
	}
	if err := m.document(ctx, m.saved.Document()); err != nil {
		return err
	}
	if err := restoring.Commit(ctx); err != nil {
		return err
	}
	m.out.Jobs++
	m.out.Items += m.items
	m.id, m.job = "", nil
	return nil
}

// document stores the document of a job before the job, unless it is stored.
func (m *importer) document(ctx context.Context, d *job.Document) error {
	if d == nil {
		return nil
	}
	f, err := m.Files.Open(d.Hash)
	if err == nil {
		return f.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if m.opts.Documents == "" {
		m.out.Missing++
		return nil
	}
	from, err := os.Open(filepath.Join(m.opts.Documents, d.Hash))
	if errors.Is(err, fs.ErrNotExist) {
		m.out.Missing++
		return nil
	}
	if err != nil {
		return err
	}
	defer from.Close()
	got, err := m.opts.Put(ctx, d.Name, from)
	if err != nil {
		return err
	}
	if got.Hash != d.Hash {
		return fmt.Errorf("%s has other content than its name says: it was changed or damaged", from.Name())
	}
	m.out.Documents++
	return nil
}

func (m *importer) agent(ctx context.Context, line []byte) error {
	var l agentLine
	if err := decode(line, &l); err != nil {
		return err
	}
	added, err := m.Agents.Restore(ctx, l.Saved)
	switch {
	case errors.Is(err, agent.ErrNotAllowed), errors.Is(err, agent.ErrTooMany):
		m.refuse("agent "+l.Name, err)
		return nil
	case err == nil && added:
		m.out.Agents++
	case err == nil:
		m.out.Kept++
	}
	return err
}

func (m *importer) pipeline(line []byte) error {
	var l pipelineLine
	if err := decode(line, &l); err != nil {
		return err
	}
	file := l.Name + ".yaml"
	if l.Name == "" || filepath.Base(file) != file {
		return fmt.Errorf("%.40q is no name of a pipeline", l.Name)
	}
	if _, err := pipeline.Parse(file, []byte(l.YAML)); err != nil {
		return err
	}
	path := filepath.Join(m.PipelineDir, file)
	_, err := os.Stat(path)
	_, other := os.Stat(filepath.Join(m.PipelineDir, l.Name+".yml")) // a second file would break the pipeline
	if err == nil && !m.opts.Replace || other == nil {
		m.out.Kept++
		return nil
	}
	if err := os.MkdirAll(m.PipelineDir, 0o700); err != nil {
		return err
	}
	m.out.Pipelines++
	return atomicfile.WriteBytes(path, 0o600, []byte(l.YAML))
}

func (m *importer) site(ctx context.Context, line []byte) error {
	var l siteLine
	if err := decode(line, &l); err != nil {
		return err
	}
	if l.Site == "" || len(l.Site) > 100 {
		return errors.New("the line names no site")
	}
	m.out.Sites++
	return m.Sites.PauseSite(ctx, l.Site)
}

func (m *importer) request(ctx context.Context, line []byte) error {
	var l requestLine
	if err := decode(line, &l); err != nil {
		return err
	}
	if l.ID == "" {
		return errors.New(`a request needs an id, by which it is known when it comes again: "id":"welcome"`)
	}
	added, err := m.Jobs.Seed(ctx, l.ID, job.Request{
		Pipeline: l.Pipeline, Prompt: l.Prompt, Context: l.Context, Priority: l.Priority, Labels: l.Labels,
		After: l.After, OnFailure: l.OnFailure, At: l.At, Cron: l.Cron,
	})
	switch {
	case err == nil && added:
		m.out.Requests++
	case err == nil:
		m.out.Kept++
	}
	return err
}
