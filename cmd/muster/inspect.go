package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/tasks"
)

func inspectCommand(env environment) *cli.Command {
	leaf := func(name, usage, args string, n int, flags []cli.Flag, fn func(context.Context, *cli.Context, fleet) error) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: args, Flags: append(flags, jsonFlag()), Action: withClient(env, n, n, fn)}
	}
	return &cli.Command{
		Name:  "inspect",
		Usage: "look at a running fleet",
		Subcommands: []*cli.Command{
			leaf("ping", "list the workers that answer; exit 1 when there is none", "", 0, nil, func(ctx context.Context, c *cli.Context, client fleet) error {
				workers, err := client.Workers(ctx)
				if err != nil {
					return err
				}
				if err := show(env, c, workers, []string{"WORKER", "HOST", "PID", "ACTIVE", "CONCURRENCY", "QUEUES", "UP"}, func(w tasks.WorkerInfo) []string {
					return []string{w.Name, w.Host, strconv.Itoa(w.PID), strconv.Itoa(w.Active), strconv.Itoa(w.Concurrency),
						strings.Join(slices.Sorted(maps.Keys(w.Queues)), " "), ago(w.Started)}
				}); err != nil {
					return err
				}
				if len(workers) == 0 {
					return errors.New("no worker answers; start one with muster worker or muster start")
				}
				return nil
			}),
			leaf("registered", "list the tasks that the workers have handlers for", "", 0, nil, func(ctx context.Context, c *cli.Context, client fleet) error {
				workers, err := client.Workers(ctx)
				if err != nil {
					return err
				}
				names := map[string]int{}
				for _, w := range workers {
					for _, name := range w.Tasks {
						names[name]++
					}
				}
				type row struct {
					Task    string `json:"task"`
					Workers int    `json:"workers"`
				}
				var rows []row
				for _, name := range slices.Sorted(maps.Keys(names)) {
					rows = append(rows, row{name, names[name]})
				}
				return show(env, c, rows, []string{"TASK", "WORKERS"}, func(r row) []string { return []string{r.Task, strconv.Itoa(r.Workers)} })
			}),
			leaf("active", "list what runs right now", "", 0, nil, func(ctx context.Context, c *cli.Context, client fleet) error {
				nodes, err := client.Active(ctx)
				if err != nil {
					return err
				}
				return show(env, c, nodes, []string{"WORKFLOW", "NODE", "TASK", "WORKER", "FOR"}, func(n tasks.ActiveNode) []string {
					return []string{n.Workflow, n.Node, n.Task, n.Worker, ago(n.Started)}
				})
			}),
			leaf("scheduled", "list what waits for its time, soonest first", "", 0,
				[]cli.Flag{&cli.IntFlag{Name: "limit", Usage: "at most `N`", Value: 100}}, func(ctx context.Context, c *cli.Context, client fleet) error {
					nodes, err := client.Due(ctx, c.Int("limit"))
					if err != nil {
						return err
					}
					return show(env, c, nodes, []string{"WORKFLOW", "NODE", "DUE IN"}, func(n tasks.DueNode) []string {
						return []string{n.Workflow, n.Node, time.Until(n.Due).Round(100 * time.Millisecond).String()}
					})
				}),
			leaf("schedule", "list what runs at its times: when it runs next, and ran last", "", 0, nil, func(ctx context.Context, c *cli.Context, client fleet) error {
				entries, err := client.Schedule(ctx)
				if err != nil {
					return err
				}
				return show(env, c, entries, []string{"ENTRY", "SPEC", "NEXT IN", "LAST", "WORKFLOW", "SENT", "MISSED", "LEADER", "ERROR"}, func(e tasks.ScheduleInfo) []string {
					next := "-"
					if e.Leader != "" {
						next = time.Until(e.Next).Round(time.Second).String()
					}
					return []string{e.Name, e.Spec, next, ago(e.Last), cmp.Or(e.Workflow, "-"), strconv.FormatInt(e.Sent, 10),
						strconv.FormatInt(e.Missed, 10), cmp.Or(e.Leader, "none is up"), oneLine(errors.New(cmp.Or(e.Error, "-")))}
				})
			}),
			leaf("stats", "list the queues and how much is in them", "", 0, nil, func(ctx context.Context, c *cli.Context, client fleet) error {
				queues, err := client.Queues(ctx)
				if err != nil {
					return err
				}
				return show(env, c, queues, []string{"QUEUE", "PENDING", "ACTIVE", "PAUSED"}, func(q tasks.QueueInfo) []string {
					return []string{q.Name, strconv.FormatInt(q.Pending, 10), strconv.FormatInt(q.Active, 10), strconv.FormatBool(q.Paused)}
				})
			}),
			leaf("workflow", "list the nodes of a workflow, with states and times", "ID", 1, nil, func(ctx context.Context, c *cli.Context, client fleet) error {
				nodes, err := client.Nodes(ctx, c.Args().First())
				if err != nil {
					return err
				}
				return show(env, c, nodes, []string{"NODE", "TASK", "STATUS", "ATTEMPTS", "TOOK", "AFTER", "ERROR"}, func(n tasks.NodeInfo) []string {
					took, failure := "-", n.Message
					if !n.Started.IsZero() && !n.Ended.IsZero() {
						took = n.Ended.Sub(n.Started).Round(time.Millisecond).String()
					}
					if n.Failure != nil {
						failure = n.Failure.Message
					}
					return []string{n.ID, n.Task, string(n.Status), strconv.Itoa(n.Attempts), took, cmp.Or(strings.Join(n.Needs, " "), "-"), oneLine(errors.New(failure))}
				})
			}),
		},
	}
}

// fleet is a running fleet as a command sees it.
type fleet struct {
	*tasks.Client
	cfg config.Config
}

// withClient returns the action of a command that talks to a running fleet,
// takes least to most arguments, and has flags for the given settings.
func withClient(env environment, least, most int, fn func(context.Context, *cli.Context, fleet) error, settings ...settingFlag) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := arguments(c, least, most); err != nil {
			return err
		}
		loaded, err := loadConfig(env, c, settings...)
		if err != nil {
			return err
		}
		client, err := orchestrator.Connect(c.Context, loaded.Config)
		if err != nil {
			return err
		}
		defer client.Close()
		return fn(c.Context, c, fleet{client, loaded.Config})
	}
}

// show prints a listing, as a table or as JSON.
func show[T any](env environment, c *cli.Context, list []T, head []string, row func(T) []string) error {
	if c.Bool("json") {
		return printJSON(env.stdout, append([]T{}, list...)) // [], not null
	}
	t := newTable(env.stdout, head...)
	for _, item := range list {
		t.row(row(item)...)
	}
	return t.flush()
}

// ago is how long something has lasted that began at t.
func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return time.Since(t).Round(time.Second).String()
}
