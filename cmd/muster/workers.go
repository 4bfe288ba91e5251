package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
	"muster/tasks/api"
	"muster/tasks/tasktype"
)

func workersCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "workers",
		Usage: "ping and list workers",
		Subcommands: []*cli.Command{
			apiCommand(env, &cli.Command{
				Name: "list", Usage: "ping and list the workers; exit 1 if one does not reply or none is running",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "tasks", Usage: "list the tasks that each worker has handlers for instead"}, jsonFlag(),
				},
			}, listWorkers),
		},
	}
}

func listWorkers(s scope, in api.Ping) error {
	if s.Bool("tasks") {
		in.For = ""
	}
	list, err := client.All(s.ctx, s.api, client.ListWorkers, in, 0)
	if err != nil {
		return err
	}
	if s.Bool("tasks") {
		return showPage(s, list, "No workers are running", "WORKER QUEUES TASKS", func(w api.Worker) []any {
			return []any{w.Name, slices.Sorted(maps.Keys(w.Queues)), w.Tasks}
		})
	}
	var silent []string
	err = showPage(s, list, "No workers found", "WORKER REPLY ACTIVE CONCURRENCY UP QUEUES HOST PID", func(w api.Worker) []any {
		after := "none"
		if w.Replied != nil && *w.Replied {
			after = w.After.Round(10 * time.Microsecond).String()
		}
		return []any{w.Name, after, w.Active, w.Concurrency, elapsed(w.Started), strings.Join(slices.Sorted(maps.Keys(w.Queues)), " "), w.Host, w.PID}
	})
	for _, w := range list {
		if w.Replied == nil || !*w.Replied {
			silent = append(silent, w.Name)
		}
	}
	switch {
	case err != nil:
		return err
	case len(list) == 0:
		return errors.New("no workers are running; start one with muster worker or muster start")
	case len(silent) > 0:
		return fmt.Errorf("no reply from %s within %s: it is stopped, has no connection to Redis, or has just died", strings.Join(silent, ", "), in.For)
	}
	return nil
}

func queuesCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "queues",
		Usage: "list the queues of workers",
		Subcommands: []*cli.Command{
			list(env, &cli.Command{Name: "list", Usage: "list queues with their ready and running tasks and the time since a task was taken"},
				client.ListTaskQueues, "No queues found", "QUEUE PENDING ACTIVE STALLED ARCHIVED PAUSED NO_HANDLER", func(q tasktype.Queue) []any {
					return []any{q.Name, q.Pending, q.Active, q.Latency, q.Archived, q.Paused, q.UnhandledTasks()}
				}),
		},
	}
}

func limitsCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "limits",
		Usage: "list, set and hold the limits of tasks",
		Subcommands: []*cli.Command{
			list(env, &cli.Command{Name: "list", Usage: "list the limits that tasks wait for or that were changed, by key", ArgsUsage: "[LIMIT]"},
				client.ListLimits, "No limits found", "LIMIT KEY ALLOWS RUNNING WAITING HELD_FOR", limitRow),
			apiCommand(env, &cli.Command{Name: "set", Usage: "set what a limit allows from now on, or reset it to what the programs declare", ArgsUsage: "LIMIT N|reset"},
				func(s scope, in api.LimitChange) error {
					arg := s.Args().Get(1)
					if in.Body.Reset = arg == "reset"; !in.Body.Reset {
						n, err := strconv.Atoi(arg)
						if err != nil || n < 0 {
							return usageError{fmt.Errorf("limits set: number %q: give 0 or more, or reset", arg)}
						}
						in.Body.N = &n
					}
					return done(s.env, client.ChangeLimit.Do(s.ctx, s.api, in), "set: %s", in.Limit)
				}),
			apiCommand(env, &cli.Command{Name: "hold", Usage: "let nothing under a limit start for a time; 0 ends that", ArgsUsage: "LIMIT DURATION"},
				func(s scope, in api.LimitChange) error {
					until, err := timeOf("DURATION", s.Args().Get(1), time.Now())
					if err != nil {
						return err
					}
					in.Body.HoldUntil = &until
					return done(s.env, client.ChangeLimit.Do(s.ctx, s.api, in), "held: %s", in.Limit)
				}),
		},
	}
}

