package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/internal/atomicfile"
	"muster/orchestrator/api/client"
)

// reportFormats are the formats of a report.
var reportFormats = []string{"text", "json", "csv"}

func jobsReportCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "report", Usage: "print the report of a job", ArgsUsage: "JOB",
		Description: `As text: counts, usage and errors. As JSON: the same, and all items. As CSV: the
items.

    muster jobs report JOB
    muster jobs report JOB --format csv --out items.csv`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Usage: "print a `FORMAT`: text, json or csv", Value: "text"},
			&cli.StringFlag{Name: "out", Usage: "write it to `FILE`", DefaultText: "standard output"},
			jobIDFlag(), serverFlag(), &cli.BoolFlag{Name: "json", Usage: "the same as --format json"},
		},
		Action: func(c *cli.Context) error {
			format := c.String("format")
			if c.Bool("json") {
				if c.IsSet("format") && format != "json" {
					return usageError{fmt.Errorf("--json is --format json; leave --format %s out", format)}
				}
				format = "json"
			}
			if !slices.Contains(reportFormats, format) {
				return usageError{fmt.Errorf("no format %q%s; use %s", format, suggest(format, reportFormats), strings.Join(reportFormats, ", "))}
			}
			return onJob(env, func(ctx context.Context, c *cli.Context, s jobScope, j client.Job) error {
				file := c.String("out")
				if file == "" || file == "-" {
					return s.writeReport(ctx, env.stdout, j, format)
				}
				return atomicfile.Write(file, 0o644, func(w io.Writer) error { return s.writeReport(ctx, w, j, format) })
			})(c)
		},
	}
}

// writeReport writes the report on a job.
func (s jobScope) writeReport(ctx context.Context, w io.Writer, j client.Job, format string) error {
	if j.Scrape != nil && j.Scrape.Summary != nil && format != "csv" {
		if format == "json" {
			return printJSON(w, j.Scrape.Summary)
		}
		_, err := fmt.Fprint(w, j.Scrape.Summary.Text())
		return err
	}
	if format == "csv" {
		if err := hasItems(j); err != nil {
			return err
		}
	}
	return s.api.WriteJobReport(ctx, w, j.ID, format)
}
