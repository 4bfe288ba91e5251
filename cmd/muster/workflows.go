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
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
	"muster/tasks/api"
	"muster/tasks/tasktype"
)

// maxInput is the limit of the input and the result of a task, in bytes.
const maxInput = 16 << 20

func workflowsCommand(env environment) *cli.Command {
	timeout := func() cli.Flag {
		return &cli.DurationFlag{Name: "timeout", Usage: "wait at most `D`; the workflow continues", DefaultText: "for as long as it takes"}
	}
	return &cli.Command{
		Name:  "workflows",
		Usage: "send, list, stop and retry workflows of tasks",
		Description: `The commands call the API of the orchestrator of the data directory, or of --server.
If no orchestrator is running, they use the Redis of the data directory, or of --redis.`,
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list running workflows and finished ones with kept results, latest first",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "state", Usage: "only workflows in `STATE`: running, success, failure or revoked"},
					&cli.StringFlag{Name: "name", Usage: "only workflows with this name, or whose first or last task is `NAME`"},
					labelFlag("only workflows with the label `KEY=VALUE`; may be repeated"),
					&cli.DurationFlag{Name: "since", Usage: "only workflows that ended in the last `D`, or were sent in it and run"},
					&cli.DurationFlag{Name: "until", Usage: "only workflows that ended, or were sent and run, longer than `D` ago"},
					&cli.BoolFlag{Name: "archive", Usage: "list archived workflows; see the setting archive"},
					limitFlag(), serverFlag(), jsonFlag(),
				},
				Action: listWorkflows(env),
			},
			{
				Name: "get", Usage: "show a workflow and its tasks, with states and times", ArgsUsage: "ID",
				Description: `A task within another one is indented below it. Of many tasks with the same name and
state, only the first are listed. --result waits for the end and exits with 1 if the
workflow failed.`,
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "all", Usage: "list all tasks"},
					&cli.BoolFlag{Name: "archive", Usage: "print an archived workflow, which may have expired in Redis, as JSON"},
					&cli.BoolFlag{Name: "result", Usage: "wait for the result and print it"}, timeout(),
					serverFlag(), jsonFlag(),
				},
				Action: onAPI(env, 1, 1, func(ctx context.Context, c *cli.Context, s *client.Client) error { return getWorkflow(ctx, env, c, s) }),
			},
			{
				Name: "send", Usage: "send a task by its name", ArgsUsage: "TASK JSON",
				Description: `JSON is the task's input, or - for standard input. Prints the ID of the workflow, or
with --wait its result.`,
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "wait", Usage: "wait for the result and print it"}, timeout(),
					&cli.StringFlag{Name: "queue", Usage: "send it to `QUEUE`", Value: "default"},
					&cli.BoolFlag{Name: "force", Usage: "send it even when no worker has a handler for it"},
					&cli.StringFlag{Name: "name", Usage: "the workflow is listed as `NAME`", DefaultText: "the name of the task"},
					labelFlag("add the label `KEY=VALUE` to the workflow; may be repeated"),
					&cli.DurationFlag{Name: "in", Usage: "run it `D` from now"},
					&cli.DurationFlag{Name: "deadline", Usage: "cancel it `D` from now unless it has ended", DefaultText: "never"},
					&cli.BoolFlag{Name: "external", Usage: "no worker runs it: it is completed with muster tasks complete"},
					serverFlag(), jsonFlag(),
				},
				Action: sendWorkflow(env),
			},
			{
				Name: "cancel", Usage: "end workflows with cleanup: their tasks fail, and tasks that handle failures run", ArgsUsage: "[ID…]",
				Description: "With --all instead of IDs, it cancels the running workflows that the other flags select.",
				Flags:       filterFlags("cancel running workflows", "were sent"),
				Action:      cancelWorkflows(env),
			},
			{
				Name: "retry", Usage: "run the failed and skipped tasks of ended workflows again", ArgsUsage: "[ID…]",
				Description: "With --all instead of IDs, it retries the failed workflows that the other flags select.",
				Flags: append([]cli.Flag{inputFlag(), &cli.StringSliceFlag{Name: "drop-steps", Usage: "delete a stored step, `NODE=STEP`, or all steps of a node, NODE; may be repeated"}},
					filterFlags("retry failed workflows", "ended")...),
				Action: retryWorkflows(env),
			},
			{
				Name: "run-again", Usage: "send a new workflow with the tasks and inputs of an ended one", ArgsUsage: "ID",
				Description: "Prints the ID of the new workflow, or with --wait its result.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "from", Usage: "run only `NODE` and the nodes that depend on it or have not succeeded; the others keep their results", DefaultText: "all"}, inputFlag(),
					&cli.BoolFlag{Name: "wait", Usage: "wait for the result and print it"}, timeout(), serverFlag(), jsonFlag(),
				},
				Action: runAgain(env),
			},
			{
				Name: "output", Usage: "print the output of the tasks of a workflow until it has ended", ArgsUsage: "ID",
				Description: "The text of chunks is printed without separators. --json prints each chunk as a line of JSON.",
				Flags: []cli.Flag{&cli.StringFlag{Name: "node", Usage: "only the output of `NODE`, until it has ended", DefaultText: "all"}, serverFlag(),
					&cli.BoolFlag{Name: "json", Usage: "print each chunk as a line of JSON"}},
				Action: onAPI(env, 1, 1, func(ctx context.Context, c *cli.Context, s *client.Client) error {
					return s.WorkflowOutput(ctx, c.Args().First(), c.String("node"), func(chunk tasktype.Chunk) error {
						text := printableLines(chunk.Text())
						if c.Bool("json") {
							raw, err := json.Marshal(chunk)
							if err != nil {
								return err
							}
							text = string(raw) + "\n"
						} else if chunk.Begin && chunk.Attempt > 1 {
							fmt.Fprintf(env.stderr, "muster: attempt %d of node %s begins\n", chunk.Attempt, chunk.Node)
						}
						_, err := io.WriteString(env.stdout, text)
						return err
					})
				}),
			},
			{
				Name: "revoke", Usage: "stop workflows without cleanup: waiting tasks never run, running tasks are cancelled", ArgsUsage: "ID…",
				Flags: []cli.Flag{&cli.StringFlag{Name: "node", Usage: "only `NODE` and the nodes that depend on it", DefaultText: "all"}, serverFlag()},
				Action: func(c *cli.Context) error {
					node := c.String("node")
					if node == "" {
						return stopWorkflows(env, "revoked", client.RevokeWorkflow)(c)
					}
					return onAPI(env, 1, 1, func(ctx context.Context, c *cli.Context, s *client.Client) error {
						id := c.Args().First()
						return done(env, client.RevokeNode.Do(ctx, s, api.NodeChange{NodeReference: api.NodeReference{Reference: api.Reference{ID: id}, Node: node}}), "revoked: node %s of %s", node, id)
					})(c)
				},
			},
			{
				Name: "delete", Usage: "delete ended workflows with their results", ArgsUsage: "ID…",
				Flags: []cli.Flag{serverFlag()},
				Action: onAPI(env, 1, -1, func(ctx context.Context, c *cli.Context, s *client.Client) error {
					for _, id := range c.Args().Slice() {
						if err := done(env, client.DeleteWorkflow.Do(ctx, s, api.Reference{ID: id}), "deleted: %s", id); err != nil {
							return err
						}
					}
					return nil
				}),
			},
		},
	}
}

