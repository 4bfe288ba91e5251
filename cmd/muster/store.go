package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"muster/internal/schema"
	"muster/orchestrator"
	"muster/orchestrator/monitor"
)

func storeCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "store",
		Usage: "manage stored data: migrate, seed",
		Description: `    muster store migrate --dry-run
    muster store seed seed.jsonl

Exit codes: 0 success, 1 failure, 2 wrong usage.`,
		Subcommands: []*cli.Command{
			{
				Name: "migrate", Usage: "migrate the store to the schema of this program",
				Description: `Every start does so automatically. Stop all processes of the older release first.

    muster store migrate --dry-run`,
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "dry-run", Usage: "print the schema and the changes without making them"},
					progressFlag(), jsonFlag(),
				},
				Action: onStore(env, migrateStore),
			},
			{
				Name: "seed", Usage: "create the jobs of a file, once", ArgsUsage: "FILE",
				Description: `FILE has one job per line, as JSON with the fields of POST /jobs and an id; - is
standard input. A job whose id exists is skipped, so every start may run the
command.

    {"id":"welcome","prompt":"Summarize our handbook"}
    {"id":"nightly","prompt":"Check all contracts","cron":"0 3 * * *"}

    muster store seed seed.jsonl`,
				Flags:  []cli.Flag{progressFlag(), jsonFlag()},
				Action: func(c *cli.Context) error { return seedStore(env, c) },
			},
		},
	}
}

// onStore returns the action of a command on a store of any schema.
func onStore(env environment, fn func(context.Context, environment, *cli.Context, *schema.Store) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := arguments(c, 0, 0); err != nil {
			return err
		}
		loaded, err := loadConfig(env, c)
		if err != nil {
			return err
		}
		if _, ok := flagValue(c, "log-level"); !ok {
			loaded.Log.Level = "warn"
		}
		return withOptions(env, c, loaded, orchestrator.Options{Reuse: true, AnyStore: true},
			func(ctx context.Context, o *orchestrator.Orchestrator, _ *monitor.Display) error {
				return fn(ctx, env, c, orchestrator.NewStore(o.Client, nil))
			})
	}
}

// printStoreStatus prints the status of the store.
func printStoreStatus(env environment, st schema.Status) {
	w := env.stdout
	fmt.Fprintf(w, "Schema: %d; this program knows %d\n", st.Schema, st.Known)
	if st.Locked != "" {
		fmt.Fprintf(w, "Locked: %s\n", st.Locked)
	}
	for _, step := range st.Pending {
		fmt.Fprintf(w, "Migration %d is missing: %s (%d)\n", step.Version, step.Name, step.Changes)
	}
}

func migrateStore(ctx context.Context, env environment, c *cli.Context, s *schema.Store) error {
	status, err := s.Status(ctx)
	if err != nil {
		return err
	}
	dry := c.Bool("dry-run")
	if !dry {
		if err := s.Open(ctx); err != nil {
			return err
		}
	}
	switch {
	case c.Bool("json"):
		err = printJSON(env.stdout, status)
	case dry:
		printStoreStatus(env, status)
	default:
		for _, step := range status.Pending {
			fmt.Fprintf(env.stdout, "Migration %d: %s (%d)\n", step.Version, step.Name, step.Changes)
		}
		fmt.Fprintf(env.stdout, "The store has schema %d\n", s.Schema())
	}
	if status.Newer() {
		err = errors.Join(&schema.NewerError{Have: status.Schema, Know: status.Known}, err)
	}
	return err
}

func seedStore(env environment, c *cli.Context) error {
	if err := arguments(c, 1, 1); err != nil {
		return err
	}
	from := env.stdin
	if file := c.Args().First(); file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("seed: %w", err)
		}
		defer f.Close()
		from = f
	}
	loaded, err := loadConfig(env, c)
	if err != nil {
		return err
	}
	return withSystem(env.creating(), c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, _ *monitor.Display) error {
		done, err := o.Jobs.Seed(ctx, from)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(env.stdout, done)
		}
		_, err = fmt.Fprintf(env.stdout, "Created %d jobs; %d existed\n", done.Created, done.Kept)
		return err
	})
}
