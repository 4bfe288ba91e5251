package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/api/client"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
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
				Flags: []cli.Flag{&cli.IntFlag{Name: "limit", Usage: "read at most `N` artifacts"}, jsonFlag()},
				Description: `FILE may be gzipped; - is standard input. Invalid lines are reported
and skipped. An interrupted import can be run again.`,
			}, importArtifacts),
			{
				Name: "run",
				Flags: append(flagsOf(queueSettings...),
					&cli.StringFlag{Name: "queue", Usage: "use the queue `NAME`", Value: "default"}, jsonFlag(),
					&cli.BoolFlag{Name: "drain", Usage: "exit when all items have finished, including retries"},
					&cli.DurationFlag{Name: "drain-timeout", Usage: "with --drain, give up after `D`"},
					&cli.StringFlag{Name: "content", Usage: "store fetched content in `DIR`", DefaultText: "content in the data directory"},
					&cli.StringFlag{Name: "metrics-listen", Usage: "serve metrics for Prometheus at `ADDRESS`, as in 127.0.0.1:9090; beyond loopback it needs a key"}),
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
			apiCommand(env, &cli.Command{
				Name: "stats", Usage: "count the items by state",
				Flags: []cli.Flag{&cli.StringFlag{Name: "format", Usage: "print a `FORMAT`: table or json", Value: "table"}, jsonFlag()},
			}, queueStats),
			apiCommand(env, &cli.Command{
				Name: "retry-failed", Usage: "requeue failed items with all their attempts",
				Flags: []cli.Flag{
					&cli.IntFlag{Name: "max-attempts", Usage: "skip items that were retried `N` times", Value: 3},
					&cli.BoolFlag{Name: "force", Usage: "retry all of them"},
					&cli.BoolFlag{Name: "dry-run", Usage: "list them without a change"}, jsonFlag(),
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