// limitFlag is for lists of workflows and tasks.
func limitFlag() cli.Flag {
	return &cli.IntFlag{Name: "limit", Usage: "at most `N`, from 1 to 10000", Value: 100}
}

// inputFlag is the flag for inputs of nodes that run again.
func inputFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "input", Usage: "`NODE=JSON` is another input for a node; may be repeated"}
}

// inputsOf returns the inputs of --input by node.
func inputsOf(c *cli.Context) (map[string]json.RawMessage, error) {
	inputs := map[string]json.RawMessage{}
	for _, text := range c.StringSlice("input") {
		node, input, ok := strings.Cut(text, "=")
		if !ok || !json.Valid([]byte(input)) {
			return nil, usageError{fmt.Errorf("--input %q must be NODE=JSON", text)}
		}
		inputs[node] = json.RawMessage(input)
	}
	return inputs, nil
}

// runAgain runs a workflow again.
func runAgain(env environment) cli.ActionFunc {
	return onAPI(env, 1, 1, func(ctx context.Context, c *cli.Context, s *client.Client) error {
		inputs, err := inputsOf(c)
		if err != nil {
			return err
		}
		sent, err := client.RunWorkflowAgain.Call(ctx, s, api.WorkflowRunAgain{Reference: api.Reference{ID: c.Args().First()}, Body: &api.RunAgain{From: c.String("from"), Inputs: inputs}})
		return showSent(ctx, env, c, s, sent, err)
	})
}

