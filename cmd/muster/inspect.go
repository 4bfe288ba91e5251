package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/tasks"
	"muster/tasks/tasktype"
)

func inspectCommand(env environment) *cli.Command {
	leaf := func(name, usage, args string, n int, fn func(context.Context, *cli.Context, fleet) error, flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: args, Flags: append(flags, jsonFlag()),
			Action: withClient(env, n, n, fn)}
	}
	limit := func() cli.Flag { return &cli.IntFlag{Name: "limit", Usage: "at most `N`", Value: 100} }
	return &cli.Command{
		Name:  "inspect",
		Usage: "look at a running fleet",
		Subcommands: []*cli.Command{
			leaf("ping", "ask the workers for an answer; exit 1 when one does not give it, or there is none", "", 0, inspectPing,
				&cli.DurationFlag{Name: "timeout", Usage: "wait `D` for answers", Value: 2 * time.Second}),
			leaf("registered", "list the tasks that the workers have handlers for", "", 0, inspectRegistered),
			leaf("active", "list what is in the batches of workers: what runs, and what is next in line behind it", "", 0, inspectActive),
			leaf("reserved", "list what is ready and no worker has taken yet", "", 0, inspectReserved, limit()),
			leaf("scheduled", "list what waits for its time or for another try, soonest first", "", 0, inspectScheduled, limit()),
			leaf("schedule", "list what is sent at its times: when it is next, and was last", "", 0, inspectSchedule),
			leaf("stats", "list the queues with what is ready, what workers have, and for how long they have taken nothing of what is ready; and the workers with what they have done", "", 0, inspectStats),
			leaf("workflow", "draw the tasks of a workflow, with states and times", "ID", 1, inspectWorkflow,
				&cli.BoolFlag{Name: "all", Usage: "draw every member of large groups and maps"}),
			leaf("workflows", "list the workflows that run, and those that have ended and whose results are kept, the latest first", "", 0, inspectWorkflows,
				&cli.StringFlag{Name: "state", Usage: "only those in `STATE`: running, success, failure or revoked"},
				&cli.StringFlag{Name: "name", Usage: "only those called `TASK`"},
				&cli.DurationFlag{Name: "since", Usage: "only those that ended in the last `D`, or run and were sent in it"}, limit()),
			leaf("rates", "count what became of tasks, by minute or hour", "", 0, inspectRates,
				&cli.StringFlag{Name: "queue", Usage: "only those of `QUEUE`"},
				&cli.StringFlag{Name: "task", Usage: "only those called `TASK`"},
				&cli.DurationFlag{Name: "since", Usage: "the last `D`; minutes are kept for 24 hours, hours for 30 days", Value: time.Hour},
				&cli.StringFlag{Name: "step", Usage: "count by `STEP`: minute or hour", Value: "minute"}),
		},
	}
}

func inspectPing(ctx context.Context, c *cli.Context, client fleet) error {
	type answer struct {
		tasktype.Pong
		tasktype.Worker
	}
	pongs, err := client.PingWorkers(ctx, c.Duration("timeout"))
	if err != nil {
		return err
	}
	workers, err := client.Workers(ctx)
	if err != nil && !tasks.Refused(err) { // while Redis takes no writes the workers answer, and can tell no more
		return err
	}
	var rows []answer
	var silent []string
	for _, p := range pongs {
		row := answer{Pong: p, Worker: tasktype.Worker{Name: p.Worker}}
		if i := slices.IndexFunc(workers, func(w tasktype.Worker) bool { return w.Name == p.Worker }); i >= 0 {
			row.Worker = workers[i]
		}
		if rows = append(rows, row); !p.Answered {
			silent = append(silent, p.Worker)
		}
	}
	err = show(client.env, c, rows, []string{"WORKER", "ANSWER", "HOST", "PID", "ACTIVE", "CONCURRENCY", "UP", "QUEUES"}, func(r answer) []string {
		after := "none"
		if r.Answered {
			after = r.After.Round(10 * time.Microsecond).String()
		}
		return []string{r.Name, after, r.Host, strconv.Itoa(r.PID), strconv.Itoa(r.Active), strconv.Itoa(r.Concurrency),
			ago(r.Started), strings.Join(slices.Sorted(maps.Keys(r.Queues)), " ")}
	})
	switch {
	case err != nil:
		return err
	case len(rows) == 0:
		return errors.New("no worker is up; start one with muster worker or muster start")
	case len(silent) > 0:
		return fmt.Errorf("no answer from %s within %s: it is paused, cut off from Redis, or died a moment ago",
			strings.Join(silent, ", "), c.Duration("timeout"))
	}
	return nil
}

func inspectRegistered(ctx context.Context, c *cli.Context, client fleet) error {
	workers, err := client.Workers(ctx)
	if err != nil {
		return err
	}
	type row struct {
		Task    string   `json:"task"`
		Workers int      `json:"workers"`
		Queues  []string `json:"queues"`
	}
	rows := []row{}
	for name, on := range registered(workers) {
		r := row{Task: name, Workers: len(on)}
		for _, w := range on {
			r.Queues = append(r.Queues, slices.Collect(maps.Keys(w.Queues))...)
		}
		slices.Sort(r.Queues)
		r.Queues = slices.Compact(r.Queues)
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.Task, b.Task) })
	return show(client.env, c, rows, []string{"TASK", "WORKERS", "QUEUES"}, func(r row) []string {
		return []string{r.Task, strconv.Itoa(r.Workers), strings.Join(r.Queues, " ")}
	})
}

