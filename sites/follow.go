package sites

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"muster/sites/internal/store"
	"muster/sites/sink"
)

// followEvery is how often Follow looks for records.
const followEvery = 150 * time.Millisecond

// Follow gives each record of a job to each, a JSON object without a line
// end, as the job's files get them: first those that are there. It blocks
// until the job is over and all of its records are given, ctx ends, or each
// fails, whose error it returns. A record is given once, and is each's until
// it returns. The folder for the records must be here.
func (s *Service) Follow(ctx context.Context, id string, each func(record []byte) error) error {
	f := &follower{each: each}
	defer f.close()
	for {
		over, err := s.follow(ctx, f, id)
		if err != nil || over {
			return err
		}
		if err := sleep(ctx, followEvery); err != nil {
			return err
		}
	}
}

// follow gives what has come and tells whether there will be more.
func (s *Service) follow(ctx context.Context, f *follower, id string) (over bool, err error) {
	j, err := s.Job(ctx, id)
	if errors.Is(err, store.ErrNoJob) { // it has not begun, or never will
		return s.dead(ctx, id)
	}
	if err != nil {
		return false, err
	}
	if f.files == nil {
		if err := s.followFiles(ctx, f, id); err != nil {
			return false, err
		}
	}
	// Over is what was so before the files are read: they are whole then.
	switch j.Status {
	case JobFailed, JobCanceled:
		over = j.Pages.Outputs == 0 || j.Trouble != ""
	default:
		over = j.Summary != nil
	}
	return over, f.read(ctx, over)
}

// followFiles finds out which files the records of a job are in.
func (s *Service) followFiles(ctx context.Context, f *follower, id string) error {
	req, err := store.ReadRequest(ctx, s.cfg.Client.Redis(), id)
	if err != nil {
		return err
	}
	if err := s.recorder.Check(req); err != nil {
		return fmt.Errorf("job %s: %w", id, err)
	}
	if !s.recorder.Sees(req) {
		return fmt.Errorf("the records of job %s are written to %s, which is not on this machine", id, req.OutDir)
	}
	def, err := req.Definition()
	if err != nil {
		return err
	}
	if req.Resume != "" {
		id = req.Resume
	}
	for _, r := range def.Records {
		f.files = append(f.files, &followed{path: filepath.Join(req.OutDir, def.Site, id, r.Name+".jsonl")})
	}
	return nil
}

// follower reads files while they grow.
type follower struct {
	each  func([]byte) error
	files []*followed
}

// followed is a file of records. It stays open: once it was whole it may be
// compressed. Another that has its name by now begins with the same lines.
type followed struct {
	path string
	f    *os.File
	at   int64 // the end of the last line that was given
}

func (f *follower) read(ctx context.Context, over bool) error {
	for _, file := range f.files {
		if err := file.read(ctx, over, f.each); err != nil {
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

// read gives the lines that are new. A last line without its end is on its way.
// A file that is over may be compressed.
func (f *followed) read(ctx context.Context, over bool, each func([]byte) error) error {
	if f.f != nil && f.replaced() {
		_ = f.f.Close() // only read
		f.f = nil
	}
	if f.f == nil {
		file, err := os.Open(f.path)
		if errors.Is(err, fs.ErrNotExist) {
			if over {
				return f.unpack(ctx, each)
			}
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
	n, err := give(ctx, f.f, each)
	f.at += n
	return err
}

// replaced reports whether the name of the file is another's.
func (f *followed) replaced() bool {
	open, err := f.f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(f.path)
	return err == nil && !os.SameFile(open, now)
}

// unpack gives the lines of a file that was compressed before it was seen.
func (f *followed) unpack(ctx context.Context, each func([]byte) error) error {
	r, err := sink.Unpack(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the job has no such record
	}
	if err != nil {
		return fmt.Errorf("follow records: %w", err)
	}
	defer r.Close()
	_, err = give(ctx, r, each)
	return err
}

// give gives the whole lines of r and returns how many bytes they have.
func give(ctx context.Context, r io.Reader, each func([]byte) error) (n int64, err error) {
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, fmt.Errorf("follow records: %w", err)
		}
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		if record := bytes.TrimSuffix(line, []byte("\n")); len(record) > 0 {
			if err := each(record); err != nil {
				return n, err
			}
		}
		n += int64(len(line))
	}
}
