package sites

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"muster/sites/internal/lines"
)

// maxHead is how much of a file of records Head reads, in bytes.
const maxHead = 1 << 20

// RecordHead is the first records of a type.
type RecordHead struct {
	Type    string
	Records []json.RawMessage
	More    bool // there are more, or the next one is too large to read
}

// Head returns up to n records of each type of a job, the first that were written, in the order of the definition. Types
// without records are left out. It reads up to 1 MiB of each file. The folder for the records must be on this machine.
func Head(ctx context.Context, r *Reader, id string, n int) ([]RecordHead, error) {
	files, err := r.filesOf(ctx, id)
	if err != nil {
		return nil, err
	}
	var heads []RecordHead
	for _, f := range files {
		head, err := headOf(f.path, n)
		if err != nil {
			return nil, err
		}
		if len(head.Records) > 0 || head.More {
			heads = append(heads, head)
		}
	}
	return heads, nil
}

// headOf reads the first n lines of a file of records, which may be missing.
func headOf(path string, n int) (RecordHead, error) {
	head := RecordHead{Type: strings.TrimSuffix(filepath.Base(path), ".jsonl")}
	from, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return head, nil
	}
	if err != nil {
		return head, fmt.Errorf("read records: %w", err)
	}
	defer from.Close()
	var end int64
	for line, err := range lines.Of(io.LimitReader(from, maxHead)) {
		if err != nil {
			return head, fmt.Errorf("read records: %w", err)
		}
		if len(head.Records) == n {
			break
		}
		end += int64(len(line)) + 1
		if line = bytes.TrimSpace(line); json.Valid(line) {
			head.Records = append(head.Records, line)
		}
	}
	info, err := from.Stat()
	if err != nil {
		return head, fmt.Errorf("read records: %w", err)
	}
	head.More = info.Size() > end // also by a line that is being written, or is too large
	return head, nil
}
