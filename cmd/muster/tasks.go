package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
	"muster/tasks/api"
	"muster/tasks/tasktype"
)

func tasksCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "tasks",
		Usage: "list tasks by state, count their outcomes, complete external tasks",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list running, ready, scheduled or open tasks",
				Description: "An open task waits for muster tasks complete or fail, or a program that does the same.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "state", Usage: "tasks in `STATE`: running, which includes prefetched ones, ready, scheduled or open", Value: "running"},
					&cli.StringFlag{Name: "task", Usage: "of open tasks, only those called `TASK`"},
					limitFlag(), serverFlag(), watchFlag(), jsonFlag(),
				},
				Action: listTasks(env),
			},
			{
				Name: "stats", Usage: "count the outcomes of tasks by minute or hour",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "queue", Usage: "only tasks of `QUEUE`"},
					&cli.StringFlag{Name: "task", Usage: "only tasks called `TASK`"},
					&cli.DurationFlag{Name: "since", Usage: "the last `D`; minutes are kept for 24 hours, hours for 30 days", Value: time.Hour},
					&cli.StringFlag{Name: "step", Usage: "count by `STEP`: minute or hour", Value: "minute"},
					serverFlag(), watchFlag(), jsonFlag(),
				},
				Action: func(c *cli.Context) error {
					since, err := sinceOf(c)
					if err != nil {
						return err
					}
					return onAPI(env, 0, 0, func(ctx context.Context, c *cli.Context, s *client.Client) error {
						points, err := s.TaskRates(ctx, c.String("queue"), c.String("task"), c.String("step"), since)
						if err != nil {
							return err
						}
						return showPage(env, c, points, "No task has ended", rateColumns, rateRow)
					})(c)
				},
			},
			{
				Name: "complete", Usage: "complete an open task with its result", ArgsUsage: "WORKFLOW NODE",
				Flags: []cli.Flag{&cli.StringFlag{Name: "result", Usage: "the result as `JSON`, or - for standard input", Required: true}, serverFlag()},
				Action: func(c *cli.Context) error {
					result, err := valueOf(env, "result", c.String("result"))
					if err != nil {
						return err
					}
					return onNode(env, "completed", func(ctx context.Context, s *client.Client, id, node string) error {
						return s.CompleteNode(ctx, id, node, api.NodeResult{Result: result})
					})(c)
				},
			},
			{
				Name: "fail", Usage: "fail an open task", ArgsUsage: "WORKFLOW NODE",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "message", Usage: "why, as `TEXT`", Required: true},
					&cli.StringFlag{Name: "code", Usage: "the `CODE` of the failure", DefaultText: "error"},
					&cli.BoolFlag{Name: "permanent", Usage: "do not retry the task"}, serverFlag(),
				},
				Action: func(c *cli.Context) error {
					f := api.NodeFailure{Message: c.String("message"), Code: c.String("code"), Permanent: c.Bool("permanent")}
					return onNode(env, "failed", func(ctx context.Context, s *client.Client, id, node string) error {
						return s.FailNode(ctx, id, node, f)
					})(c)
				},
			},
		},
	}
}

// onNode is the action of a command on a node of a workflow.
func onNode(env environment, result string, fn func(ctx context.Context, s *client.Client, id, node string) error) cli.ActionFunc {
	return onAPI(env, 2, 2, func(ctx context.Context, c *cli.Context, s *client.Client) error {
		id, node := c.Args().Get(0), c.Args().Get(1)
		return done(env, fn(ctx, s, id, node), "%s: node %s of %s", result, node, id)
	})
}

func listTasks(env environment) cli.ActionFunc {
	return func(c *cli.Context) error {
		limit, err := within(c, "limit", 1, 10_000)
		if err != nil {
			return err
		}
		state := c.String("state")
		if err := oneOf("state", state, []string{"running", "ready", "scheduled", "open"}); err != nil {
			return err
		}
		return onAPI(env, 0, 0, func(ctx context.Context, c *cli.Context, s *client.Client) error {
			none := "No tasks are " + state
			if state == "open" {
				list, err := s.OpenTasks(ctx, c.String("task"), limit)
				if err != nil {
					return err
				}
				return showPage(env, c, list, none, []string{"WORKFLOW", "NODE", "TASK", "ATTEMPT", "FOR", "DUE IN", "INPUT"}, func(o api.OpenTask) []string {
					return []string{o.Workflow, o.Node, o.Task, fmt.Sprint(o.Attempt), elapsed(o.OpenedAt), until(o.DeadlineAt), onLine(o.Input)}
				})
			}
			list, err := s.Tasks(ctx, state, limit)
			if err != nil {
				return err
			}
			return showPage(env, c, list, none, []string{"WORKFLOW", "NODE", "TASK", "QUEUE", "STATUS", "WORKER", "FOR", "DUE IN"}, func(n api.Task) []string {
				return []string{n.Workflow, n.Node, n.Task, n.Queue, string(n.Status), orDash(n.Worker), elapsed(n.StartedAt), until(n.DueAt)}
			})
		})(c)
	}
}

// until returns the time until at.
func until(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return time.Until(at).Round(time.Second).String()
}

// onLine returns JSON for a column of a table.
func onLine(raw json.RawMessage) string {
	const most = 60
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return "-"
	}
	if r := []rune(b.String()); len(r) > most {
		return string(r[:most]) + "…"
	}
	return b.String()
}

var rateColumns = []string{"TIME", "QUEUE", "TASK", "SUCCEEDED", "FAILED", "REVOKED", "RETRIED", "BUSY"}

func rateRow(p tasktype.RatePoint) []string {
	n := func(i int64) string { return strconv.FormatInt(i, 10) }
	return []string{p.Time.Local().Format("01-02 15:04"), p.Queue, p.Task, n(p.Succeeded), n(p.Failed), n(p.Revoked),
		n(p.Retried), p.Busy.Round(time.Millisecond).String()}
}
