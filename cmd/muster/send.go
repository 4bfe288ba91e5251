package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/tasks"
)

// maxInput is the limit of the input of a task, in bytes.
const maxInput = 16 << 20

func sendCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "send",
		Usage:     "send a task by its name",
		ArgsUsage: "NAME JSON",
		Description: `JSON is the task's input, or - for standard input. Prints the id of the
workflow, or with --wait its result.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "wait", Usage: "wait for the result and print it"},
			&cli.StringFlag{Name: "queue", Usage: "send it to `QUEUE`", Value: "default"},
			&cli.BoolFlag{Name: "force", Usage: "send it even when no worker has a handler for it"},
			&cli.DurationFlag{Name: "timeout", Usage: "with --wait, wait at most `D`; the task continues", DefaultText: "for as long as it takes"},
			&cli.StringFlag{Name: "name", Usage: "the workflow is listed as `NAME`", DefaultText: "the name of the task"},
			labelFlag("add the label `KEY=VALUE` to the workflow; may be repeated"),
			&cli.DurationFlag{Name: "in", Usage: "run it `D` from now"},
			&cli.BoolFlag{Name: "external", Usage: "no worker runs it: it is completed externally; see muster tokens"},
			jsonFlag(),
		},
		Action: withClient(env, 2, 2, func(ctx context.Context, c *cli.Context, client fleet) error {
			name, input := c.Args().Get(0), []byte(c.Args().Get(1))
			if string(input) == "-" {
				var err error
				if input, err = io.ReadAll(io.LimitReader(env.stdin, maxInput+1)); err != nil {
					return fmt.Errorf("read the input: %w", err)
				}
			}
			if len(input) > maxInput {
				return usageError{fmt.Errorf("the input is over %d MiB; store it and send its address", maxInput>>20)}
			}
			if !json.Valid(input) {
				return usageError{fmt.Errorf("the input is not JSON: %.40q; a string needs its own quotes: '\"text\"'", input)}
			}
			if c.Duration("in") < 0 || c.Duration("timeout") < 0 || c.IsSet("timeout") && !c.Bool("wait") {
				return usageError{errors.New("--in and --timeout take a positive duration, such as 30s, and --timeout needs --wait")}
			}
			opts := []tasks.SendOption{tasks.Queue(c.String("queue"))}
			if d := c.Duration("in"); d > 0 {
				opts = append(opts, tasks.In(d))
			}
			labels, err := labelsOf(c)
			if err != nil {
				return err
			}
			opts = append(opts, tasks.Labels(labels))
			if c.IsSet("name") {
				opts = append(opts, tasks.Name(c.String("name")))
			}
			declared := []tasks.TaskOption{}
			if c.Bool("external") {
				declared = append(declared, tasks.External())
			}
			switch err := known(ctx, client, name, c.String("queue")); {
			case c.Bool("external"): // it needs no handler
			case err != nil && !c.Bool("force"):
				return fmt.Errorf("%w, or send it with --force", err)
			case err != nil:
				fmt.Fprintf(client.env.stderr, "muster: %v; sent anyway\n", err)
			}
			run, err := tasks.New[json.RawMessage, json.RawMessage](name, declared...).S(input).Send(ctx, client.Client, opts...)
			if err != nil {
				return err
			}
			if !c.Bool("wait") {
				if c.Bool("json") {
					return printJSON(env.stdout, sendResult{run.ID()})
				}
				fmt.Fprintln(env.stdout, run.ID())
				return nil
			}
			waiting, stop := ctx, context.CancelFunc(func() {})
			if d := c.Duration("timeout"); d > 0 {
				waiting, stop = context.WithTimeout(ctx, d)
			}
			defer stop()
			result, err := run.Wait(waiting)
			if err != nil && ctx.Err() != nil {
				return withState(ctx, err, "%s continues; see muster inspect workflow %s, or end it with muster control revoke %s", run.ID(), run.ID(), run.ID())
			}
			if err != nil && ctx.Err() == nil && waiting.Err() != nil {
				return fmt.Errorf("%s has no result after %s and continues; see muster inspect workflow %s", run.ID(), c.Duration("timeout"), run.ID())
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(env.stdout, "%s\n", result)
			return nil
		}),
	}
}

// sendResult is the JSON result of send.
type sendResult struct {
	ID string `json:"id"` // of the workflow
}

// known returns an error if no running worker handles the task or its queue. It returns nil if no
// worker is running.
func known(ctx context.Context, client fleet, name, queue string) error {
	workers, err := client.Workers(ctx)
	if err != nil {
		return err
	}
	tasksOf := registered(workers)
	on := tasksOf[name]
	if len(workers) == 0 {
		fmt.Fprintln(client.env.stderr, "muster: no workers are running; the task runs as soon as one does")
		return nil
	}
	if len(on) == 0 {
		return fmt.Errorf("no worker has a handler for %q%s; see muster inspect workers --tasks",
			name, suggest(name, slices.Collect(maps.Keys(tasksOf))))
	}
	var queues []string
	for _, w := range on {
		if w.Queues[queue] > 0 {
			return nil
		}
		queues = append(queues, slices.Collect(maps.Keys(w.Queues))...)
	}
	slices.Sort(queues)
	return fmt.Errorf("no worker with a handler for %q runs tasks of the queue %q; send it with --queue %s",
		name, queue, strings.Join(slices.Compact(queues), " or "))
}