// labelFlag is the flag that workflows are labelled or filtered with.
func labelFlag(usage string) cli.Flag { return &cli.StringSliceFlag{Name: "label", Usage: usage} }

// agoOf returns the time that the duration of a flag ago was.
func agoOf(c *cli.Context, name string) (time.Time, error) {
	d := c.Duration(name)
	if d <= 0 {
		return time.Time{}, usageError{fmt.Errorf("--%s %s must be more than 0", name, d)}
	}
	return time.Now().Add(-d), nil
}

// done prints the result, unless err is not nil.
func done(env environment, err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.stdout, format+"\n", args...)
	return err
}

func listWorkflows(env environment) cli.ActionFunc {
	return func(c *cli.Context) error {
		f := api.WorkflowFilter{State: c.String("state"), Name: c.String("name"), Labels: c.StringSlice("label")}
		limit, err := within(c, "limit", 1, 10_000)
		if err != nil {
			return err
		}
		f.Limit = min(limit, 1000)
		for name, at := range map[string]*time.Time{"since": &f.After, "until": &f.Before} {
			if c.IsSet(name) {
				if *at, err = agoOf(c, name); err != nil {
					return err
				}
			}
		}
		return onAPI(env, 0, 0, func(ctx context.Context, c *cli.Context, s *client.Client) error {
			if c.Bool("archive") {
				list, err := client.All(ctx, s, client.ListArchive, f, limit)
				if err != nil {
					return err
				}
				return showPage(env, c, list, "No archived workflows found", workflowColumns, func(w api.Workflow) []string { return workflowRow(api.ListedWorkflow{Workflow: w}) })
			}
			list, err := client.All(ctx, s, client.ListWorkflows, f, limit)
			if err != nil {
				return err
			}
			return showPage(env, c, list, "No workflows found", workflowColumns, workflowRow)
		})(c)
	}
}

var workflowColumns = []string{"WORKFLOW", "NAME", "STATE", "SENT", "FOR"}

func workflowRow(w api.ListedWorkflow) []string {
	state := w.State
	if w.Paused {
		state += ", paused"
	}
	if w.Queued {
		state += ", queued"
	}
	return []string{w.ID, w.Name, state, w.CreatedAt.Local().Format("01-02 15:04:05"), took(w.CreatedAt, w.EndedAt)}
}

// took returns the time from start to end, or until now without an end.
func took(start, end time.Time) string {
	if start.IsZero() || end.IsZero() {
		return elapsed(start)
	}
	return lastedFor(end.Sub(start))
}

// workflowNodes is a workflow with its nodes.
type workflowNodes struct {
	api.WorkflowStatus
	Nodes []api.Node `json:"nodes"`
}

func getWorkflow(ctx context.Context, env environment, c *cli.Context, s *client.Client) error {
	if c.Bool("result") {
		return waitForResult(ctx, env, c, s, c.Args().First())
	}
	if c.Bool("archive") {
		w, err := client.GetArchived.Call(ctx, s, api.Reference{ID: c.Args().First()})
		if err != nil {
			return err
		}
		return printJSON(env.stdout, w)
	}
	w, err := client.GetWorkflow.Call(ctx, s, api.Reference{ID: c.Args().First()})
	if err != nil {
		return err
	}
	nodes, err := client.All(ctx, s, client.ListNodes, api.Reference{ID: w.ID}, 0)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(env.stdout, workflowNodes{w, nodes})
	}
	fmt.Fprintf(env.stdout, "%s  %s  %s  %d of %d tasks are done", w.ID, printable(w.Name), w.Status, w.Done, w.Total)
	if w.Paused {
		fmt.Fprint(env.stdout, "  paused")
	}
	if w.Queued {
		fmt.Fprint(env.stdout, "  queued")
	}
	if w.Origin != "" {
		fmt.Fprintf(env.stdout, "  runs %s again", w.Origin)
	}
	for _, key := range slices.Sorted(maps.Keys(w.Labels)) {
		fmt.Fprintf(env.stdout, "  %s=%s", printable(key), printable(w.Labels[key]))
	}
	fmt.Fprint(env.stdout, "\n\n")
	return writeNodes(env.stdout, nodes, c.Bool("all"))
}

