package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"muster/internal/atomicfile"
	"muster/orchestrator"
	"muster/orchestrator/backup"
	"muster/orchestrator/job"
	"muster/orchestrator/monitor"
)

func storeExportCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "export", Usage: "write all jobs with their items, documents and events as JSON Lines, for a backup",
		Description: `Each line is an object. Jobs may be at work meanwhile. The secrets of agents,
with which others could sign work in the name of this store, are left out unless
--secrets asks for them. Documents are named, and copied to the folder of
--documents.

    muster store export --out backup.jsonl --documents backup-documents
    muster store export | gzip > backup.jsonl.gz`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "out", Usage: "write to `FILE`, - is standard output", Value: "-"},
			&cli.StringFlag{Name: "kind", Usage: "only jobs of `KIND`: pipeline, scrape, refresh or queue"},
			&cli.StringFlag{Name: "since", Usage: "only jobs that are open, or have changed since `TIME`: as in 2026-01-31T12:00:00Z, or 24h ago"},
			&cli.BoolFlag{Name: "secrets", Usage: "with the secrets of agents"},
			&cli.StringFlag{Name: "documents", Usage: "copy documents to `DIR`"},
			progressFlag(), jsonSummaryFlag(),
		},
		Action: func(c *cli.Context) error {
			opts := backup.ExportOptions{Secrets: c.Bool("secrets"), Documents: c.String("documents"), Jobs: job.Selection{Kind: c.String("kind")}}
			if err := oneOf("kind", c.String("kind"), job.Kinds); err != nil {
				return err
			}
			var err error
			if opts.Jobs.Since, err = pastTime("since", c.String("since"), time.Now()); err != nil {
				return err
			}
			return withJobs(env, c, 0, 0, func(ctx context.Context, o *orchestrator.Orchestrator, _ *monitor.Display) error {
				return exportStore(ctx, env, c, o, opts)
			})
		},
	}
}

// jsonSummaryFlag is for commands whose standard output is not their result.
func jsonSummaryFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print the numbers as JSON, on standard error"}
}

// pastTime reads a time, or how long ago it was.
func pastTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return time.Time{}, usageError{fmt.Errorf("--%s %q: use a time such as %s, or how long ago as in 24h", flag, text, now.Add(-time.Hour).UTC().Format(time.RFC3339))}
	}
	return now.Add(-d), nil
}

func exportStore(ctx context.Context, env environment, c *cli.Context, o *orchestrator.Orchestrator, opts backup.ExportOptions) error {
	var done backup.Exported
	write := func(w io.Writer) (err error) {
		done, err = backup.Export(ctx, o.Backup(), w, opts)
		return err
	}
	var err error
	if file := c.String("out"); file == "-" {
		err = write(env.stdout)
	} else {
		err = atomicfile.Write(file, 0o600, write)
	}
	if errors.Is(err, syscall.EPIPE) {
		return orchestrator.ErrNoReader
	}
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = printJSON(env.stderr, done)
	} else {
		fmt.Fprintf(env.stderr, "Exported %d jobs with %d items, %d agents, %d pipelines, %d paused sites\n", done.Jobs, done.Items, done.Agents, done.Pipelines, done.Sites)
		if opts.Documents != "" {
			fmt.Fprintf(env.stderr, "Copied %d documents; %d were deleted before\n", done.Documents, done.Missing)
		}
	}
	if len(done.Broken) > 0 {
		return fmt.Errorf("not exported, because they cannot be read:\n%s", strings.Join(done.Broken, "\n"))
	}
	return err
}

func storeImportCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "import", Usage: "add the contents of an export to the store", ArgsUsage: "FILE",
		Description: `FILE may be - for standard input. Jobs that had ended come back as they were.
Others continue where their items are, and what agents worked on when the export
was made is done again. What exists stays as it is. An import that was stopped
can be run again.

    muster store import backup.jsonl --documents backup-documents
    gunzip < backup.jsonl.gz | muster store import -`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "replace", Usage: "replace jobs that exist and have ended, and the files of pipelines"},
			&cli.StringFlag{Name: "documents", Usage: "read documents from `DIR`"},
			progressFlag(), jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			return importStore(env, c, backup.ImportOptions{Replace: c.Bool("replace"), Documents: c.String("documents")})
		},
	}
}

func storeSeedCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "seed", Usage: "create the jobs of a file, once", ArgsUsage: "FILE",
		Description: `FILE has the format of an export, with the jobs to create as lines of kind
request. A job whose id exists is left alone, so that each start may seed.

    {"kind":"muster-export","format":1}
    {"kind":"request","id":"welcome","prompt":"Summarize our handbook"}
    {"kind":"request","id":"nightly","prompt":"Check all contracts","cron":"0 3 * * *"}

    muster store seed seed.jsonl`,
		Flags:  []cli.Flag{progressFlag(), jsonFlag()},
		Action: func(c *cli.Context) error { return importStore(env, c, backup.ImportOptions{}) },
	}
}

// importStore imports the file that is the argument of a command.
func importStore(env environment, c *cli.Context, opts backup.ImportOptions) error {
	if err := arguments(c, 1, 1); err != nil {
		return err
	}
	from, file := env.stdin, c.Args().First()
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("import: %w", err)
		}
		defer f.Close()
		from = f
	}
	return withJobs(env.creating(), c, 1, 1, func(ctx context.Context, o *orchestrator.Orchestrator, _ *monitor.Display) error {
		opts.Put = o.Documents.Put
		done, err := backup.Import(ctx, o.Backup(), from, opts)
		if err != nil {
			if done.Jobs+done.Requests > 0 {
				err = fmt.Errorf("%w; the %d jobs before it are there, and running it again continues", err, done.Jobs+done.Requests)
			}
			return err
		}
		if c.Bool("json") {
			err = printJSON(env.stdout, done)
		} else {
			err = printImported(env.stdout, done)
		}
		if err == nil && len(done.Refused) > 0 {
			err = fmt.Errorf("not restored:\n%s", strings.Join(done.Refused, "\n"))
		}
		return err
	})
}

func printImported(w io.Writer, done backup.Imported) error {
	if done.Requests > 0 {
		fmt.Fprintf(w, "Created %d jobs\n", done.Requests)
	}
	if done.Jobs+done.Agents+done.Pipelines+done.Sites > 0 {
		fmt.Fprintf(w, "Restored %d jobs with %d items, %d agents, %d pipelines, %d paused sites\n", done.Jobs, done.Items, done.Agents, done.Pipelines, done.Sites)
	}
	if done.Documents > 0 {
		fmt.Fprintf(w, "Stored %d documents\n", done.Documents)
	}
	if done.Missing > 0 {
		fmt.Fprintf(w, "%d documents of these jobs are not stored; give their folder with --documents, or copy the folder of documents\n", done.Missing)
	}
	_, err := fmt.Fprintf(w, "%d exist and were left as they are\n", done.Kept)
	return err
}
