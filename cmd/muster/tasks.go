package main

import (
	"bytes"
	"encoding/json"
	"errors"
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
			apiCommand(env, &cli.Command{
				Name: "list", Usage: "list running, ready, scheduled or open tasks, or count outcomes",
				Description: `An open task waits for muster tasks complete, or a program that does the same.
--stats counts outcomes by minute, which are kept for 24 hours, or by hour, kept for
30 days.`,
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "state", Usage: "tasks in `STATE`: running, which includes prefetched ones, ready, scheduled or open", Value: "running"},
					&cli.StringFlag{Name: "task", Usage: "only open tasks or outcomes of `TASK`"},
					&cli.BoolFlag{Name: "stats", Usage: "count outcomes"}, jsonFlag(),
				},
			}, listTasks),
			apiCommand(env, &cli.Command{
				Name: "complete", Usage: "complete an open task with its result, or fail it with --error", ArgsUsage: "WORKFLOW NODE|TASK", Before: requires("error", "code", "permanent"),
				Description: `A result for a TASK goes to the first of its open nodes. If none is open, the workflow
keeps the result for the next one that opens. - as the result is standard input.`,
			}, completeTask),
		},
	}
}

// isNode reports whether text has the form of a node ID, such as 2 or 1:0.3; else it is the name of a task.
func isNode(text string) bool { return text != "" && strings.Trim(text, "0123456789.:") == "" }

// taskEnd is the input of tasks complete.
type taskEnd struct {
	api.Reference
	Node string `path:"node"`
	api.NodeResult
	api.NodeFailure
}

// completeTask completes or fails a node of a workflow, or sends a result to a task of it.
func completeTask(s scope, in taskEnd) error {
	if s.IsSet("result") == s.IsSet("error") {
		return usageError{errors.New("tasks complete: use one of --result JSON and --error MESSAGE")}
	}
	of, result := api.NodeReference{Reference: in.Reference, Node: in.Node}, in.NodeResult
	if s.IsSet("error") {
		return done(s.env, client.FailNode.Do(s.ctx, s.api, api.ToNode[api.NodeFailure]{NodeReference: of, Body: in.NodeFailure}), "failed: node %s of %s", of.Node, of.ID)
	}
	if !isNode(of.Node) {
		return done(s.env, client.SignalWorkflow.Do(s.ctx, s.api, api.ToWorkflow[api.Signal]{Reference: of.Reference, Body: api.Signal{Task: of.Node, NodeResult: result}}), "sent to task %s of %s", of.Node, of.ID)
	}
	return done(s.env, client.CompleteNode.Do(s.ctx, s.api, api.ToNode[api.NodeResult]{NodeReference: of, Body: result}), "completed: node %s of %s", of.Node, of.ID)
}

// taskLists is the input of the lists of tasks and of outcomes.
type taskLists struct {
	api.TaskFilter
	api.RateFilter
}

func listTasks(s scope, in taskLists) error {
	if s.Bool("stats") {
		return printAll(s, client.ListTaskRates, in.RateFilter, "No task has ended", rateColumns, rateRow)
	}
	if err := oneOf("state", in.State, []string{"running", "ready", "scheduled", "open"}); err != nil {
		return err
	}
	none := "No tasks are " + in.State
	if in.State == "open" {
		return printAll(s, client.ListOpenTasks, api.OpenFilter{Task: in.Task}, none, "WORKFLOW NODE TASK ATTEMPT FOR DUE_IN INPUT", func(o tasktype.OpenToken) []any {
			return []any{o.Workflow, o.Node, o.Task, o.Attempt, elapsed(o.Opened), until(o.Deadline), onLine(o.Input)}
		})
	}
	return printAll(s, client.ListTasks, in.TaskFilter, none, "WORKFLOW NODE TASK QUEUE STATUS WORKER FOR DUE_IN", func(n tasktype.Task) []any {
		return []any{n.Workflow, n.Node, n.Task, n.Queue, n.Status, n.Worker, elapsed(n.Started), until(n.Due)}
	})
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
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return "-"
	}
	return cell(b.String(), 60)
}

const rateColumns = "TIME QUEUE TASK SUCCEEDED FAILED REVOKED RETRIED BUSY"

func rateRow(p tasktype.RatePoint) []any {
	return []any{p.Time.Local().Format("01-02 15:04"), p.Queue, p.Task, p.Succeeded, p.Failed, p.Revoked, p.Retried, p.Busy}
}
