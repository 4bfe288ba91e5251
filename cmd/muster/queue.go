package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
	"muster/tasks/workqueue"
	"muster/tasks/workqueue/artifact"
)

var queueSettings = []settingFlag{
	{name: "workers", path: "queue.max_workers", usage: "work on `N` items at once"},
	{name: "max-per-host", path: "queue.max_per_host", usage: "fetch at most `N` items at once from a host"},
	{name: "max-per-resolver", path: "queue.max_per_resolver", usage: "work on so many items of each resolver at once: `LIMITS` as in unpaywall:2,crossref:3"},
}

func queueCommand(env environment) *cli.Command {
	common := func(flags ...cli.Flag) []cli.Flag {
		return append(flags,
			&cli.StringFlag{Name: "queue", Usage: "use the queue `NAME`", Value: "default"},
			progressFlag(), jsonFlag())
	}
	return &cli.Command{
		Name:  "queue",
		Usage: "keep artifacts in a queue and fetch each once: enqueue, import, run, stats, retry-failed, pause, resume",
		Subcommands: []*cli.Command{
			{
				Name: "enqueue", ArgsUsage: "ID [JSON]", Flags: common(),
				Usage: "add an artifact; one that is known is left as it is",
				Description: `JSON is an object, usually with a "url", and where they are known with the
"type", "size" and "sha256" of what is there. "resolver" names what the
artifact came by, for --max-per-resolver.`,
				Action: func(c *cli.Context) error { return enqueueArtifact(env, c) },
			},
			{
				Name: "import", ArgsUsage: "FILE", Flags: common(&cli.IntFlag{Name: "limit", Usage: "read at most `N` artifacts"}),
				Usage: "add the artifacts of a file, one JSON object with an \"id\" a line",
				Description: `FILE may be gzipped; - is standard input. Lines that are no artifacts are
reported and left out. An import that was cut short can be run again.`,
				Action: func(c *cli.Context) error { return importArtifacts(env, c) },
			},
			{
				Name: "run",
				Flags: append(common(
					&cli.BoolFlag{Name: "drain", Usage: "exit when no item is left to do, also none that waits for a retry"},
					&cli.DurationFlag{Name: "drain-timeout", Usage: "with --drain, give up after `D`"},
					&cli.StringFlag{Name: "content", Usage: "keep what is fetched in `DIR`", DefaultText: "content in the data folder"},
					&cli.StringFlag{Name: "metrics-listen", Usage: "serve metrics for Prometheus at `ADDRESS`, as in 127.0.0.1:9090; beyond loopback it needs dashboard.keys"},
				), flagsOf(queueSettings...)...),
				Usage: "work on the queue until it is interrupted, or with --drain until it is empty",
				Description: `Several may run on one queue, on one machine or many; the limits hold for all
of them together. SIGHUP reads the limits from the settings again.`,
				Action: func(c *cli.Context) error { return runQueue(env, c) },
			},
			{
				Name: "stats",
				Flags: common(
					&cli.StringFlag{Name: "format", Usage: "answer as `FORMAT`: table or json", Value: "table"},
					&cli.BoolFlag{Name: "watch", Usage: "answer again every second, until interrupted"},
					&cli.BoolFlag{Name: "verify", Usage: "recount every item, and fail if the counters are wrong"},
					&cli.BoolFlag{Name: "repair", Usage: "put counters and indexes right by the items' own records"}),
				Usage:  "count the items by state",
				Action: func(c *cli.Context) error { return queueStats(env, c) },
			},
			{
				Name: "retry-failed",
				Flags: common(
					&cli.IntFlag{Name: "max-attempts", Usage: "leave items that were retried `N` times already", Value: 3},
					&cli.BoolFlag{Name: "force", Usage: "retry them however often they were"},
					&cli.BoolFlag{Name: "dry-run", Usage: "only list them"}),
				Usage:  "put the items that ended in error back into the queue, with all their attempts",
				Action: func(c *cli.Context) error { return retryFailed(env, c) },
			},
			{
				Name: "pause", Flags: common(), Usage: "hand out no more items, in any process, until resumed",
				Action: func(c *cli.Context) error { return pauseQueue(env, c, true) },
			},
			{
				Name: "resume", Flags: common(), Usage: "end a pause",
				Action: func(c *cli.Context) error { return pauseQueue(env, c, false) },
			},
		},
	}
}

