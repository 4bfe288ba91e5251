package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

// errLate means that tasks did not run in time.
var errLate = errors.New("too late")

// mark is a line that a task wrote when it ran.
type mark struct {
	kind string
	id   int
	at   int64 // unix time in µs
}

// marks is the file to which tasks write their marks.
type marks struct {
	file *os.File
	rest []byte // incomplete last line
	all  []mark
}

func openMarks(path string) (*marks, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o644)
	return &marks{file: f}, err
}

func (m *marks) close() error { return m.file.Close() }

// read reads new lines.
func (m *marks) read() error {
	raw, err := io.ReadAll(m.file)
	if err != nil {
		return err
	}
	m.rest = append(m.rest, raw...)
	end := bytes.LastIndexByte(m.rest, '\n') + 1
	more, err := parseMarks(m.rest[:end])
	m.rest = bytes.Clone(m.rest[end:])
	m.all = append(m.all, more...)
	return err
}

func parseMarks(text []byte) ([]mark, error) {
	var all []mark
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("got %d fields in mark %q, want 3", len(fields), line)
		}
		id, err := strconv.Atoi(string(fields[1]))
		at, err1 := strconv.ParseInt(string(fields[2]), 10, 64)
		if err := errors.Join(err, err1); err != nil {
			return nil, fmt.Errorf("mark %q: %w", line, err)
		}
		all = append(all, mark{string(fields[0]), id, at})
	}
	return all, nil
}

// await waits until n marks of a kind follow the first from marks, and returns them. On a timeout it returns errLate.
func (m *marks) await(ctx context.Context, from int, kind string, n int, limit time.Duration) ([]mark, error) {
	const pause = 2 * time.Millisecond
	var found []mark
	for until := time.Now().Add(limit); ; {
		if err := m.read(); err != nil {
			return nil, err
		}
		for _, k := range m.all[from:] {
			if k.kind == kind {
				found = append(found, k)
			}
		}
		from = len(m.all)
		if len(found) >= n {
			return found, nil
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("%w: %d of %d tasks %q ran in %v", errLate, len(found), n, kind, limit)
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// span returns the time between the first and the last mark.
func span(all []mark) time.Duration {
	first, last := all[0].at, all[0].at
	for _, k := range all {
		first, last = min(first, k.at), max(last, k.at)
	}
	return time.Duration(last-first) * time.Microsecond
}

// distinct returns the number of distinct IDs.
func distinct(all []mark) int {
	ids := map[int]bool{}
	for _, k := range all {
		ids[k.id] = true
	}
	return len(ids)
}
