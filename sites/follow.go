package sites

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"muster/sites/internal/lines"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// followEvery is how often Follow looks for records.
const followEvery = 150 * time.Millisecond

// Follow calls each with each record of a job, a JSON object without a line
// end, in the order of the job's files: first with those that are there. It
// blocks until the job is over and all of its records are passed on, ctx ends,
// or each fails, and returns the error of each. A record is passed on once, and
// is valid until each returns. The folder for the records must be on this
// machine.
func (r *Reader) Follow(ctx context.Context, id string, each func(record []byte) error) error {
	f := &follower{reader: r, id: id, each: each}
	defer f.close()
	for {
		over, err := f.poll(ctx)
		if err != nil || over {
			return err
		}
		if err := sleep(ctx, followEvery); err != nil {
			return err
		}
	}
}

// follower reads the files of a job while they grow.
type follower struct {
	reader *Reader
	id     string
	each   func([]byte) error
	files  []*followed // nil: they are not known yet
}

// poll passes new records on and reports whether there will be no more.
func (f *follower) poll(ctx context.Context) (over bool, err error) {
	j, err := f.reader.Job(ctx, f.id)
	if errors.Is(err, store.ErrNoJob) { // it has not begun, or never will
		return f.reader.ended(ctx, f.id)
	}
	if err != nil {
		return false, err
	}
	if f.files == nil {
		if f.files, err = f.reader.filesOf(ctx, f.id); err != nil {
			return false, err
		}
	}
	// The status is older than what is read below: the files of a job that is
	// over are complete.
	switch j.Status {
	case JobFailed, JobCanceled:
		over = j.Pages.Outputs == 0 || j.Trouble != ""
	default:
		over = j.Summary != nil
	}
	return over, f.read(ctx)
}

// ended reports whether the workflow of a job is over, or does not exist.
func (r *Reader) ended(ctx context.Context, id string) (bool, error) {
	status, err := tasks.Attach[report.Summary](r.client, id).Status(ctx)
	if errors.Is(err, tasks.ErrUnknown) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at job %s: %w", id, err)
	}
	return status != tasktype.Pending && status != tasktype.Started && status != tasktype.Retry, nil
}

// filesOf lists the files that the records of a job are written to.
func (r *Reader) filesOf(ctx context.Context, id string) ([]*followed, error) {
	req, err := store.ReadRequest(ctx, r.client.Redis(), id)
	if err != nil {
		return nil, err
	}
	if err := r.recorder.Check(req); err != nil {
		return nil, fmt.Errorf("job %s: %w", id, err)
	}
	if !r.recorder.Sees(req) {
		return nil, fmt.Errorf("the records of job %s are written to %s, which is not on this machine", id, req.OutDir)
	}
	def, err := req.Definition()
	if err != nil {
		return nil, err
	}
	files := []*followed{}
	for _, rec := range def.Records {
		files = append(files, &followed{path: filepath.Join(req.Dir(id), rec.Name+".jsonl")})
	}
	return files, nil
}

// followed is a file of records. A file that replaces it begins with the same
// lines.
type followed struct {
	path string
	f    *os.File
	at   int64 // the end of the last line that was passed on
}

func (f *follower) read(ctx context.Context) error {
	for _, file := range f.files {
		if err := file.read(ctx, f.each); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) close() {
	for _, file := range f.files {
		if file.f != nil {
			_ = file.f.Close() // only read
		}
	}
}

// read passes on the new lines. A last line without a line end is still being
// written.
func (f *followed) read(ctx context.Context, each func([]byte) error) error {
	if f.f != nil && f.replaced() {
		_ = f.f.Close() // only read
		f.f = nil
	}
	if f.f == nil {
		file, err := os.Open(f.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("follow records: %w", err)
		}
		f.f = file
	}
	if _, err := f.f.Seek(f.at, io.SeekStart); err != nil {
		return fmt.Errorf("follow records: %w", err)
	}
	n, err := passOn(ctx, f.f, each)
	f.at += n
	return err
}

// replaced reports whether the path is that of another file by now.
func (f *followed) replaced() bool {
	open, err := f.f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(f.path)
	return err == nil && !os.SameFile(open, now)
}

// passOn calls each with the complete lines of r and returns their size in bytes.
func passOn(ctx context.Context, r io.Reader, each func([]byte) error) (n int64, err error) {
	for record, err := range lines.Of(r) {
		if err != nil {
			return n, fmt.Errorf("follow records: %w", err)
		}
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		if len(record) > 0 {
			if err := each(record); err != nil {
				return n, err
			}
		}
		n += int64(len(record)) + 1
	}
	return n, nil
}
