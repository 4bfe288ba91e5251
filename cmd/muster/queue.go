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
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/api/client"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
	"muster/tasks/metrics"
	"muster/tasks/workqueue"
)

var queueSettings = []settingFlag{
	{"workers", "queue.max_workers", "process `N` items at once"},
	{"max-per-host", "queue.max_per_host", "fetch at most `N` items at once from a host"},
	{"max-per-resolver", "queue.max_per_resolver", "process at most so many items of a resolver at once: `LIMITS` as in unpaywall:2,crossref:3"},
}

func queueCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "queue",
		Usage: "manage the artifact queue, which fetches each artifact once",
		Subcommands: []*cli.Command{
			apiCommand(env.creating(), &cli.Command{
				Name: "enqueue", ArgsUsage: "ID [JSON]", Usage: "add an artifact, unless it is in the queue", Flags: []cli.Flag{jsonFlag()},
				Description: `JSON is an object, usually with a "url", and where they are known with the
"type", "size" and "sha256" of the content. "resolver" names the service that
found the artifact, for --max-per-resolver.`,
			}, enqueueArtifact),
			apiCommand(env.creating(), &cli.Command{
				Name: "import", ArgsUsage: "FILE", Usage: "add the artifacts of a file, one JSON object with an \"id\" a line",
				Flags: []cli.Flag{programFlag("limit"), jsonFlag()},
				Description: `FILE may be gzipped; - is standard input. Invalid lines are reported
and skipped. An interrupted import can be run again.`,
			}, importArtifacts),
			{
				Name: "run",
				Flags: append(flagsOf(queueSettings...),
					programFlag("queue"), programFlag("metrics-listen"), jsonFlag(),
					&cli.BoolFlag{Name: "drain", Usage: "exit when all items have finished, including retries"},
					&cli.DurationFlag{Name: "timeout", Aliases: []string{"drain-timeout"}}),
				Usage: "process the queue until interrupted, or with --drain until it is empty",
				Description: `With --drain, --timeout ends a run that takes longer. Several processes can run one queue, on one or many machines; they share the
limits. SIGHUP and changes of the settings file
reload the limits.`,
				Action: func(c *cli.Context) error {
					run := func(c *cli.Context) error { return runQueue(env, c) }
					if c.Bool("drain") { // stopped early, it has not done its work
						return run(c)
					}
					return server(run)(c)
				},
			},
			apiCommand(env, &cli.Command{
				Name: "stats", Usage: "count the items by state",
				Flags: []cli.Flag{&cli.StringFlag{Name: "format", Value: "table", Hidden: true}, jsonFlag()},
			}, queueStats),
			apiCommand(env, &cli.Command{
				Name: "retry-failed", Usage: "requeue failed items with all their attempts",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "force", Hidden: true, Usage: "retry all of them"},
					jsonFlag(),
				},
			}, retryFailed),
			act(env, &cli.Command{Name: "forget", ArgsUsage: "[ID…]", Before: namedOr("ended-for"), Usage: "delete ended items, which can then be added again"},
				client.ForgetItems, func(_ client.QueueForget, f client.ForgottenItems) string {
					return fmt.Sprintf("✓ Deleted: %d items", f.Forgotten)
				}),
			apiCommand(env, &cli.Command{Name: "delete", Usage: "delete the queue with all its items", Flags: []cli.Flag{jsonFlag()}}, func(s scope, in client.QueuePath) error {
				return showDone(s, map[string]string{"queue": in.Queue}, client.DeleteQueue.Do(s.ctx, s.api, in), "✓ Deleted: %s", in.Queue)
			}),
			// Names of the first design; see muster pause.
			act(env, &cli.Command{Name: "pause", Hidden: true}, client.PauseQueue, func(in client.QueueChange, _ client.PausedQueue) string { return "✓ Paused: " + in.Queue }),
			act(env, &cli.Command{Name: "resume", Hidden: true}, client.ResumeQueue, func(in client.QueueChange, _ client.PausedQueue) string { return "✓ Resumed: " + in.Queue }),
		},
	}
}

// queueScope has the services that a command on a queue uses.
type queueScope struct {
	*workqueue.Queue
	system  *orchestrator.Orchestrator
	display *monitor.Display
}

func enqueueArtifact(s scope, in client.Enqueue) error {
	if data := []byte(s.Args().Get(1)); len(data) > 0 {
		if err := json.Unmarshal(data, new(any)); err != nil {
			return fmt.Errorf("✗ Invalid JSON: %w", err)
		}
		in.Body.Data = data
	}
	e, err := client.EnqueueArtifact.Call(s.ctx, s.api, in)
	if err == nil && e.Warning != "" {
		fmt.Fprintf(s.env.stderr, "warning: %s\n", e.Warning)
	}
	text := "ⓘ Already queued (idempotent)"
	if e.New {
		text = "✓ Enqueued"
	}
	return showDone(s, e, err, "%s: %s", text, e.ID)
}

func queueStats(s scope, in client.QueuePath) error {
	format := s.String("format")
	if err := oneOf("format", format, []string{"table", "json"}); err != nil {
		return err
	}
	stats, err := client.GetQueue.Call(s.ctx, s.api, in)
	if err != nil {
		return err
	}
	if format == "json" || s.Bool("json") {
		return printJSON(s.env.stdout, stats)
	}
	return printQueue(s.env, in.Queue, stats)
}