// registered returns the workers that have a handler, by the names of tasks.
func registered(workers []tasktype.Worker) map[string][]tasktype.Worker {
	out := map[string][]tasktype.Worker{}
	for _, w := range workers {
		for _, name := range w.Tasks {
			out[name] = append(out[name], w)
		}
	}
	return out
}

func inspectActive(ctx context.Context, c *cli.Context, client fleet) error {
	nodes, err := client.Active(ctx)
	if err != nil {
		return err
	}
	return show(client.env, c, nodes, []string{"WORKFLOW", "NODE", "TASK", "QUEUE", "WORKER", "FOR"}, func(n tasktype.ActiveNode) []string {
		return []string{n.Workflow, n.Node, n.Task, n.Queue, n.Worker, ago(n.Started)}
	})
}

func inspectReserved(ctx context.Context, c *cli.Context, client fleet) error {
	limit, err := limitOf(c)
	if err != nil {
		return err
	}
	nodes, err := client.Reserved(ctx, limit)
	if err != nil {
		return err
	}
	return show(client.env, c, nodes, []string{"WORKFLOW", "NODE", "TASK", "QUEUE"}, func(n tasktype.ReservedNode) []string {
		return []string{n.Workflow, n.Node, n.Task, n.Queue}
	})
}

func limitOf(c *cli.Context) (int, error) {
	n := c.Int("limit")
	if n < 1 || n > 10_000 {
		return 0, usageError{fmt.Errorf("--limit %d must be 1 to 10000", n)}
	}
	return n, nil
}

func inspectScheduled(ctx context.Context, c *cli.Context, client fleet) error {
	limit, err := limitOf(c)
	if err != nil {
		return err
	}
	nodes, err := client.Due(ctx, limit)
	if err != nil {
		return err
	}
	return show(client.env, c, nodes, []string{"WORKFLOW", "NODE", "TASK", "QUEUE", "STATUS", "DUE IN"}, func(n tasktype.DueNode) []string {
		return []string{n.Workflow, n.Node, n.Task, n.Queue, string(n.Status), time.Until(n.Due).Round(100 * time.Millisecond).String()}
	})
}

func inspectSchedule(ctx context.Context, c *cli.Context, client fleet) error {
	entries, err := client.Schedule(ctx)
	if err != nil {
		return err
	}
	return show(client.env, c, entries, []string{"ENTRY", "SPEC", "NEXT IN", "LAST", "WORKFLOW", "SENT", "MISSED", "LEADER", "ERROR"}, func(e tasktype.ScheduleEntry) []string {
		next, last := "-", "never"
		if e.Leader != "" {
			next = time.Until(e.Next).Round(time.Second).String()
		}
		if !e.Last.IsZero() {
			last = ago(e.Last) + " ago"
		}
		return []string{e.Name, e.Spec, next, last, cmp.Or(e.Workflow, "-"), strconv.FormatInt(e.Sent, 10),
			strconv.FormatInt(e.Missed, 10), cmp.Or(e.Leader, "none is up"), cmp.Or(oneLine(errors.New(e.Error)), "-")}
	})
}

func inspectStats(ctx context.Context, c *cli.Context, client fleet) error {
	queues, err := client.Queues(ctx)
	if err != nil {
		return err
	}
	workers, err := client.Workers(ctx)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(client.env.stdout, map[string]any{
			"queues": append([]tasktype.Queue{}, queues...), "workers": append([]tasktype.Worker{}, workers...)})
	}
	if err := show(client.env, c, queues, []string{"QUEUE", "PENDING", "ACTIVE", "STALLED", "ARCHIVED", "PAUSED"}, func(q tasktype.Queue) []string {
		return []string{q.Name, strconv.FormatInt(q.Pending, 10), strconv.FormatInt(q.Active, 10),
			q.Latency.Round(time.Millisecond).String(), strconv.FormatInt(q.Archived, 10), strconv.FormatBool(q.Paused)}
	}); err != nil {
		return err
	}
	fmt.Fprintln(client.env.stdout)
	return show(client.env, c, workers, []string{"WORKER", "ACTIVE", "BEGUN", "SUCCEEDED", "FAILED", "RETRIED", "RECOVERED", "UP"}, func(w tasktype.Worker) []string {
		n := func(i int64) string { return strconv.FormatInt(i, 10) }
		return []string{w.Name, strconv.Itoa(w.Active), n(w.Stats.Begun), n(w.Stats.Succeeded), n(w.Stats.Failed),
			n(w.Stats.Retried), n(w.Stats.Recovered), ago(w.Started)}
	})
}

func inspectWorkflow(ctx context.Context, c *cli.Context, client fleet) error {
	id := c.Args().First()
	nodes, err := client.Nodes(ctx, id)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(client.env.stdout, nodes)
	}
	p, err := tasks.Attach[any](client.Client, id).Progress(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(client.env.stdout, "%s  %s  %d of %d tasks are done\n\n", id, p.Status, p.Done, p.Total)
	width := 0
	if f, ok := client.env.stdout.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil {
			width = columns
		}
	}
	return tasks.WriteTree(client.env.stdout, nodes, tasks.TreeOptions{Width: width, All: c.Bool("all")})
}

// fleet is a running fleet as a command sees it.
type fleet struct {
	*tasks.Client
	cfg config.Config
	env environment
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
		return fn(c.Context, c, fleet{client, loaded.Config, env})
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