func limitRow(l tasktype.Limit) []any {
	allows := fmt.Sprint(l.N)
	switch {
	case l.N < 0:
		allows = "-"
	case l.Per > 0:
		allows += " per " + l.Per.String()
	}
	if l.Changed {
		allows += " (set)"
	}
	return []any{l.Limit, l.Key, allows, l.Running, l.Waiting, until(l.Held)}
}

func schedulesCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "schedules",
		Usage: "list, create, trigger and delete schedules of tasks",
		Subcommands: []*cli.Command{
			list(env, &cli.Command{Name: "list", Usage: "list schedules with their last and next run", ArgsUsage: "[PREFIX]"},
				client.ListSchedules, "No schedules found", "SCHEDULE SPEC TASKS NEXT_IN LAST SENT MISSED ERROR WORKFLOW", scheduleRow),
			apiCommand(env, &cli.Command{
				Name: "put", Usage: "create or change a schedule that sends a task", ArgsUsage: "SCHEDULE SPEC TASK INPUT",
				Flags: []cli.Flag{
					programFlag("queue"),
					&cli.StringSliceFlag{Name: "label", Usage: "add the label `KEY=VALUE` to the workflows; may be repeated"},
					&cli.StringFlag{Name: "overlap", Usage: "while an earlier workflow is running: skip, queue, replace or cancel (`POLICY`)", DefaultText: "both run"},
					&cli.IntFlag{Name: "catch-up", Usage: "send up to `N` runs that were due while no worker was running"},
					&cli.DurationFlag{Name: "jitter", Usage: "delay each run by a random time up to `D`"}, forceFlag(),
				},
			}, putSchedule),
			apiCommand(env, &cli.Command{
				Name: "trigger", Usage: "send a run of a schedule now, or the runs of a past period", ArgsUsage: "SCHEDULE", Before: requires("from", "to"),
			}, triggerSchedule),
			act(env, &cli.Command{Name: "delete", Usage: "delete a schedule; its workflows continue", ArgsUsage: "SCHEDULE"},
				client.DeleteSchedule, func(in api.ScheduleReference, _ client.None) string { return "deleted: " + in.Name }),
		},
	}
}

func putSchedule(s scope, in api.ScheduleReference) error {
	input, err := valueOf(s.env, "input", s.Args().Get(3))
	if err != nil {
		return err
	}
	put := api.ToSchedule[api.NewSchedule]{ScheduleReference: in, Body: api.NewSchedule{Spec: s.Args().Get(1), CatchUp: s.Int("catch-up"),
		Jitter: s.Duration("jitter").String(), Send: api.NewWorkflow{Task: s.Args().Get(2), Input: input, Queue: s.String("queue"), Overlap: s.String("overlap")}}}
	if put.Body.Send.Labels, err = tasktype.ParseLabels(s.StringSlice("label")); err != nil {
		return usageError{err}
	}
	if err := s.known(put.Body.Send.Task, put.Body.Send.Queue); err != nil && !s.Bool("force") {
		return fmt.Errorf("%w, or put it with --force", err)
	}
	return done(s.env, client.PutSchedule.Do(s.ctx, s.api, put), "put: %s", put.Name)
}

func triggerSchedule(s scope, in api.ToSchedule[api.Backfill]) error {
	if in.Body.To.IsZero() {
		in.Body.To = time.Now()
	}
	if in.Body.From.IsZero() {
		sent, err := client.TriggerSchedule.Call(s.ctx, s.api, api.ScheduleChange{ScheduleReference: in.ScheduleReference})
		return done(s.env, err, "triggered: %s, workflow %s", in.Name, sent.ID)
	}
	sent, err := client.BackfillSchedule.Call(s.ctx, s.api, in)
	return done(s.env, err, "triggered: %s, %d runs", in.Name, sent.Ticks)
}

func scheduleRow(e api.Schedule) []any {
	next := "paused"
	if e.PausedAt.IsZero() {
		next = until(e.NextAt)
	}
	return []any{e.Name, e.Spec, e.Tasks, next, e.LastAt, e.Sent, e.Missed, e.Error, e.Workflow}
}
