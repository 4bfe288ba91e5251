package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/internal/atomicfile"
	"muster/jobs"
	"muster/jobs/report"
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
			jobIDFlag(), progressFlag(), &cli.BoolFlag{Name: "json", Usage: "the same as --format json"},
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
			return onJob(env, func(ctx context.Context, c *cli.Context, s jobScope, j jobs.Job) error {
				file := c.String("out")
				if file == "" || file == "-" {
					return s.writeReport(ctx, env.stdout, j, format)
				}
				return atomicfile.Write(file, 0o644, func(w io.Writer) error { return s.writeReport(ctx, w, j, format) })
			})(c)
		},
	}
}

// reportOfJob is the JSON of jobs report, which is written as it is read.
type reportOfJob struct {
	Items []jobs.Item `json:"item_list"`
	report.Summary
}

// writeReport writes the report on a job.
func (s jobScope) writeReport(ctx context.Context, w io.Writer, j jobs.Job, format string) error {
	if j.Kind == jobs.KindScrape && format != "csv" {
		scrape, err := s.system.Sites.Job(ctx, j.ID)
		if err == nil && scrape.Summary != nil {
			if format == "json" {
				return printJSON(w, scrape.Summary)
			}
			_, err = fmt.Fprint(w, scrape.Summary.Text())
			return err
		}
	}
	switch format {
	case "json":
		return report.WriteJSON(ctx, w, s.jobs, j.ID)
	case "csv":
		if err := hasItems(j); err != nil {
			return err
		}
		return report.WriteCSV(ctx, w, s.jobs, j.ID)
	}
	summary, err := report.Summarize(ctx, s.jobs, j.ID)
	if err != nil {
		return err
	}
	return summary.Text(w)
}
