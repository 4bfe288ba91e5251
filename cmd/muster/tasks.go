package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
	"muster/tasks/api"
	"muster/tasks/tasktype"
)

func tasksCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "tasks",
		Usage: "list tasks by state, complete external tasks",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list running, ready, scheduled or open tasks, or count outcomes",
				Description: `An open task waits for muster tasks complete, or a program that does the same.
--stats counts outcomes by minute, which are kept for 24 hours, or by hour, kept for
30 days.`,
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "state", Usage: "tasks in `STATE`: running, which includes prefetched ones, ready, scheduled or open", Value: "running"},
					&cli.StringFlag{Name: "task", Usage: "only open tasks or outcomes of `TASK`"},
					limitFlag(),
					&cli.BoolFlag{Name: "stats", Usage: "count outcomes"},
					&cli.StringFlag{Name: "queue", Usage: "with --stats, only outcomes of tasks in `QUEUE`"},
					&cli.DurationFlag{Name: "since", Usage: "with --stats, outcomes of the last `D`", Value: time.Hour},
					&cli.StringFlag{Name: "step", Usage: "with --stats, count by `STEP`: minute or hour", Value: "minute"},
					serverFlag(), jsonFlag(),
				},
				Action: func(c *cli.Context) error {
					if c.Bool("stats") {
						return listRates(env, c)
					}
					return listTasks(env)(c)
				},
			},
			{
				Name: "complete", Usage: "complete an open task with its result, or fail it with --error", ArgsUsage: "WORKFLOW NODE|TASK",
				Description: `A result for a TASK goes to the first of its open nodes. If none is open, the workflow
keeps the result for the next one that opens.`,
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "result", Usage: "the result as `JSON`, or - for standard input"},
					&cli.StringFlag{Name: "error", Usage: "fail the task with `MESSAGE`"},
					&cli.StringFlag{Name: "code", Usage: "with --error, the `CODE` of the failure", DefaultText: "error"},
					&cli.BoolFlag{Name: "permanent", Usage: "with --error, do not retry the task"}, serverFlag(),
				},
				Action: completeTask(env),
			},
		},
	}
}

// listRates prints the outcomes of tasks over time.
func listRates(env environment, c *cli.Context) error {
	since, err := agoOf(c, "since")
	if err != nil {
		return err
	}
	return onAPI(env, 0, 0, func(ctx context.Context, c *cli.Context, s *client.Client) error {
		points, err := client.All(ctx, s, client.ListTaskRates, api.RateFilter{Queue: c.String("queue"), Task: c.String("task"), Step: c.String("step"), Since: since}, 0)
		if err != nil {
			return err
		}
		return showPage(env, c, points, "No task has ended", rateColumns, rateRow)
	})(c)
}

// isNode reports whether text has the form of a node ID, such as 2 or 1:0.3; else it is the name of a task.
func isNode(text string) bool { return text != "" && strings.Trim(text, "0123456789.:") == "" }

// completeTask completes or fails a node of a workflow, or sends a result to a task of it.
func completeTask(env environment) cli.ActionFunc {
	return func(c *cli.Context) error {
		failure := api.NodeFailure{Message: c.String("error"), Code: c.String("code"), Permanent: c.Bool("permanent")}
		if c.IsSet("result") == c.IsSet("error") {
			return usageError{errors.New("tasks complete: use one of --result JSON and --error MESSAGE")}
		}
		result := json.RawMessage("null")
		if c.IsSet("result") {
			var err error
			if result, err = valueOf(env, "result", c.String("result")); err != nil {
				return err
			}
		}
		return onAPI(env, 2, 2, func(ctx context.Context, c *cli.Context, s *client.Client) error {
			id, node := c.Args().Get(0), c.Args().Get(1)
			workflow := api.Reference{ID: id}
			of := api.NodeReference{Reference: workflow, Node: node}
			if c.IsSet("error") {
				return done(env, client.FailNode.Do(ctx, s, api.NodeFailing{NodeReference: of, Body: failure}), "failed: node %s of %s", node, id)
			}
			if !isNode(node) {
				return done(env, client.SignalWorkflow.Do(ctx, s, api.WorkflowSignal{Reference: workflow, Body: api.Signal{Task: node, NodeResult: api.NodeResult{Result: result}}}), "sent to task %s of %s", node, id)
			}
			return done(env, client.CompleteNode.Do(ctx, s, api.NodeCompletion{NodeReference: of, Body: api.NodeResult{Result: result}}), "completed: node %s of %s", node, id)
		})(c)
	}
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
				list, err := client.All(ctx, s, client.ListOpenTasks, api.OpenFilter{Task: c.String("task")}, limit)
				if err != nil {
					return err
				}
				return showPage(env, c, list, none, []string{"WORKFLOW", "NODE", "TASK", "ATTEMPT", "FOR", "DUE IN", "INPUT"}, func(o api.OpenTask) []string {
					return []string{o.Workflow, o.Node, o.Task, fmt.Sprint(o.Attempt), elapsed(o.OpenedAt), until(o.DeadlineAt), onLine(o.Input)}
				})
			}
			list, err := client.All(ctx, s, client.ListTasks, api.TaskFilter{State: state, Limit: limit}, limit)
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
