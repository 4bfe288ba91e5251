package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
	"muster/tasks/workqueue"
)

var queueSettings = []settingFlag{
	{name: "workers", path: "queue.max_workers", usage: "process `N` items at once"},
	{name: "max-per-host", path: "queue.max_per_host", usage: "fetch at most `N` items at once from a host"},
	{name: "max-per-resolver", path: "queue.max_per_resolver", usage: "process at most so many items of a resolver at once: `LIMITS` as in unpaywall:2,crossref:3"},
}

func queueCommand(env environment) *cli.Command {
	common := func(flags ...cli.Flag) []cli.Flag {
		return append(flags,
			&cli.StringFlag{Name: "queue", Usage: "use the queue `NAME`", Value: "default"}, jsonFlag())
	}
	return &cli.Command{
		Name:  "queue",
		Usage: "manage the artifact queue, which fetches each artifact once",
		Subcommands: []*cli.Command{
			{
				Name: "enqueue", ArgsUsage: "ID [JSON]", Flags: common(serverFlag()),
				Usage: "add an artifact, unless it is in the queue",
				Description: `JSON is an object, usually with a "url", and where they are known with the
"type", "size" and "sha256" of the content. "resolver" names the service that
found the artifact, for --max-per-resolver.`,
				Action: enqueueArtifact(env),
			},
			{
				Name: "import", ArgsUsage: "FILE", Flags: common(&cli.IntFlag{Name: "limit", Usage: "read at most `N` artifacts"}, serverFlag(), progressFlag()),
				Usage: "add the artifacts of a file, one JSON object with an \"id\" a line",
				Description: `FILE may be gzipped; - is standard input. Invalid lines are reported
and skipped. An interrupted import can be run again.`,
				Action: importArtifacts(env),
			},
			{
				Name: "run",
				Flags: append(common(
					progressFlag(),
					&cli.BoolFlag{Name: "drain", Usage: "exit when all items have finished, including retries"},
					&cli.DurationFlag{Name: "drain-timeout", Usage: "with --drain, give up after `D`"},
					&cli.StringFlag{Name: "content", Usage: "store fetched content in `DIR`", DefaultText: "content in the data directory"},
					&cli.StringFlag{Name: "metrics-listen", Usage: "serve metrics for Prometheus at `ADDRESS`, as in 127.0.0.1:9090; beyond loopback it needs a key"},
				), flagsOf(queueSettings...)...),
				Usage: "process the queue until interrupted, or with --drain until it is empty",
				Description: `Several processes can run one queue, on one or many machines; they share the
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
			{
				Name: "stats",
				Flags: common(
					&cli.StringFlag{Name: "format", Usage: "print a `FORMAT`: table or json", Value: "table"},
					serverFlag()),
				Usage:  "count the items by state",
				Action: queueStats(env),
			},
			{
				Name: "retry-failed",
				Flags: common(
					&cli.IntFlag{Name: "max-attempts", Usage: "skip items that were retried `N` times", Value: 3},
					&cli.BoolFlag{Name: "force", Usage: "retry all of them"},
					&cli.BoolFlag{Name: "dry-run", Usage: "list them without a change"}, serverFlag()),
				Usage:  "requeue failed items with all their attempts",
				Action: retryFailed(env),
			},
			{
				Name: "forget", ArgsUsage: "[ID]...",
				Flags:  common(&cli.StringFlag{Name: "ended-for", Usage: "delete all items that ended longer ago than `D`, as in 168h"}, serverFlag()),
				Usage:  "delete ended items, which can then be added again",
				Action: forgetItems(env),
			},
			{Name: "delete", Flags: common(serverFlag()), Usage: "delete the queue with all its items", Action: deleteQueue(env)},
			// Names of the first design; see muster pause.
			{Name: "pause", Hidden: true, Flags: common(serverFlag()), Action: pauseQueue(env, true)},
			{Name: "resume", Hidden: true, Flags: common(serverFlag()), Action: pauseQueue(env, false)},
		},
	}
}

// queueScope has the services that a command on a queue uses.
type queueScope struct {
	*workqueue.Queue
	system  *orchestrator.Orchestrator
	display *monitor.Display
	cfg     config.Config
}

// withQueue runs fn with the queue that the flags name.
func withQueue(env environment, c *cli.Context, settings []settingFlag, fn func(context.Context, queueScope) error) error {
	loaded, err := loadSources(env, c, config.Sources{Default: quietly}, settings...)
	if err != nil {
		return err
	}
	return withSystem(env, c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
		return fn(ctx, queueScope{o.ArtifactQueue(c.String("queue")), o, display, loaded.Config})
	})
}
