package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
	"muster/tasks"
	"muster/tasks/api"
	"muster/tasks/tasktype"
)

func workersCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "workers",
		Usage: "ping and list workers",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "ping and list the workers; exit 1 if one does not reply or none is running",
				Flags: []cli.Flag{
					&cli.DurationFlag{Name: "timeout", Usage: "wait `D` for replies, up to 1m", Value: 2 * time.Second},
					&cli.BoolFlag{Name: "tasks", Usage: "list the tasks that the workers have handlers for instead"},
					serverFlag(), jsonFlag(),
				},
				Action: onAPI(env, 0, 0, func(ctx context.Context, c *cli.Context, s *client.Client) error { return listWorkers(ctx, env, c, s) }),
			},
		},
	}
}

func listWorkers(ctx context.Context, env environment, c *cli.Context, s *client.Client) error {
	if c.Bool("tasks") {
		list, err := client.All(ctx, s, client.ListWorkers, api.Ping{}, 0)
		if err != nil {
			return err
		}
		return showPage(env, c, handledTasks(list), "No workers are running", []string{"TASK", "WORKERS", "QUEUES"}, func(h handledTask) []string {
			return []string{h.Task, strconv.Itoa(h.Workers), strings.Join(h.Queues, " ")}
		})
	}
	timeout := c.Duration("timeout")
	if timeout <= 0 {
		return usageError{fmt.Errorf("--timeout %s must be more than 0", timeout)}
	}
	list, err := client.All(ctx, s, client.ListWorkers, api.Ping{For: timeout.String()}, 0)
	if err != nil {
		return err
	}
	var silent []string
	err = showPage(env, c, list, "No workers found", []string{"WORKER", "REPLY", "HOST", "PID", "ACTIVE", "CONCURRENCY", "UP", "QUEUES"}, func(w api.Worker) []string {
		after := "none"
		if w.Replied != nil && *w.Replied {
			after = w.After.Round(10 * time.Microsecond).String()
		}
		return []string{w.Name, after, w.Host, strconv.Itoa(w.PID), strconv.Itoa(w.Active), strconv.Itoa(w.Concurrency),
			elapsed(w.Started), strings.Join(slices.Sorted(maps.Keys(w.Queues)), " ")}
	}, "HOST", "PID")
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
		return fmt.Errorf("no reply from %s within %s: it is stopped, has no connection to Redis, or has just died", strings.Join(silent, ", "), timeout)
	}
	return nil
}

// handledTask is a task that workers have handlers for.
type handledTask struct {
	Task    string   `json:"task"`
	Workers int      `json:"workers"`
	Queues  []string `json:"queues"`
}

// handledTasks returns the tasks of workers by name.
func handledTasks(workers []api.Worker) []handledTask {
	by := map[string]*handledTask{}
	for _, w := range workers {
		for _, name := range w.Tasks {
			h := by[name]
			if h == nil {
				h = &handledTask{Task: name}
				by[name] = h
			}
			h.Workers++
			h.Queues = slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(h.Queues, maps.Keys(w.Queues)))))
		}
	}
	list := []handledTask{}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		list = append(list, *by[name])
	}
	return list
}

func queuesCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "queues",
		Usage: "list the queues of workers",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list queues with their ready and running tasks and the time since a task was taken",
				Flags: []cli.Flag{serverFlag(), jsonFlag()},
				Action: listAll(env, client.ListTaskQueues, "No queues found", []string{"QUEUE", "PENDING", "ACTIVE", "STALLED", "ARCHIVED", "PAUSED", "NO HANDLER"}, func(q tasktype.Queue) []string {
					return []string{q.Name, fmt.Sprint(q.Pending), fmt.Sprint(q.Active), q.Latency.Round(time.Millisecond).String(), fmt.Sprint(q.Archived), fmt.Sprint(q.Paused), q.UnhandledTasks()}
				}),
			},
		},
	}
}

