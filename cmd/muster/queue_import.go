package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/artifact"
	"muster/orchestrator/monitor"
)

func importArtifacts(env environment, c *cli.Context) error {
	if err := arguments(c, 1, 1); err != nil {
		return err
	}
	if c.Int("limit") < 0 {
		return usageError{fmt.Errorf("--limit is %d; it must be 0 or more", c.Int("limit"))}
	}
	name, in, size := c.Args().First(), env.stdin, int64(0)
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
		in = file
	}
	return withQueue(env.creating(), c, nil, func(ctx context.Context, q queueScope) error {
		counted := &countingReader{r: in}
		track := q.display.Track("import " + filepath.Base(name))
		rep, err := artifact.Import(ctx, q.Queue, counted, artifact.ImportConfig{
			Limit: c.Int("limit"),
			BadLine: func(n int64, err error) {
				fmt.Fprintf(q.display, "%s:%d: %v\n", name, n, err)
			},
			Doubtful: func(n int64, err error) {
				fmt.Fprintf(q.display, "%s:%d: warning: %v\n", name, n, err)
			},
			Progress: func(r artifact.Report) {
				track.Update(monitor.Progress{Done: counted.n.Load(), Total: size, Unit: "bytes", Note: importNote(r)})
			},
		})
		if err != nil {
			track.Fail(oneLine(err))
		} else {
			track.Done(importNote(rep))
		}
		q.display.Close()
		err = withState(ctx, err, "the lines read so far are in the queue; import the file again for the rest: muster queue import %s --queue %s", name, q.Name())
		if c.Bool("json") {
			return errors.Join(err, printJSON(env.stdout, rep))
		}
		if err == nil {
			fmt.Fprintf(env.stdout, "✓ Import complete: %s\n", importNote(rep))
		}
		return err
	})
}

func importNote(r artifact.Report) string {
	return fmt.Sprintf("%d new, %d duplicate, %d errors", r.New, r.Duplicate, r.Errors)
}

// countingReader counts the bytes read.
type countingReader struct {
	r io.Reader
	n atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}
