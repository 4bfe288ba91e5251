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

// ImportConfig configures Import.
type ImportConfig struct {
	Limit    int                           // maximum number of artifacts. Default: all.
	MaxLine  int                           // maximum length of a line in bytes. Default: 8 MiB.
	Progress func(Report)                  // called after each batch. Optional.
	BadLine  func(number int64, err error) // called for each invalid line. Optional.
	Doubtful func(number int64, err error) // called for each item for which Doubt returns an error. Optional.
}

// Report contains the line counts of an import.
type Report struct {
	New       int   `json:"new"`
	Duplicate int   `json:"duplicate"`
	Errors    int   `json:"errors"`
	Lines     int64 `json:"lines"`
}

// importBatch is the maximum number of artifacts per batch.
const importBatch = 1000

// importBytes is the maximum size of a batch.
const importBytes = 8 << 20

// Import enqueues the artifacts in r, one JSON object per line, plain or compressed with gzip. It reports and skips invalid lines
// and ignores blank lines. An interrupted import can be repeated: existing items count as duplicates.
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
			return fmt.Errorf("import before line %d: %w; repeat the import, which skips enqueued items", rep.Lines+1, err)
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

// ErrGzip means that a file starts like gzip but is invalid.
var ErrGzip = errors.New("read gzip")

// plain decompresses gzip and skips a byte order mark.
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

// readLine reads a line of at most n bytes. It skips a longer line and returns errLong.
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
