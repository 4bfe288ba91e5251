package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"muster/tasks"
)

// maxInput bounds the input of a task that is sent by hand.
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
			&cli.DurationFlag{Name: "in", Usage: "run it `D` from now"},
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
				return usageError{fmt.Errorf("the input is over %d MiB; store it somewhere and send where", maxInput>>20)}
			}
			if !json.Valid(input) {
				return usageError{fmt.Errorf("the input is not JSON: %.40q; a text needs quotes of its own: '\"text\"'", input)}
			}
			opts := []tasks.Option{tasks.Queue(c.String("queue"))}
			if d := c.Duration("in"); d > 0 {
				opts = append(opts, tasks.In(d))
			}
			run, err := client.SendRaw(ctx, name, input, opts...)
			if err != nil {
				return err
			}
			if !c.Bool("wait") {
				if c.Bool("json") {
					return printJSON(env.stdout, map[string]string{"id": run.ID()})
				}
				fmt.Fprintln(env.stdout, run.ID())
				return nil
			}
			result, err := run.Wait(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintf(env.stdout, "%s\n", result)
			return nil
		}),
	}
}
