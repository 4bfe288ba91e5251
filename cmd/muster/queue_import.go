package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"muster/orchestrator/api/client"
	"muster/orchestrator/monitor"
)

func importArtifacts(s scope, in client.QueuePath) error {
	if s.Int("limit") < 0 {
		return usageError{fmt.Errorf("--limit is %d; it must be 0 or more", s.Int("limit"))}
	}
	name, from, size := s.Args().First(), s.env.stdin, int64(0)
	if name != "-" {
		file, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("✗ File not found: %s", name)
		}
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // it was only read
		if info, err := file.Stat(); err == nil {
			size = info.Size()
		}
		from = file
	}
	track := s.display.Track("import " + filepath.Base(name))
	counted := &countingReader{r: from, onRead: func(n int64) {
		track.Update(monitor.Progress{Done: n, Total: size, Unit: "bytes"})
	}}
	rep, err := s.api.Import(s.ctx, in.Queue, counted, s.Int("limit"))
	note := fmt.Sprintf("%d new, %d duplicate, %d errors", rep.New, rep.Duplicate, rep.Errors)
	if err != nil {
		track.Fail(oneLine(err))
		return withState(s.ctx, err, "the lines read so far are in the queue; import the file again for the rest: muster queue import %s --queue %s", name, in.Queue)
	}
	track.Done(note)
	for _, p := range rep.Problems {
		kind := ""
		if p.Warning {
			kind = "warning: "
		}
		fmt.Fprintf(s.display, "%s:%d: %s%s\n", name, p.Line, kind, p.Message)
	}
	s.display.Close()
	return showDone(s, rep, nil, "✓ Import complete: %s", note)
}

// countingReader calls onRead with the number of bytes read so far.
type countingReader struct {
	r      io.Reader
	n      int64
	onRead func(n int64)
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	c.onRead(c.n)
	return n, err
}