// listedNodes is how many nodes with the same name and state are listed within the same node.
const listedNodes = 5

// writeNodes prints the nodes of a workflow, those within another one below it.
func writeNodes(w io.Writer, nodes []api.Node, all bool) error {
	within := map[string][]api.Node{}
	for _, n := range nodes {
		within[n.Within] = append(within[n.Within], n)
	}
	t := newTable(w, "TASK", "NODE", "STATUS", "TOOK", "AFTER", "")
	t.less = []string{"AFTER"}
	var write func(id, margin string)
	write = func(id, margin string) {
		type kind struct {
			task   string
			status tasktype.Status
		}
		count := map[kind]int{}
		for _, n := range within[id] {
			k := kind{n.Task, n.Status}
			if count[k]++; count[k] > listedNodes && !all {
				continue
			}
			t.row(margin+n.Task, n.ID, string(n.Status), took(n.StartedAt, n.EndedAt), cell(orDash(strings.Join(n.Needs, " ")), 20), noteOf(n))
			write(n.ID, margin+"  ")
		}
		for _, n := range within[id] {
			k := kind{n.Task, n.Status}
			if more := count[k] - listedNodes; more > 0 && !all {
				t.row(margin+n.Task, fmt.Sprintf("%d more", more), string(n.Status), "", "", "")
			}
			delete(count, k)
		}
	}
	write("", "")
	return t.flush()
}

// noteOf returns the remarks on a node.
func noteOf(n api.Node) string {
	var notes []string
	if n.Status == tasktype.Started && n.Worker != "" {
		notes = append(notes, "on "+n.Worker)
	}
	if n.Total > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d", n.Done, n.Total))
	}
	if !n.DueAt.IsZero() {
		notes = append(notes, "due in "+max(0, time.Until(n.DueAt)).Round(time.Second).String())
	}
	if n.Attempts > 1 {
		notes = append(notes, fmt.Sprintf("%d attempts", n.Attempts))
	}
	switch {
	case n.Failure != nil && n.Status == tasktype.Revoked && n.Failure.Code == tasktype.CodeRevoked: // the state shows it
	case n.Failure != nil && n.Status != tasktype.Skipped:
		notes = append(notes, n.Failure.Message)
	case n.Message != "":
		notes = append(notes, n.Message)
	}
	if n.Waits != "" {
		notes = append(notes, n.Waits)
	}
	return strings.Join(notes, ", ")
}

func sendWorkflow(env environment) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := arguments(c, 2, 2); err != nil {
			return err
		}
		input, err := valueOf(env, "input", c.Args().Get(1))
		if err != nil {
			return err
		}
		if c.Duration("in") < 0 || c.Duration("timeout") < 0 || c.IsSet("timeout") && !c.Bool("wait") {
			return usageError{errors.New("--in and --timeout take a positive duration, such as 30s, and --timeout needs --wait")}
		}
		w := api.NewWorkflow{Task: c.Args().First(), Input: input, Queue: c.String("queue"), Name: c.String("name"), External: c.Bool("external")}
		if w.Labels, err = tasktype.ParseLabels(c.StringSlice("label")); err != nil {
			return usageError{err}
		}
		if d := c.Duration("in"); d > 0 {
			w.Delay = d.String()
		}
		if d := c.Duration("deadline"); d > 0 {
			w.DeadlineAt = time.Now().Add(d)
		} else if c.IsSet("deadline") {
			return usageError{fmt.Errorf("--deadline %s must be more than 0", d)}
		}
		return onAPI(env, 2, 2, func(ctx context.Context, c *cli.Context, s *client.Client) error {
			if !w.External { // it needs a handler
				switch err := known(ctx, env, s, w.Task, w.Queue); {
				case err != nil && !c.Bool("force"):
					return fmt.Errorf("%w, or send it with --force", err)
				case err != nil:
					fmt.Fprintf(env.stderr, "muster: %v; sent anyway\n", err)
				}
			}
			sent, err := client.SendWorkflow.Call(ctx, s, client.With[api.NewWorkflow]{Body: w})
			return showSent(ctx, env, c, s, sent, err)
		})(c)
	}
}

