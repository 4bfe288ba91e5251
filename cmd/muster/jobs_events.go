package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/jobs"
	"muster/orchestrator/event"
)

// allJobs is the argument of jobs events that selects all jobs.
const allJobs = "all"

// How many events are read at a time, and how long a read waits for the first.
const (
	eventBatch = 500
	eventBlock = 10 * time.Second
)

func jobsEventsCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "events", Usage: "list the events of a job, or of all jobs", ArgsUsage: "JOB|all",
		Description: `With --follow it continues until it is interrupted or the job has ended. For all
jobs, --follow shows new events only; --after sets another start.

    muster jobs events JOB
    muster jobs events all --follow --json`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "continue with new events"},
			&cli.StringFlag{Name: "after", Usage: "only events after the one of `ID`", DefaultText: "the oldest that is kept"},
			progressFlag(), &cli.BoolFlag{Name: "json", Usage: "print each event as a line of JSON"},
		},
		Action: onJobs(env, 1, 1, func(ctx context.Context, c *cli.Context, s jobScope) error {
			var j jobs.Job
			if name := c.Args().First(); name != allJobs {
				var err error
				if j, err = s.find(ctx, name); err != nil {
					return err
				}
			}
			after := c.String("after")
			if after == "" && (j.ID != "" || !c.Bool("follow")) {
				after = "0"
			}
			return s.events(ctx, event.New(s.system.Client.Redis()), j, after, c.Bool("follow"), c.Bool("json"))
		}),
	}
}

// eventReader is the part of event.Stream that jobs events uses.
type eventReader interface {
	Read(ctx context.Context, jobID, after string, limit int, block time.Duration) (event.Batch, error)
}

// events prints the events of a job, or of all jobs if it has no id.
func (s jobScope) events(ctx context.Context, from eventReader, j jobs.Job, after string, follow, asJSON bool) error {
	block := time.Duration(0)
	over := j.Status.Terminal()
	for {
		if follow && !over {
			block = eventBlock
		} else {
			block = 0
		}
		batch, err := from.Read(ctx, j.ID, after, eventBatch, block)
		if errors.As(err, new(*event.IDError)) {
			return usageError{fmt.Errorf("--after: %w", err)}
		}
		if err != nil {
			return err
		}
		if batch.Gap {
			fmt.Fprintln(s.env.stderr, "muster: earlier events have been deleted")
		}
		for _, e := range batch.Events {
			if err := s.printEvent(e, j.ID == "", asJSON); err != nil {
				return err
			}
			if j.ID != "" && endedBy(e) {
				over = true
			}
		}
		after = batch.Next
		if len(batch.Events) == 0 && (!follow || over) {
			return nil
		}
	}
}

// endedBy reports whether a job has ended with an event.
func endedBy(e event.Event) bool {
	switch e.Type {
	case "job." + string(jobs.Completed), "job." + string(jobs.Failed), "job." + string(jobs.Cancelled):
		return true
	}
	return false
}

func (s jobScope) printEvent(e event.Event, withJob, asJSON bool) error {
	if asJSON {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(s.env.stdout, "%s\n", line)
		return err
	}
	text := fmt.Sprintf("%s  %-20s", e.Time.Local().Format("01-02 15:04:05"), e.Type)
	if withJob {
		text += "  " + e.Job
	}
	if len(e.Data) > 0 {
		data := onLine(e.Data)
		if !withJob { // with the job, no data fits
			data = cell(data, max(20, 78-len(text)))
		}
		text += "  " + data
	}
	_, err := fmt.Fprintln(s.env.stdout, strings.TrimRight(text, " "))
	return err
}
