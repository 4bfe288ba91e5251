package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/orchestrator/demo"
	"muster/orchestrator/monitor"
	"muster/orchestrator/redisd"
)

func demoCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "try the whole system on loopback, with proxies and two flaky sites",
		Description: `Starts a Redis, a judge, 48 proxies of every kind and two sites that fail now
and then, all on loopback. Prints the address of the web UI, refreshes the
proxy pool, scrapes both sites through working proxies, writes the records and
compares them with the contents of the sites. It needs no network, no settings
and no Redis; if redis-server is installed, the demo uses it.

With --keep everything runs until Ctrl-C, even after a failure.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dir", Usage: "keep everything in `DIR`", DefaultText: "a new temporary directory"},
			&cli.BoolFlag{Name: "keep", Usage: "keep the sites, proxies and web UI running until Ctrl-C"},
			jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			dir, err := demoDir(c.String("dir"))
			if err != nil {
				return err
			}
			err = runDemo(env, c, dir)
			if c.String("dir") != "" || c.Bool("keep") {
				return withState(c.Context, err, "the demo was stopped; its data is in %s", dir)
			}
			if c.Context.Err() != nil {
				_ = os.RemoveAll(dir) // leftovers are in a temporary directory
			}
			return withState(c.Context, err, "the demo was stopped and its data removed; start another with muster demo")
		},
	}
}

func runDemo(env environment, c *cli.Context, dir string) error {
	// In the data directory, so that commands with --data-dir find the sites too.
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("create the directory of the demo: %w", err)
	}
	world, err := demo.Start(c.Context, demo.Config{Dir: data})
	if err != nil {
		return err
	}
	defer world.Close()
	loaded := demoConfig(c, world, dir)

	var round *orchestrator.Round
	err = withSystem(env, c, loaded, false, func(ctx context.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
		fmt.Fprintf(display, "demo: started a judge, %d proxies and 2 sites on loopback (Redis: %s)\n", len(world.Proxies), o.Redis().Mode())
		url, stop, err := demoDashboard(ctx, o)
		if err != nil {
			return err
		}
		fmt.Fprintf(display, "web UI: %s\n", url)
		if round, err = o.Scraper.RoundAll(ctx); err == nil {
			err = compare(world, round)
		}
		if !c.Bool("keep") || ctx.Err() != nil {
			return errors.Join(err, stop())
		}
		display.Close()
		if round != nil {
			err = errors.Join(err, printRound(env, round, c.Bool("json")))
			round = nil // printed
		}
		if err != nil {
			fmt.Fprintln(env.stderr, "demo:", err)
		}
		keep(ctx, env, o, world, url)
		return errors.Join(err, stop())
	})
	if round != nil {
		if printErr := printRound(env, round, c.Bool("json")); err == nil {
			err = printErr
		}
	}
	return err
}

// demoDashboard serves the web UI until stop is called, and returns its address once it accepts connections.
func demoDashboard(ctx context.Context, o *orchestrator.Orchestrator) (url string, stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- orchestrator.ServeDashboard(ctx, o.Config(), o.Client, slog.New(slog.DiscardHandler), nil, func(url string) { ready <- url })
	}()
	select {
	case url = <-ready:
		return url, func() error { cancel(); return <-ended }, nil
	case err = <-ended:
		cancel()
		return "", nil, fmt.Errorf("serve the web UI: %w", err)
	}
}

// demoDir creates the directory of the demo. An existing one must be empty: the
// data of an earlier run belongs to other sites.
func demoDir(dir string) (string, error) {
	if dir == "" {
		dir, err := os.MkdirTemp("", "muster-demo-")
		if err != nil {
			return "", fmt.Errorf("create a directory for the demo: %w; choose one with --dir", err)
		}
		return dir, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create the demo directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("read the demo directory: %w", err)
	}
	if len(entries) > 0 {
		return "", usageError{fmt.Errorf("directory %s is not empty; use a new one", dir)}
	}
	return filepath.Abs(dir)
}

// demoConfig returns the settings of a demo: the defaults, for the world. They
// come from no file and no environment, so that it works everywhere.
func demoConfig(c *cli.Context, world *demo.World, dir string) *config.Loaded {
	cfg := config.Default()
	cfg.Log.Level = "warn"
	if c.IsSet("log-level") {
		cfg.Log.Level = c.String("log-level")
	}
	cfg.DataDir = filepath.Join(dir, "data")
	cfg.Redis.Mode = string(redisd.Embedded)
	if _, err := exec.LookPath("redis-server"); err == nil {
		cfg.Redis.Mode = string(redisd.Child)
	}
	cfg.Proxies.Sources = config.SourcesAt(world.Sources...)
	cfg.Proxies.Judges, cfg.Proxies.JudgeKey = []string{world.Judge}, world.JudgeKey
	cfg.Proxies.AllowLocal = true
	// On loopback, a proxy without a response after this time is dead.
	cfg.Proxies.CheckTimeout = 3 * time.Second
	cfg.Sites.Out = filepath.Join(dir, "records")
	cfg.API.Listen = "127.0.0.1:0"
	return &config.Loaded{Config: cfg}
}

// compare returns an error unless the records of a round are exactly the records of the sites.
func compare(world *demo.World, round *orchestrator.Round) error {
	var errs []error
	for _, site := range world.Sites() {
		i := slices.IndexFunc(round.Sites, func(s orchestrator.Scraped) bool { return s.Site == site.Name })
		if i < 0 {
			errs = append(errs, fmt.Errorf("%s was not scraped", site.Name))
			continue
		}
		errs = append(errs, site.CheckFiles(round.Sites[i].Files...))
	}
	return errors.Join(errs...)
}

// keep prints the running services and blocks until ctx is done.
func keep(ctx context.Context, env environment, o *orchestrator.Orchestrator, world *demo.World, url string) {
	for _, site := range world.Sites() {
		fmt.Fprintf(env.stderr, "%-10s %s\n", site.Name, world.URL(site))
	}
	fmt.Fprintf(env.stderr, "%-10s %s\n%-10s %s, password in %s\n%-10s %s\nPress Ctrl-C to stop everything\n", "judge", world.Judge,
		"redis", redisd.Redact(o.Redis().URL()), redisd.PasswordFile(o.Config().DataDir), "web UI", url)
	<-ctx.Done()
}