// queueScope is what a queue command works with.
type queueScope struct {
	*workqueue.Queue
	system  *orchestrator.Orchestrator
	display *monitor.Display
	cfg     config.Config
}

// withQueue runs fn with the queue that the flags name.
func withQueue(env environment, c *cli.Context, settings []settingFlag, fn func(context.Context, queueScope) error) error {
	loaded, err := loadConfig(env, c, settings...)
	if err != nil {
		return err
	}
	if _, ok := given(c, "log-level"); !ok {
		loaded.Log.Level = "warn" // the answer is what was asked for
	}
	return withSystem(env, c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
		q := loaded.Queue
		queue := workqueue.New(o.Client.Redis(), c.String("queue"), workqueue.Config{
			MaxAttempts: q.MaxJobAttempts,
			Backoff:     workqueue.Backoff{Base: q.RetryBackoff(), Jitter: q.Jitter(), Max: time.Hour},
			LeaseTTL:    q.LeaseTTL(),
			Logger:      newLogger(env, display, loaded.Log),
		})
		return fn(ctx, queueScope{queue, o, display, loaded.Config})
	})
}

func enqueueArtifact(env environment, c *cli.Context) error {
	if err := arguments(c, 1, 2); err != nil {
		return err
	}
	id, payload := c.Args().Get(0), c.Args().Get(1)
	if payload == "" {
		payload = "{}"
	}
	item, err := artifact.Item(id, []byte(payload))
	if err != nil {
		return fmt.Errorf("✗ Invalid JSON: %w", err)
	}
	return withQueue(env, c, nil, func(ctx context.Context, q queueScope) error {
		added, err := q.Enqueue(ctx, item)
		if err != nil {
			return err
		}
		if err := artifact.Doubt(item); err != nil {
			fmt.Fprintf(q.display, "warning: %v\n", err)
		}
		if c.Bool("json") {
			return printJSON(env.stdout, map[string]any{"id": id, "new": added == 1})
		}
		if added == 1 {
			fmt.Fprintf(env.stdout, "✓ Enqueued: %s\n", id)
		} else {
			fmt.Fprintf(env.stdout, "ⓘ Already queued (idempotent): %s\n", id)
		}
		return nil
	})
}