func printQueue(env environment, name string, s workqueue.Stats) error {
	state := ""
	if s.Paused {
		state = " (paused)"
	}
	fmt.Fprintf(env.stdout, "Queue Statistics: %s%s\n", name, state)
	t := newTable(env.stdout, "STATE ITEMS")
	for _, r := range []struct {
		state string
		n     int64
	}{
		{"queued", s.Queued}, {"  of these delayed", s.Delayed}, {"in_progress", s.InProgress},
		{"done", s.Done}, {"skipped", s.Skipped}, {"error", s.Error}, {"total", s.Total},
	} {
		t.row(r.state, r.n)
	}
	return t.flush()
}

func retryFailed(s scope, in client.QueueRetry) error {
	most := in.Body.MaxRetried
	if s.Bool("force") {
		in.Body.MaxRetried = 0
	}
	done, err := client.RetryItems.Call(s.ctx, s.api, in)
	switch {
	case err != nil:
		return err
	case s.Bool("json"):
		return printJSON(s.env.stdout, done)
	case done.Found == 0 && done.Left > 0:
		fmt.Fprintf(s.env.stdout, "No failed jobs to retry: all %d were retried %d times; --force retries them again\n", done.Left, most)
		return nil
	case done.Found == 0:
		fmt.Fprintln(s.env.stdout, "No failed jobs to retry")
		return nil
	}
	fmt.Fprintf(s.env.stdout, "Found %d failed jobs:\n", done.Found)
	for _, it := range done.Items {
		fmt.Fprintf(s.env.stdout, "  %s: %s\n", it.ID, it.Note)
	}
	if more := done.Found - len(done.Items); more > 0 {
		fmt.Fprintf(s.env.stdout, "  and %d more\n", more)
	}
	if !in.Body.DryRun {
		fmt.Fprintf(s.env.stdout, "✓ Retried %d jobs\n", done.Retried)
	}
	return nil
}

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

// queueRun is the JSON result of "queue run".
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
	loaded, err := loadSources(env, c, config.Sources{Default: quietly}, append(queueSettings, metricsListen)...)
	if err != nil {
		return err
	}
	return withSystem(env.creating(), c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
		q := queueScope{o.ArtifactQueue(c.String("queue")), o, display}
		pool, err := q.system.NewQueuePool(q.Name(), c.Bool("drain"))
		if err != nil {
			return err
		}
		if c.IsSet("metrics-listen") {
			url, stop, err := q.system.ServeMetrics(ctx, "queue", metrics.Handler(append(pool.Collectors(), orchestrator.RuntimeMetrics())...))
			if err != nil {
				return err
			}
			defer stop()
			fmt.Fprintf(q.display, "metrics are at %s\n", url)
		}
		run := ctx
		if d := c.Duration("timeout"); d > 0 {
			var cancel context.CancelFunc
			run, cancel = context.WithTimeout(ctx, d)
			defer cancel()
		}
		watch, stop := context.WithCancel(context.WithoutCancel(ctx))
		var watchers sync.WaitGroup
		track := q.display.Track("queue " + q.Name())
		watchers.Go(func() { q.show(watch, track, pool) })
		start := time.Now()
		err = pool.Run(run)
		stop()
		watchers.Wait()
		return errors.Join(err, q.report(ctx, env, c, track, pool, time.Since(start)))
	})
}

// show updates a track until ctx is done.
func (q queueScope) show(ctx context.Context, track *monitor.Track, pool *orchestrator.QueuePool) {
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
			continue // the pool reports the error
		}
		p := pool.Stats()
		ended := p.Done + p.Skipped + p.Failed
		track.Update(monitor.Progress{
			Done: s.Done + s.Skipped + s.Error, Total: s.Total, Unit: "items",
			Note: fmt.Sprintf("%d/s, queued=%d, delayed=%d, in_progress=%d, done=%d, error=%d", 2*(ended-last), s.Queued, s.Delayed, s.InProgress, s.Done, s.Error),
		})
		last = ended
	}
}

// report prints how a run ended. A drain that left items is an error, unless it
// was interrupted.
func (q queueScope) report(ctx context.Context, env environment, c *cli.Context, track *monitor.Track, pool *orchestrator.QueuePool, took time.Duration) error {
	s, err := q.Stats(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	note := fmt.Sprintf("queued=%d, in_progress=%d, done=%d, skipped=%d, error=%d", s.Queued, s.InProgress, s.Done, s.Skipped, s.Error)
	track.Update(monitor.Progress{Done: s.Done + s.Skipped + s.Error, Total: s.Total, Unit: "items"})
	if s.Open() > 0 {
		track.Fail(note)
	} else {
		track.Done(note)
	}
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
	if s.Open() > 0 && ctx.Err() != nil {
		return withState(ctx, err, "%s left; continue with muster queue run --queue %s", count(int(s.Open()), "item"), q.Name())
	}
	if c.Bool("drain") && s.Open() > 0 {
		err = errors.Join(err, fmt.Errorf("the queue is not empty: %d items are left; run it again", s.Open()))
	}
	return err
}