// showSent prints the ID of a new workflow, or waits for its result with --wait.
func showSent(ctx context.Context, env environment, c *cli.Context, s *client.Client, sent api.SentWorkflow, err error) error {
	if err == nil && c.Bool("wait") {
		return waitForResult(ctx, env, c, s, sent.ID)
	}
	return showDone(env, c, sent, err, "%s", sent.ID)
}

// valueOf returns the JSON of an argument, or of standard input if it is -.
func valueOf(env environment, name, text string) (json.RawMessage, error) {
	value := []byte(text)
	if text == "-" {
		var err error
		if value, err = io.ReadAll(io.LimitReader(env.stdin, maxInput+1)); err != nil {
			return nil, fmt.Errorf("read the %s: %w", name, err)
		}
	}
	if len(value) > maxInput {
		return nil, usageError{fmt.Errorf("the %s is over %d MiB; store it and send its address", name, maxInput>>20)}
	}
	if !json.Valid(value) {
		return nil, usageError{fmt.Errorf("the %s is not JSON: %.40q; a string needs its own quotes: '\"text\"'", name, value)}
	}
	return value, nil
}

// waitForResult waits for a workflow, for at most --timeout, and prints its result.
func waitForResult(ctx context.Context, env environment, c *cli.Context, s *client.Client, id string) error {
	var r api.WorkflowResult
	for began := time.Now(); !r.Status.Terminal(); {
		wait, timeout := time.Minute, c.Duration("timeout")
		if timeout > 0 {
			if wait = min(wait, timeout-time.Since(began)); wait <= 0 {
				return fmt.Errorf("%s has no result after %s and continues; see muster workflows get %s", id, timeout, id)
			}
		}
		var err error
		if r, err = client.GetWorkflowResult.Call(ctx, s, api.ResultWait{Reference: api.Reference{ID: id}, Wait: wait.String()}); err != nil {
			return withState(ctx, err, "%s continues; see muster workflows get %s, or end it with muster workflows cancel %s", id, id, id)
		}
	}
	if c.Bool("json") {
		if err := printJSON(env.stdout, r); err != nil || r.Failure == nil {
			return err
		}
	}
	if r.Failure != nil {
		return r.Failure
	}
	return done(env, nil, "%s", r.Result)
}

// known returns an error if no running worker handles the task or its queue. It returns nil if no
// worker is running.
func known(ctx context.Context, env environment, s *client.Client, name, queue string) error {
	workers, err := client.All(ctx, s, client.ListWorkers, api.Ping{}, 0)
	if err != nil {
		return err
	}
	if len(workers) == 0 {
		fmt.Fprintln(env.stderr, "muster: no workers are running; the task runs as soon as one does")
		return nil
	}
	var names, queues []string
	for _, w := range workers {
		if names = append(names, w.Tasks...); !slices.Contains(w.Tasks, name) {
			continue
		}
		if w.Queues[queue] > 0 {
			return nil
		}
		queues = append(queues, slices.Collect(maps.Keys(w.Queues))...)
	}
	if len(queues) == 0 {
		return fmt.Errorf("no worker has a handler for %q%s; see muster workers list --tasks", name, suggest(name, names))
	}
	slices.Sort(queues)
	return fmt.Errorf("no worker with a handler for %q runs tasks of the queue %q; send it with --queue %s",
		name, queue, strings.Join(slices.Compact(queues), " or "))
}