func importArtifacts(env environment, c *cli.Context) error {
	if err := arguments(c, 1, 1); err != nil {
		return err
	}
	if c.Int("limit") < 0 {
		return usageError{fmt.Errorf("--limit is %d; it must not be below zero", c.Int("limit"))}
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
	return withQueue(env, c, nil, func(ctx context.Context, q queueScope) error {
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

// countingReader counts what has been read.
type countingReader struct {
	r io.Reader
	n atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func queueStats(env environment, c *cli.Context) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	format := c.String("format")
	if format != "table" && format != "json" {
		return usageError{fmt.Errorf("no format %q; use table or json", format)}
	}
	asJSON := format == "json" || c.Bool("json")
	return withQueue(env, c, nil, func(ctx context.Context, q queueScope) error {
		if c.Bool("repair") {
			n, err := q.Repair(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintf(q.display, "%d items were not indexed as they should be\n", n)
		}
		for shown := 0; ; shown++ {
			s, err := q.Stats(ctx)
			if err != nil {
				return err
			}
			if c.Bool("verify") {
				if _, err := q.Verify(ctx); err != nil {
					return err
				}
			}
			if shown > 0 && !asJSON {
				overwrite(env.stdout, statsLines)
			}
			if err := printStats(env, q, s, asJSON, c.Bool("watch")); err != nil || !c.Bool("watch") {
				return err
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Second):
			}
		}
	})
}

// statsLines is how many lines printStats prints of a table.
const statsLines = 9

// overwrite has the next lines printed where the last n are, on a terminal;
// elsewhere an empty line parts them.
func overwrite(w io.Writer, n int) {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprintf(w, "\x1b[%dA\x1b[J", n)
		return
	}
	fmt.Fprintln(w)
}

func printStats(env environment, q queueScope, s workqueue.Stats, asJSON, watch bool) error {
	if asJSON && watch {
		return json.NewEncoder(env.stdout).Encode(s) // a line each
	}
	if asJSON {
		return printJSON(env.stdout, s)
	}
	state := ""
	if s.Paused {
		state = " (paused)"
	}
	fmt.Fprintf(env.stdout, "Queue Statistics: %s%s\n", q.Name(), state)
	t := newTable(env.stdout, "STATE", "ITEMS")
	for _, r := range []struct {
		state string
		n     int64
	}{
		{"queued", s.Queued}, {"  of these delayed", s.Delayed}, {"in_progress", s.InProgress},
		{"done", s.Done}, {"skipped", s.Skipped}, {"error", s.Error}, {"total", s.Total},
	} {
		t.row(r.state, fmt.Sprint(r.n))
	}
	return t.flush()
}

func retryFailed(env environment, c *cli.Context) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	most := c.Int("max-attempts")
	if most < 1 {
		return usageError{fmt.Errorf("--max-attempts is %d; it must be at least 1", most)}
	}
	if c.Bool("force") {
		most = 0
	}
	return withQueue(env, c, nil, func(ctx context.Context, q queueScope) error {
		found, err := q.Requeue(ctx, workqueue.RequeueOptions{MaxRetried: most, DryRun: true})
		if err != nil {
			return err
		}
		notes, err := q.Get(ctx, found[:min(20, len(found))]...)
		if err != nil {
			return err
		}
		retried := found
		if c.Bool("dry-run") {
			retried = []string{}
		} else if len(found) > 0 {
			retried, err = q.Requeue(ctx, workqueue.RequeueOptions{IDs: found, MaxRetried: most})
			if err != nil {
				return err
			}
		}
		s, err := q.Stats(ctx)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(env.stdout, map[string]any{"found": len(found), "retried": len(retried), "left": s.Error})
		}
		switch {
		case len(found) == 0 && s.Error > 0:
			fmt.Fprintf(env.stdout, "No failed jobs to retry: all %d were retried %d times; --force retries them again\n", s.Error, most)
			return nil
		case len(found) == 0:
			fmt.Fprintln(env.stdout, "No failed jobs to retry")
			return nil
		}
		fmt.Fprintf(env.stdout, "Found %d failed jobs:\n", len(found))
		for _, it := range notes {
			fmt.Fprintf(env.stdout, "  %s: %s\n", it.ID, it.Note)
		}
		if more := len(found) - len(notes); more > 0 {
			fmt.Fprintf(env.stdout, "  and %d more\n", more)
		}
		if !c.Bool("dry-run") {
			fmt.Fprintf(env.stdout, "✓ Retried %d jobs\n", len(retried))
		}
		return nil
	})
}

func pauseQueue(env environment, c *cli.Context, pause bool) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	return withQueue(env, c, nil, func(ctx context.Context, q queueScope) error {
		change, word := q.Resume, "Resumed"
		if pause {
			change, word = q.Pause, "Paused"
		}
		changed, err := change(ctx)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(env.stdout, map[string]any{"queue": q.Name(), "paused": pause, "changed": changed})
		}
		fmt.Fprintf(env.stdout, "✓ %s: %s\n", word, q.Name())
		return nil
	})
}