func limitsCommand(env environment) *cli.Command {
	key := func() cli.Flag {
		return &cli.StringFlag{Name: "key", Value: tasks.AllKeys, Usage: "change it for this `KEY` only; * for all"}
	}
	change := func(use func(c *api.LimitChange, arg string) error) cli.ActionFunc {
		return onAPI(env, 2, 2, func(ctx context.Context, c *cli.Context, s *client.Client) error {
			in := api.LimitChange{Limit: c.Args().Get(0)}
			in.Body.Key = c.String("key")
			if err := use(&in, c.Args().Get(1)); err != nil {
				return usageError{err}
			}
			return client.ChangeLimit.Do(ctx, s, in)
		})
	}
	return &cli.Command{
		Name:  "limits",
		Usage: "list, set and hold the limits of tasks",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list the limits that tasks wait for or that were changed, by key", ArgsUsage: "[LIMIT]",
				Flags: []cli.Flag{serverFlag(), jsonFlag()},
				Action: onAPI(env, 0, 1, func(ctx context.Context, c *cli.Context, s *client.Client) error {
					list, err := client.All(ctx, s, client.ListLimits, api.LimitFilter{Limit: c.Args().First()}, 0)
					if err != nil {
						return err
					}
					return showPage(env, c, list, "No limits found", []string{"LIMIT", "KEY", "ALLOWS", "RUNNING", "WAITING", "HELD FOR"}, limitRow)
				}),
			},
			{
				Name: "set", Usage: "set what a limit allows from now on, or reset it to what the programs declare", ArgsUsage: "LIMIT N|reset",
				Flags: []cli.Flag{key(), serverFlag()},
				Action: change(func(in *api.LimitChange, arg string) error {
					if in.Body.Reset = arg == "reset"; in.Body.Reset {
						return nil
					}
					n, err := strconv.Atoi(arg)
					if err != nil || n < 0 {
						return fmt.Errorf("limits set: number %q: give 0 or more, or reset", arg)
					}
					in.Body.N = &n
					return nil
				}),
			},
			{
				Name: "hold", Usage: "let nothing under a limit start for a time; 0 ends that", ArgsUsage: "LIMIT DURATION",
				Flags: []cli.Flag{key(), serverFlag()},
				Action: change(func(in *api.LimitChange, arg string) error {
					d, err := time.ParseDuration(arg)
					if err != nil || d < 0 {
						return fmt.Errorf("limits hold: duration %q: give one such as 30s or 2h, or 0", arg)
					}
					until := time.Now().Add(d)
					in.Body.HoldUntil = &until
					return nil
				}),
			},
		},
	}
}

func limitRow(l tasktype.Limit) []string {
	allows, held := fmt.Sprint(l.N), "-"
	switch {
	case l.N < 0:
		allows = "-"
	case l.Per > 0:
		allows += " per " + l.Per.String()
	}
	if l.Changed {
		allows += " (set)"
	}
	if !l.Held.IsZero() {
		held = time.Until(l.Held).Round(time.Second).String()
	}
	return []string{l.Limit, l.Key, allows, fmt.Sprint(l.Running), fmt.Sprint(l.Waiting), held}
}

func schedulesCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "schedules",
		Usage: "list, create, trigger and delete schedules of tasks",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list schedules with their last and next run", ArgsUsage: "[PREFIX]",
				Flags: []cli.Flag{&cli.StringSliceFlag{Name: "label", Usage: "only schedules whose workflows have the label `KEY=VALUE`; may be repeated"}, serverFlag(), jsonFlag()},
				Action: onAPI(env, 0, 1, func(ctx context.Context, c *cli.Context, s *client.Client) error {
					list, err := client.All(ctx, s, client.ListSchedules, api.ScheduleFilter{Prefix: c.Args().First(), Labels: c.StringSlice("label")}, 0)
					if err != nil {
						return err
					}
					return showPage(env, c, list, "No schedules found", []string{"SCHEDULE", "SPEC", "TASKS", "NEXT IN", "LAST", "WORKFLOW", "SENT", "MISSED", "ERROR"}, scheduleRow, "WORKFLOW")
				}),
			},
			{
				Name: "put", Usage: "create or change a schedule that sends a task", ArgsUsage: "SCHEDULE SPEC TASK INPUT",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "queue", Usage: "send it to the queue `NAME`", Value: "default"},
					&cli.StringSliceFlag{Name: "label", Usage: "add the label `KEY=VALUE` to the workflows; may be repeated"},
					&cli.StringFlag{Name: "overlap", Usage: "while an earlier workflow is running: skip, queue, replace or cancel (`POLICY`)", DefaultText: "both run"},
					&cli.IntFlag{Name: "catch-up", Usage: "send up to `N` runs that were due while no worker was running"},
					&cli.DurationFlag{Name: "jitter", Usage: "delay each run by a random time up to `D`"},
					&cli.BoolFlag{Name: "force", Usage: "also if no worker has a handler for the task"}, serverFlag(),
				},
				Action: putSchedule(env),
			},
			{
				Name: "trigger", Usage: "send a run of a schedule now, or the runs of a past period", ArgsUsage: "SCHEDULE",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "from", Usage: "send the runs that were due from `TIME` on, as in 2027-01-31T00:00:00Z"},
					&cli.StringFlag{Name: "to", Usage: "with --from, the last due time is `TIME`", DefaultText: "now"}, serverFlag(),
				},
				Action: triggerSchedule(env),
			},
			{
				Name: "delete", Usage: "delete a schedule; its workflows continue", ArgsUsage: "SCHEDULE", Flags: []cli.Flag{serverFlag()},
				Action: onAPI(env, 1, 1, func(ctx context.Context, c *cli.Context, s *client.Client) error {
					return done(env, client.DeleteSchedule.Do(ctx, s, api.ScheduleReference{Name: c.Args().First()}), "deleted: %s", c.Args().First())
				}),
			},
		},
	}
}