// retryWorkflows retries workflows by ID or, with --all, by a filter.
func retryWorkflows(env environment) cli.ActionFunc {
	return func(c *cli.Context) error {
		inputs, err := inputsOf(c)
		if err != nil {
			return err
		}
		r := api.Retry{Inputs: inputs, DropSteps: map[string][]string{}}
		for _, text := range c.StringSlice("drop-steps") {
			node, step, one := strings.Cut(text, "=")
			r.DropSteps[node] = append([]string{}, r.DropSteps[node]...)
			if one {
				r.DropSteps[node] = append(r.DropSteps[node], step)
			}
		}
		if !c.Bool("all") {
			if len(r.Inputs)+len(r.DropSteps) > 0 && c.NArg() > 1 {
				return usageError{errors.New("--input and --drop-steps need one ID")}
			}
			return onAPI(env, 1, -1, func(ctx context.Context, c *cli.Context, s *client.Client) error {
				for _, id := range c.Args().Slice() {
					if err := done(env, client.RetryWorkflow.Do(ctx, s, api.WorkflowRetry{Reference: api.Reference{ID: id}, Body: &r}), "retried: %s", id); err != nil {
						return err
					}
				}
				return nil
			})(c)
		}
		return changeAll(env, c, "retried", client.RetryWorkflows)
	}
}

// cancelWorkflows cancels workflows by ID or, with --all, by a filter.
func cancelWorkflows(env environment) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.Bool("all") {
			return changeAll(env, c, "cancelled", client.CancelWorkflows)
		}
		return stopWorkflows(env, "cancelled", client.CancelWorkflow)(c)
	}
}

// filterFlags are the flags of changeAll.
func filterFlags(all, since string) []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "all", Usage: all},
		&cli.StringFlag{Name: "name", Usage: "with --all: only workflows with this name, or whose first or last task is `NAME`"},
		labelFlag("with --all: only workflows with the label `KEY=VALUE`; may be repeated"),
		&cli.DurationFlag{Name: "since", Usage: "with --all: only workflows that " + since + " in the last `D`"},
		serverFlag(),
	}
}

// changeAll changes the workflows that flags select, a page at a time, and prints their number. past names the change.
func changeAll(env environment, c *cli.Context, past string, change client.Operation[client.With[api.SelectWorkflows], api.ChangedWorkflows]) error {
	labels, err := tasktype.ParseLabels(c.StringSlice("label"))
	if err != nil {
		return usageError{err}
	}
	f := api.SelectWorkflows{Name: c.String("name"), Labels: labels, Limit: 1000}
	if c.IsSet("since") {
		if f.After, err = agoOf(c, "since"); err != nil {
			return err
		}
	}
	return onAPI(env, 0, 0, func(ctx context.Context, _ *cli.Context, s *client.Client) error {
		changed, failed := 0, 0
		for {
			page, err := change.Call(ctx, s, client.With[api.SelectWorkflows]{Body: f})
			if err != nil {
				return fmt.Errorf("after %d workflows: %w", changed, err)
			}
			changed += page.Changed
			for _, w := range page.Failed {
				failed++
				fmt.Fprintf(env.stderr, "not %s: %s: %s\n", past, w.ID, w.Code)
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				break
			}
		}
		fmt.Fprintf(env.stdout, "%s %d workflows\n", past, changed)
		if failed > 0 {
			return fmt.Errorf("%d workflows were not %s", failed, past)
		}
		return nil
	})(c)
}

// stopWorkflows stops the workflows of the arguments that have not ended, and prints the result for each.
func stopWorkflows(env environment, stopped string, stop client.Operation[api.WorkflowChange, client.None]) cli.ActionFunc {
	return onAPI(env, 1, -1, func(ctx context.Context, c *cli.Context, s *client.Client) error {
		for _, id := range c.Args().Slice() {
			w, err := client.GetWorkflow.Call(ctx, s, api.Reference{ID: id})
			if err == nil && w.Status.Terminal() {
				fmt.Fprintf(env.stdout, "ended already: %s, %s\n", id, w.Status)
				continue
			}
			if err == nil {
				err = stop.Do(ctx, s, api.WorkflowChange{Reference: api.Reference{ID: id}})
			}
			if err := done(env, err, "%s: %s", stopped, id); err != nil {
				return err
			}
		}
		return nil
	})
}
