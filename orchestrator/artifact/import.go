package artifact

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"muster/tasks/workqueue"
)

// ImportConfig sets up an Import.
type ImportConfig struct {
	Limit    int                           // artifacts to take. Defaults to all.
	MaxLine  int                           // bytes of a line. Defaults to 8 MiB.
	Progress func(Report)                  // called after each batch. Defaults to nothing.
	BadLine  func(number int64, err error) // called for each line that is not an artifact. Defaults to nothing.
	Doubtful func(number int64, err error) // called for each item of which Doubt returns an error. Defaults to nothing.
}

// Report counts the lines of an import.
type Report struct {
	New       int   `json:"new"`
	Duplicate int   `json:"duplicate"`
	Errors    int   `json:"errors"`
	Lines     int64 `json:"lines"`
}

// importBatch is how many artifacts are held in memory and enqueued at a time.
const importBatch = 1000

// importBytes bounds a batch of long lines.
const importBytes = 8 << 20

// Import enqueues the artifacts of r, one JSON object a line, plain or gzip. A
// bad line is reported and left out; blank lines are ignored. An import that was
// interrupted can run again: items that exist already are duplicates.
func Import(ctx context.Context, q *workqueue.Queue, r io.Reader, cfg ImportConfig) (Report, error) {
	if cfg.MaxLine <= 0 {
		cfg.MaxLine = 8 << 20
	}
	var rep Report
	in, err := plain(r)
	if err != nil {
		return rep, err
	}
	batch, size, read := make([]workqueue.Item, 0, importBatch), 0, 0
	flush := func() error {
		added, err := q.Enqueue(ctx, batch...)
		rep.New += added
		if err != nil {
			return fmt.Errorf("import before line %d: %w; run it again, what is enqueued stays enqueued", rep.Lines+1, err)
		}
		rep.Duplicate += len(batch) - added
		batch, size = batch[:0], 0
		if cfg.Progress != nil {
			cfg.Progress(rep)
		}
		return nil
	}
	bad := func(err error) {
		rep.Errors++
		if cfg.BadLine != nil {
			cfg.BadLine(rep.Lines, err)
		}
	}
	for cfg.Limit <= 0 || read < cfg.Limit {
		if err := ctx.Err(); err != nil {
			return rep, context.Cause(ctx)
		}
		line, err := readLine(in, cfg.MaxLine)
		if errors.Is(err, io.EOF) {
			break
		}
		rep.Lines++
		if errors.Is(err, errLong) {
			bad(fmt.Errorf("longer than %d bytes", cfg.MaxLine))
			continue
		}
		if err != nil {
			rep.Lines--
			return rep, errors.Join(fmt.Errorf("read line %d: %w", rep.Lines+1, err), flush())
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		it, err := parseLine(line)
		if err == nil {
			err = q.Check(it)
		}
		if err != nil {
			bad(err)
			continue
		}
		if cfg.Doubtful != nil {
			if err := Doubt(it); err != nil {
				cfg.Doubtful(rep.Lines, err)
			}
		}
		read++
		batch = append(batch, it)
		if size += len(line); len(batch) == importBatch || size > importBytes {
			if err := flush(); err != nil {
				return rep, err
			}
		}
	}
	return rep, flush()
}

func parseLine(line []byte) (workqueue.Item, error) {
	if !utf8.Valid(line) {
		return workqueue.Item{}, errors.New("not valid UTF-8")
	}
	return Parse(line)
}

// ErrGzip means that a file begins like gzip and is not.
var ErrGzip = errors.New("read gzip")

// plain unpacks gzip, and skips a byte order mark.
func plain(r io.Reader) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrGzip, err)
		}
		in = bufio.NewReaderSize(z, 64<<10)
	}
	if mark, _ := in.Peek(3); bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		_, _ = in.Discard(3)
	}
	return in, nil
}

var errLong = errors.New("the line is too long")

// readLine reads a line of at most n bytes. A longer one is read to its end and
// dropped.
func readLine(in *bufio.Reader, n int) ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := in.ReadSlice('\n')
		if !long {
			line = append(line, part...)
		}
		if len(line) > n {
			long, line = true, nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && (len(line) > 0 || long), err == nil:
			if long {
				return nil, errLong
			}
			return line, nil
		default:
			return nil, err
		}
	}
}
