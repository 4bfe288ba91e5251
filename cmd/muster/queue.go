package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
	"muster/sites/fetch"
	"muster/tasks/limit"
	"muster/tasks/workqueue"
	"muster/tasks/workqueue/artifact"
)

var queueSettings = []settingFlag{
	{name: "workers", path: "queue.max_workers", usage: "work on `N` items at once"},
	{name: "max-per-host", path: "queue.max_per_host", usage: "fetch at most `N` items at once from a host"},
	{name: "max-per-resolver", path: "queue.max_per_resolver", usage: "work on at most so many items of a resolver at once, as in `unpaywall:2,crossref:3`"},
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
					&cli.BoolFlag{Name: "verify", Usage: "recount every item, and fail if the counters are wrong"}),
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

// queueRun is the answer of "queue run".
type queueRun struct {
	Seconds   float64         `json:"seconds"`
	PerSecond float64         `json:"per_second"`
	Done      int64           `json:"done"`
	Skipped   int64           `json:"skipped"`
	Failed    int64           `json:"failed"`
	Retried   int64           `json:"retried"`
	Queue     workqueue.Stats `json:"queue"`
}

func runQueue(env environment, c *cli.Context) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	return withQueue(env, c, queueSettings, func(ctx context.Context, q queueScope) error {
		content := c.String("content")
		if content == "" {
			content = filepath.Join(q.cfg.DataDir, "content")
		}
		fetcher, err := artifact.NewFetcher(artifact.FetcherConfig{Dir: content, Transport: fetch.DirectTransport()})
		if err != nil {
			return err
		}
		mux := workqueue.NewMux()
		mux.Handle(artifact.FetchKind, fetcher.Handle)
		limits := newQueueLimits(newLogger(env, q.display, q.cfg.Log), q)
		pool, err := workqueue.NewPool(q.Queue, mux, workqueue.PoolConfig{
			Workers: q.cfg.Queue.MaxWorkers, Heartbeat: q.cfg.Queue.Heartbeat(), Grace: q.cfg.Shutdown.Drain,
			Hard: env.hard, Drain: c.Bool("drain"), Limiter: limits.of, Logger: newLogger(env, q.display, q.cfg.Log),
		})
		if err != nil {
			return err
		}
		run := ctx
		if d := c.Duration("drain-timeout"); d > 0 {
			var cancel context.CancelFunc
			run, cancel = context.WithTimeout(ctx, d)
			defer cancel()
		}
		watch, stop := context.WithCancel(context.WithoutCancel(ctx))
		var watchers sync.WaitGroup
		track := q.display.Track("queue " + q.Name())
		watchers.Go(func() { q.show(watch, track, pool) })
		watchers.Go(func() { limits.reload(watch, env, c, q.display) })
		start := time.Now()
		err = pool.Run(run)
		stop()
		watchers.Wait()
		return errors.Join(err, q.report(context.WithoutCancel(ctx), env, c, track, pool, time.Since(start)))
	})
}

// show keeps a track up to date until ctx ends.
func (q queueScope) show(ctx context.Context, track *monitor.Track, pool *workqueue.Pool) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	var last int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s, err := q.Stats(ctx)
		if err != nil {
			continue // the pool says what is wrong
		}
		p := pool.Stats()
		ended := p.Done + p.Skipped + p.Failed
		track.Update(monitor.Progress{
			Done: s.Done + s.Skipped + s.Error, Total: s.Total, Unit: "items",
			Note: fmt.Sprintf("queued=%d, in_progress=%d, done=%d, error=%d, %d/s", s.Queued, s.InProgress, s.Done, s.Error, 2*(ended-last)),
		})
		last = ended
	}
}

// report says how a run ended. A drain that left something is an error.
func (q queueScope) report(ctx context.Context, env environment, c *cli.Context, track *monitor.Track, pool *workqueue.Pool, took time.Duration) error {
	s, err := q.Stats(ctx)
	if err != nil {
		return err
	}
	note := fmt.Sprintf("queued=%d, in_progress=%d, done=%d, skipped=%d, error=%d", s.Queued, s.InProgress, s.Done, s.Skipped, s.Error)
	track.Update(monitor.Progress{Done: s.Done + s.Skipped + s.Error, Total: s.Total, Unit: "items"})
	track.Done(note)
	q.display.Close()
	p := pool.Stats()
	ended := p.Done + p.Skipped + p.Failed
	if c.Bool("json") {
		err = printJSON(env.stdout, queueRun{
			Seconds: took.Seconds(), PerSecond: float64(ended) / took.Seconds(),
			Done: p.Done, Skipped: p.Skipped, Failed: p.Failed, Retried: p.Retried, Queue: s,
		})
	} else {
		fmt.Fprintf(env.stdout, "Queue: %s\n", note)
		if s.Open() == 0 && c.Bool("drain") {
			fmt.Fprintln(env.stdout, "✓ Queue empty, exiting")
		}
	}
	if c.Bool("drain") && s.Open() > 0 {
		err = errors.Join(err, fmt.Errorf("the queue is not empty: %d items are left; run it again", s.Open()))
	}
	return err
}

// queueLimits are the limiters of a run.
type queueLimits struct{ hosts, resolvers *limit.KeyedLimiter }

func newQueueLimits(logger *slog.Logger, q queueScope) queueLimits {
	slots := func(n int, perKey map[string]int) *limit.KeyedLimiter {
		return limit.NewKeyedLimiter(q.system.Client.Redis(), limit.KeyedConfig{
			Default: n, PerKey: perKey, FailOpen: true, Logger: logger,
		})
	}
	return queueLimits{hosts: slots(q.cfg.Queue.MaxPerHost, nil), resolvers: slots(q.cfg.Queue.MaxWorkers, perResolver(q.cfg.Queue))}
}

func perResolver(q config.Queue) map[string]int {
	out := make(map[string]int, len(q.MaxPerResolver))
	for name, n := range q.MaxPerResolver {
		out[artifact.ResolverKey+name] = n
	}
	return out
}

// of returns the limiter of a resource key.
func (l queueLimits) of(key string) *limit.KeyedLimiter {
	switch {
	case strings.HasPrefix(key, artifact.HostKey):
		return l.hosts
	case strings.HasPrefix(key, artifact.ResolverKey):
		return l.resolvers
	}
	return nil
}

// reload reads the limits again at every SIGHUP, until ctx ends. Settings that
// are wrong leave the old limits.
func (l queueLimits) reload(ctx context.Context, env environment, c *cli.Context, out io.Writer) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		}
		loaded, err := loadConfig(env, c, queueSettings...)
		if err != nil {
			fmt.Fprintf(out, "the limits stay as they are: %v\n", err)
			continue
		}
		l.hosts.Configure(loaded.Queue.MaxPerHost, nil)
		l.resolvers.Configure(loaded.Queue.MaxWorkers, perResolver(loaded.Queue))
		fmt.Fprintf(out, "limits read again: %d per host, %v per resolver\n", loaded.Queue.MaxPerHost, loaded.Queue.MaxPerResolver)
	}
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
		for {
			s, err := q.Stats(ctx)
			if err != nil {
				return err
			}
			if c.Bool("verify") {
				if _, err := q.Verify(ctx); err != nil {
					return err
				}
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
