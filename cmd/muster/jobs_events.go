package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/jobs"
	"muster/orchestrator/api/client"
	"muster/orchestrator/event"
)

// allJobs is the argument of jobs events that selects all jobs.
const allJobs = "all"

func jobsEventsCommand(env environment) *cli.Command {
	return apiCommand(env, &cli.Command{
		Name: "events", Usage: "list the events of a job, or of all jobs", ArgsUsage: "JOB|all",
		Description: `With --follow it continues until it is interrupted or the job has ended. For all
jobs, --follow shows new events only; --after sets another start.

    muster jobs events JOB
    muster jobs events all --follow --json`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "continue with new events"},
			&cli.StringFlag{Name: "after", Usage: "only events after the one of `ID`", DefaultText: "the oldest that is kept"},
			&cli.BoolFlag{Name: "json", Usage: "print each event as a line of JSON"},
		},
	}, func(s scope, in client.JobPath) error {
		var j client.Job
		if in.ID != allJobs {
			var err error
			if j, err = s.find(in.ID); err != nil {
				return err
			}
		}
		after := s.String("after")
		if after == "" && j.ID == "" && s.Bool("follow") {
			after = "$"
		}
		return s.events(j, after, s.Bool("follow"), s.Bool("json"))
	})
}

// errJobEnded stops the events of a job.
var errJobEnded = errors.New("the job has ended")

// events prints the events of a job, or of all jobs if it has no ID: the stored ones, and with follow also new ones until
// the job has ended.
func (s scope) events(j client.Job, after string, follow, asJSON bool) error {
	print := func(e event.Event, gap bool) error {
		if gap {
			fmt.Fprintln(s.env.stderr, "muster: earlier events have been deleted")
		}
		after = e.ID
		return s.printEvent(e, j.ID == "", asJSON)
	}
	if j.ID == "" {
		return s.api.Events(s.ctx, "", after, follow, print)
	}
	for {
		if err := s.api.Events(s.ctx, j.ID, after, false, print); err != nil || !follow {
			return err
		}
		now, err := s.find(j.ID)
		if err != nil {
			return err
		}
		if !now.Status.Terminal() {
			break
		}
		follow = false // an event may have come after the first call
	}
	err := s.api.Events(s.ctx, j.ID, after, true, func(e event.Event, gap bool) error {
		if err := print(e, gap); err != nil || !endedBy(e) {
			return err
		}
		return errJobEnded
	})
	if errors.Is(err, errJobEnded) {
		return nil
	}
	return err
}

// endedBy reports whether a job has ended with an event.
func endedBy(e event.Event) bool {
	switch e.Type {
	case "job." + string(jobs.Completed), "job." + string(jobs.Failed), "job." + string(jobs.Cancelled):
		return true
	}
	return false
}

func (s scope) printEvent(e event.Event, withJob, asJSON bool) error {
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
