package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
	"muster/orchestrator/redisd"
)

// metricsListen is for workers that are started by themselves.
var metricsListen = settingFlag{"metrics-listen", "workers.metrics_listen", ""}

func startCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "start",
		Usage: "run the orchestrator: Redis, workers, proxy pool, schedule, HTTP API",
		Description: `Runs until interrupted. The first Ctrl-C waits for running tasks, for at most
shutdown.drain; the second stops immediately. Nothing is lost either way.
SIGHUP or a change of its files reloads settings, secrets and definitions; the
log lists the changes and the settings that need a restart. See the column RELOAD
of muster config.

With --once it refreshes the proxy pool if few proxies are left, scrapes every
configured site, prints the results and exits. The exit code is 1 if a job is
incomplete or lost data, as with muster scrape --wait.`,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "once", Usage: "run one round, then exit"}, failOnFlag(), jsonFlag()},
		Action: server(func(c *cli.Context) error {
			failOn, err := failOnOf(c)
			if err != nil {
				return err
			}
			if c.IsSet("fail-on") && !c.Bool("once") {
				return usageError{errors.New("--fail-on requires --once")}
			}
			loaded, err := loadSources(env, c, config.Sources{Check: checkSecrets()})
			if err != nil {
				return err
			}
			return withSystem(env, c, loaded, false, func(ctx context.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
				if !c.Bool("once") {
					if env.terminal() {
						if loaded.Workers.Processes > 0 {
							fmt.Fprintf(display, "log of the worker processes: %s\n", loaded.WorkerLog())
						}
						fmt.Fprintf(display, "redis: %s\nrunning; press Ctrl-C to finish running tasks and stop\n", o.Redis().Guarantee())
					}
					return withState(ctx, o.Serve(ctx), "unfinished work is kept; resume with muster start")
				}
				round, err := o.Scraper.RoundAll(ctx)
				if round == nil {
					return err
				}
				err = errors.Join(err, printRound(env, round, c.Bool("json")), round.Lost(failOn))
				return withJobState(ctx, o, err, "scrapes", jobsOf(round), "muster start --once")
			})
		}),
	}
}

func workerCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "worker",
		Usage: "run tasks of an orchestrator, on this machine or another",
		Description: `Runs until interrupted. SIGHUP or a change of its files reloads the settings, as
with muster start.`,
		Flags: append(flagsOf(metricsListen),
			&cli.StringFlag{Name: "name", Usage: "name the worker `NAME`, which must be unique", DefaultText: "host, pid and a number"},
			&cli.BoolFlag{Name: "of-orchestrator", Hidden: true, Usage: "run the tasks of the schedules of the orchestrator that starts it"},
			&cli.StringFlag{Name: "ready", Hidden: true, Usage: "create `FILE` when the worker is ready"}),
		Action: server(func(c *cli.Context) error {
			loaded, err := loadSources(env, c, config.Sources{Check: checkSecrets()}, metricsListen)
			if err != nil {
				return err
			}
			outliveReaders()
			log := newLogger(env, env.stderr, loaded.Log)
			return orchestrator.RunWorker(c.Context, loaded.Config, orchestrator.WorkerOptions{
				Name: c.String("name"), OfOrchestrator: c.Bool("of-orchestrator"), Hard: env.hard, Logger: log, Watch: env.watch(loaded, env.stderr),
				Ready: func() {
					sayWorking(env, loaded.Config)
					touch(c.String("ready"))
				},
			})
		}),
	}
}

// sayWorking prints the Redis of a worker on a terminal, without its password.
func sayWorking(env environment, cfg config.Config) {
	if !env.terminal() || logsJSON(env, cfg.Log) {
		return
	}
	from := "the Redis of " + cfg.DataDir
	if cfg.Redis.URL != "" {
		from = redisd.Redact(cfg.Redis.URL)
	}
	fmt.Fprintf(env.stderr, "takes tasks from %s; Ctrl-C lets running tasks finish and stops\n", from)
}

// withSystem runs fn with the system of the settings, which are loaded again when
// they change. Progress is on standard error, below the log.
func withSystem(env environment, c *cli.Context, loaded *config.Loaded, reuse bool,
	fn func(context.Context, *orchestrator.Orchestrator, *monitor.Display) error) error {
	outliveReaders() // else its child processes would be left running
	display := env.display()
	defer display.Close()
	log := newLogger(env, display, loaded.Log)
	say := func(line string) { fmt.Fprintln(display, line) }
	if logsJSON(env, loaded.Log) { // the reader expects JSON only
		say = func(line string) { log.Warn(line) }
	}
	for _, w := range loaded.Warnings {
		log.Warn(w)
	}
	opts := orchestrator.Options{
		Reuse: reuse, Existing: reuse && !env.creates, Logger: log, Display: display, Hard: env.hard, NeedAPI: loaded.IsSet("api.listen"),
	}
	if env.terminal() {
		opts.Ready = func(url string) { say("pages: " + url) }
	}
	return orchestrator.Run(c.Context, loaded.Config, opts, func(ctx context.Context, o *orchestrator.Orchestrator) error {
		log.Info("redis", "mode", o.Redis().Mode(), "guarantee", o.Redis().Guarantee())
		// Without bars, the log shows the reason why the shutdown takes time.
		defer context.AfterFunc(ctx, func() {
			say(fmt.Sprintf("stopping: running tasks may finish, for at most %s; Ctrl-C again to stop at once", loaded.Shutdown.Drain))
		})()
		defer o.Watch(ctx, env.watch(loaded, display))()
		return fn(ctx, o, display)
	})
}

func dashboardCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "dashboard",
		Usage: "serve the HTTP interface and the web pages, until interrupted",
		Description: `Serves the HTTP interface of muster start for workers that run elsewhere: jobs,
pipelines, agents and sites as JSON, described at /openapi.json, and the pages
below /ui/. Prometheus metrics are at /metrics; /ready reports whether requests
can be served. /asynqmon/ shows the tasks of asynq's own clients; for tasks of
workflows see muster workflows.`,
		Action: server(func(c *cli.Context) error {
			loaded, err := loadConfig(env, c)
			if err != nil {
				return err
			}
			client, err := orchestrator.Connect(c.Context, loaded.Config)
			if err != nil {
				return err
			}
			defer client.Close()
			outliveReaders()
			return orchestrator.ServeDashboard(c.Context, loaded.Config, client, newLogger(env, env.stderr, loaded.Log),
				env.watch(loaded, env.stderr),
				func(url string) { fmt.Fprintf(env.stderr, "dashboard: %s\n", url) })
		}),
	}
}
