package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
	"muster/orchestrator/monitor"
)

func importArtifacts(env environment) cli.ActionFunc {
	return func(c *cli.Context) error {
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
		return onAPI(env.creating(), 1, 1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
			display, err := newDisplay(env, c)
			if err != nil {
				return err
			}
			defer display.Close()
			track := display.Track("import " + filepath.Base(name))
			counted := &countingReader{r: in, onRead: func(n int64) {
				track.Update(monitor.Progress{Done: n, Total: size, Unit: "bytes"})
			}}
			queue := c.String("queue")
			rep, err := api.Import(ctx, queue, counted, c.Int("limit"))
			note := fmt.Sprintf("%d new, %d duplicate, %d errors", rep.New, rep.Duplicate, rep.Errors)
			if err != nil {
				track.Fail(oneLine(err))
				return withState(ctx, err, "the lines read so far are in the queue; import the file again for the rest: muster queue import %s --queue %s", name, queue)
			}
			track.Done(note)
			for _, p := range rep.Problems {
				kind := ""
				if p.Warning {
					kind = "warning: "
				}
				fmt.Fprintf(display, "%s:%d: %s%s\n", name, p.Line, kind, p.Message)
			}
			display.Close()
			if c.Bool("json") {
				return printJSON(env.stdout, rep)
			}
			fmt.Fprintf(env.stdout, "✓ Import complete: %s\n", note)
			return nil
		})(c)
	}
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