func putSchedule(env environment) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := arguments(c, 4, 4); err != nil {
			return err
		}
		input, err := valueOf(env, "input", c.Args().Get(3))
		if err != nil {
			return err
		}
		put := api.SchedulePut{ScheduleReference: api.ScheduleReference{Name: c.Args().First()}, Body: api.NewSchedule{Spec: c.Args().Get(1), CatchUp: c.Int("catch-up"),
			Jitter: c.Duration("jitter").String(), Send: api.NewWorkflow{Task: c.Args().Get(2), Input: input, Queue: c.String("queue"), Overlap: c.String("overlap")}}}
		if put.Body.Send.Labels, err = tasktype.ParseLabels(c.StringSlice("label")); err != nil {
			return usageError{err}
		}
		return onAPI(env, 4, 4, func(ctx context.Context, c *cli.Context, s *client.Client) error {
			if err := known(ctx, env, s, put.Body.Send.Task, put.Body.Send.Queue); err != nil && !c.Bool("force") {
				return fmt.Errorf("%w, or put it with --force", err)
			}
			return done(env, client.PutSchedule.Do(ctx, s, put), "put: %s", put.Name)
		})(c)
	}
}

func triggerSchedule(env environment) cli.ActionFunc {
	return func(c *cli.Context) error {
		b := api.Backfill{To: time.Now()}
		for name, at := range map[string]*time.Time{"from": &b.From, "to": &b.To} {
			if text := c.String(name); text != "" {
				var err error
				if *at, err = time.Parse(time.RFC3339, text); err != nil {
					return usageError{fmt.Errorf("--%s %q: use a time such as 2027-01-31T15:04:05Z", name, text)}
				}
			}
		}
		if c.IsSet("to") && !c.IsSet("from") {
			return usageError{errors.New("schedules trigger: --to needs --from")}
		}
		return onAPI(env, 1, 1, func(ctx context.Context, c *cli.Context, s *client.Client) error {
			schedule := api.ScheduleReference{Name: c.Args().First()}
			if b.From.IsZero() {
				return done(env, client.TriggerSchedule.Do(ctx, s, api.ScheduleChange{ScheduleReference: schedule}), "triggered: %s", schedule.Name)
			}
			sent, err := client.BackfillSchedule.Call(ctx, s, api.ScheduleBackfill{ScheduleReference: schedule, Body: b})
			return done(env, err, "triggered: %s, %d runs", schedule.Name, sent.Ticks)
		})(c)
	}
}

func scheduleRow(e api.Schedule) []string {
	next := "paused"
	if e.PausedAt.IsZero() {
		next = until(e.NextAt)
	}
	return []string{e.Name, e.Spec, e.Tasks, next, age(e.LastAt), orDash(e.Workflow), fmt.Sprint(e.Sent), fmt.Sprint(e.Missed), orDash(e.Error)}
}
