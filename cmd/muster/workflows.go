package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/internal/nearest"
	"muster/orchestrator/api/client"
	"muster/tasks/api"
	"muster/tasks/tasktype"
)

// maxInput is the limit of the input and the result of a task, in bytes.
const maxInput = 16 << 20

func workflowsCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "workflows",
		Usage: "send, list, stop and retry workflows of tasks",
		Description: `The commands call the API of the orchestrator of the data directory, or of --server.
If no orchestrator is running, they use the Redis of the data directory, or of --redis.`,
		Subcommands: []*cli.Command{
			apiCommand(env, &cli.Command{
				Name: "list", Usage: "list running workflows and finished ones with kept results, latest first",
				Flags: []cli.Flag{&cli.BoolFlag{Name: "archive", Usage: "list archived workflows; see the setting archive"}, jsonFlag()},
			}, listWorkflows),
			apiCommand(env, &cli.Command{
				Name: "get", Usage: "show a workflow and its tasks, with states and times", ArgsUsage: "ID",
				Description: `A task within another one is indented below it. Of many tasks with the same name and
state, only the first are listed. With --wait it prints the result instead. A workflow that
has expired in Redis is printed from the archive, as JSON.`,
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "all", Usage: "list all tasks"},
					programFlag("wait"), programFlag("timeout"), jsonFlag(),
				},
			}, getWorkflow),
			apiCommand(env, &cli.Command{
				Name: "send", Usage: "send a task by its name", ArgsUsage: "TASK JSON",
				Description: `JSON is the task's input, or - for standard input. Prints the ID of the workflow, or
with --wait its result.`,
				Flags: []cli.Flag{programFlag("wait"), programFlag("timeout"), forceFlag(), jsonFlag()},
			}, sendWorkflow),
			apiCommand(env, &cli.Command{
				Name: "cancel", Usage: "end workflows with cleanup: their tasks fail, and tasks that handle failures run", ArgsUsage: "[ID…]",
				Description: "With --all instead of IDs, it cancels the running workflows that the other flags select.",
				Flags:       []cli.Flag{&cli.BoolFlag{Name: "all", Usage: "cancel running workflows"}}, Before: namedOr("all"),
			}, func(s scope, in client.With[api.SelectWorkflows]) error {
				if s.Bool("all") {
					return s.changeAll("cancelled", client.CancelWorkflows, in)
				}
				return s.stopWorkflows("cancelled", client.CancelWorkflow)
			}),
			apiCommand(env, &cli.Command{
				Name: "retry", Usage: "run the failed and skipped tasks of ended workflows again", ArgsUsage: "[ID…]",
				Description: "With --all instead of IDs, it retries the failed workflows that the other flags select.",
				Flags:       []cli.Flag{&cli.BoolFlag{Name: "all", Usage: "retry failed workflows"}}, Before: namedOr("all"),
			}, retryWorkflows),
			apiCommand(env, &cli.Command{
				Name: "run-again", Usage: "send a new workflow with the tasks and inputs of an ended one", ArgsUsage: "ID",
				Description: "Prints the ID of the new workflow, or with --wait its result.",
				Flags:       []cli.Flag{programFlag("wait"), programFlag("timeout"), jsonFlag()},
			}, func(s scope, in api.ToWorkflow[*api.RunAgain]) error {
				sent, err := client.RunWorkflowAgain.Call(s.ctx, s.api, in)
				return s.showSent(sent, err)
			}),
			apiCommand(env, &cli.Command{
				Name: "output", Usage: "print the output of the tasks of a workflow until it has ended", ArgsUsage: "ID [NODE]",
				Description: "The text of chunks is printed without separators. --json prints each chunk as a line of JSON.",
				Flags:       []cli.Flag{jsonFlag()},
			}, printOutput),
			apiCommand(env, &cli.Command{
				Name: "revoke", Usage: "stop workflows without cleanup: waiting tasks never run, running tasks are cancelled", ArgsUsage: "ID…",
				Flags: []cli.Flag{&cli.StringFlag{Name: "node", Usage: "only `NODE` and the nodes that depend on it", DefaultText: "all"}},
			}, func(s scope, _ client.None) error {
				if node := s.String("node"); node != "" {
					if s.NArg() > 1 {
						return usageError{errors.New("--node needs one ID")}
					}
					of := api.NodeReference{Reference: api.Reference{ID: s.Args().First()}, Node: node}
					return done(env, client.RevokeNode.Do(s.ctx, s.api, api.NodeChange{NodeReference: of}), "revoked: node %s of %s", node, of.ID)
				}
				return s.stopWorkflows("revoked", client.RevokeWorkflow)
			}),
			act(env, &cli.Command{Name: "delete", Usage: "delete ended workflows with their results", ArgsUsage: "ID…"},
				client.DeleteWorkflow, func(in api.Reference, _ client.None) string { return "deleted: " + in.ID }),
		},
	}
}

func printOutput(s scope, in api.Reference) error {
	return s.api.WorkflowOutput(s.ctx, in.ID, s.Args().Get(1), func(chunk tasktype.Chunk) error {
		text := printableLines(chunk.Text())
		if s.Bool("json") {
			raw, err := json.Marshal(chunk)
			if err != nil {
				return err
			}
			text = string(raw) + "\n"
		} else if chunk.Begin && chunk.Attempt > 1 {
			fmt.Fprintf(s.env.stderr, "muster: attempt %d of node %s begins\n", chunk.Attempt, chunk.Node)
		}
		_, err := io.WriteString(s.env.stdout, text)
		return err
	})
}

// namedOr returns a check of a command that takes either arguments or a flag.
func namedOr(flag string) cli.BeforeFunc {
	return func(c *cli.Context) error {
		if c.IsSet(flag) == (c.NArg() > 0) {
			return usageError{fmt.Errorf("not enough arguments: use either names or --%s; usage: %s", flag, usageOf(c.Command))}
		}
		return nil
	}
}

// inputsOf returns the inputs of --input, NODE=JSON, by node.
func inputsOf(words []string) (map[string]json.RawMessage, error) {
	inputs := map[string]json.RawMessage{}
	for _, text := range words {
		node, input, ok := strings.Cut(text, "=")
		if !ok || !json.Valid([]byte(input)) {
			return nil, fmt.Errorf("--input %q must be NODE=JSON", text)
		}
		inputs[node] = json.RawMessage(input)
	}
	return inputs, nil
}

// forceFlag is for commands that send tasks.
func forceFlag() cli.Flag {
	return &cli.BoolFlag{Name: "force", Usage: "send it even when no worker has a handler for it"}
}

// done prints the result, unless err is not nil.
func done(env environment, err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.stdout, format+"\n", args...)
	return err
}

func listWorkflows(s scope, f api.WorkflowFilter) error {
	if s.Bool("archive") {
		return printAll(s, client.ListArchive, f, "No archived workflows found", workflowColumns, func(w api.Workflow) []any { return workflowRow(api.ListedWorkflow{Workflow: w}) })
	}
	return printAll(s, client.ListWorkflows, f, "No workflows found", workflowColumns, workflowRow)
}

const workflowColumns = "WORKFLOW NAME STATE SENT FOR"

func workflowRow(w api.ListedWorkflow) []any {
	state := w.State
	if w.Paused {
		state += ", paused"
	}
	if w.Queued {
		state += ", queued"
	}
	return []any{w.ID, w.Name, state, w.CreatedAt.Local().Format("01-02 15:04:05"), took(w.CreatedAt, w.EndedAt)}
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
	Nodes []tasktype.Node `json:"nodes"`
}

func getWorkflow(s scope, in api.Reference) error {
	if s.Bool("wait") {
		return s.waitForResult(in.ID)
	}
	w, err := client.GetWorkflow.Call(s.ctx, s.api, in)
	if err != nil {
		if archived, none := client.GetArchived.Call(s.ctx, s.api, in); none == nil {
			return printJSON(s.env.stdout, archived)
		}
		return err
	}
	nodes, err := client.All(s.ctx, s.api, client.ListNodes, in, 0)
	if err != nil {
		return err
	}
	if s.Bool("json") {
		return printJSON(s.env.stdout, workflowNodes{w, nodes})
	}
	fmt.Fprintf(s.env.stdout, "%s  %s  %s  %d of %d tasks are done", w.ID, printable(w.Name), w.Status, w.Done, w.Total)
	if w.Paused {
		fmt.Fprint(s.env.stdout, "  paused")
	}
	if w.Queued {
		fmt.Fprint(s.env.stdout, "  queued")
	}
	if w.Origin != "" {
		fmt.Fprintf(s.env.stdout, "  runs %s again", w.Origin)
	}
	for _, key := range slices.Sorted(maps.Keys(w.Labels)) {
		fmt.Fprintf(s.env.stdout, "  %s=%s", printable(key), printable(w.Labels[key]))
	}
	fmt.Fprint(s.env.stdout, "\n\n")
	return writeNodes(s.env.stdout, nodes, s.Bool("all"))
}

// listedNodes is how many nodes with the same name and state are listed within the same node.
const listedNodes = 5

// writeNodes prints the nodes of a workflow, those within another one below it.
func writeNodes(w io.Writer, nodes []tasktype.Node, all bool) error {
	within := map[string][]tasktype.Node{}
	for _, n := range nodes {
		within[n.Within] = append(within[n.Within], n)
	}
	t := newTable(w, "TASK NODE STATUS TOOK AFTER _")
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
			t.row(margin+n.Task, n.ID, n.Status, took(n.Started, n.Ended), cell(strings.Join(n.Needs, " "), 20), noteOf(n))
			write(n.ID, margin+"  ")
		}
		for _, n := range within[id] {
			k := kind{n.Task, n.Status}
			if more := count[k] - listedNodes; more > 0 && !all {
				t.row(margin+n.Task, fmt.Sprintf("%d more", more), n.Status, " ", " ", "")
			}
			delete(count, k)
		}
	}
	write("", "")
	return t.flush()
}

// noteOf returns the remarks on a node.
func noteOf(n tasktype.Node) string {
	var notes []string
	if n.Status == tasktype.Started && n.Worker != "" {
		notes = append(notes, "on "+n.Worker)
	}
	if n.Total > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d", n.Done, n.Total))
	}
	if !n.Due.IsZero() {
		notes = append(notes, "due in "+max(0, time.Until(n.Due)).Round(time.Second).String())
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

func sendWorkflow(s scope, in client.With[api.NewWorkflow]) error {
	var unknown error
	if !in.Body.External { // it needs a handler
		unknown = s.known(in.Body.Task, in.Body.Queue)
	}
	if unknown != nil && !s.Bool("force") {
		return fmt.Errorf("%w, or send it with --force", unknown)
	}
	sent, err := client.SendWorkflow.Call(s.ctx, s.api, in)
	if err == nil && unknown != nil {
		fmt.Fprintf(s.env.stderr, "muster: %v; sent anyway\n", unknown)
	}
	return s.showSent(sent, err)
}

// showSent prints the ID of a new workflow, or waits for its result with --wait.
func (s scope) showSent(sent api.SentWorkflow, err error) error {
	if err == nil && s.Bool("wait") {
		return s.waitForResult(sent.ID)
	}
	return showDone(s, sent, err, "%s", sent.ID)
}

// valueOf returns the JSON of an argument, of the file after an @, or of standard input if it is -.
func valueOf(env environment, name, text string) (json.RawMessage, error) {
	value, from := []byte(text), env.stdin
	if path, ok := strings.CutPrefix(text, "@"); ok {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("read the %s: %w", name, err)
		}
		defer file.Close()
		text, from = "-", file
	}
	if text == "-" {
		var err error
		if value, err = io.ReadAll(io.LimitReader(from, maxInput+1)); err != nil {
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

// objectOf is valueOf for an object, without the white space around it.
func objectOf(env environment, name, text string) (client.Object, error) {
	value, err := valueOf(env, name, text)
	if value = bytes.TrimSpace(value); err == nil && value[0] != '{' {
		err = usageError{fmt.Errorf("the %s is not a JSON object such as '{\"customer\": \"acme\"}', or @FILE", name)}
	}
	return client.Object(value), err
}

// waitForResult waits for a workflow and prints its result.
func (s scope) waitForResult(id string) error {
	var r api.WorkflowResult
	for !r.Status.Terminal() {
		var err error
		if r, err = client.GetWorkflowResult.Call(s.ctx, s.api, api.ResultWait{Reference: api.Reference{ID: id}, Wait: "1m"}); err != nil {
			return withState(s.ctx, err, "%s continues; see muster workflows get %s, or end it with muster workflows cancel %s", id, id, id)
		}
	}
	if s.Bool("json") {
		if err := printJSON(s.env.stdout, r); err != nil || r.Failure == nil {
			return err
		}
	}
	if r.Failure != nil {
		return r.Failure
	}
	return done(s.env, nil, "%s", r.Result)
}

// known returns an error if no running worker handles the task or its queue. It returns nil if no
// worker is running.
func (s scope) known(name, queue string) error {
	workers, err := client.All(s.ctx, s.api, client.ListWorkers, api.Ping{}, 0)
	if err != nil {
		return err
	}
	if len(workers) == 0 {
		fmt.Fprintln(s.env.stderr, "muster: no workers are running; the task runs as soon as one does")
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
		return fmt.Errorf("no worker has a handler for %q%s; see muster workers list --tasks", name, nearest.Hint(name, names))
	}
	slices.Sort(queues)
	return fmt.Errorf("no worker with a handler for %q runs tasks of the queue %q; send it with --queue %s",
		name, queue, strings.Join(slices.Compact(queues), " or "))
}

// workflowsRetry is the input of a retry, of workflows by ID or by a filter.
type workflowsRetry struct {
	client.With[api.SelectWorkflows]
	api.Retry
}

func retryWorkflows(s scope, in workflowsRetry) error {
	switch {
	case len(in.Inputs)+len(in.DropSteps) > 0 && s.NArg() != 1:
		return usageError{errors.New("--input and --drop-steps need one ID")}
	case s.Bool("all"):
		return s.changeAll("retried", client.RetryWorkflows, in.With)
	}
	return forEach(s, s.Args().Slice(), func(id string) error {
		return done(s.env, client.RetryWorkflow.Do(s.ctx, s.api, api.ToWorkflow[*api.Retry]{Reference: api.Reference{ID: id}, Body: &in.Retry}), "retried: %s", id)
	})
}

// dropped returns the steps of --drop-steps, NODE=STEP or NODE, by node.
func dropped(words []string) map[string][]string {
	steps := map[string][]string{}
	for _, text := range words {
		node, step, one := strings.Cut(text, "=")
		steps[node] = append([]string{}, steps[node]...)
		if one {
			steps[node] = append(steps[node], step)
		}
	}
	return steps
}

// changeAll changes the workflows of a filter, a page at a time, and prints their number. past names the change.
func (s scope) changeAll(past string, change client.Operation[client.With[api.SelectWorkflows], api.ChangedWorkflows], in client.With[api.SelectWorkflows]) error {
	in.Body.Limit = 1000
	changed, failed := 0, 0
	for {
		page, err := change.Call(s.ctx, s.api, in)
		if err != nil {
			return fmt.Errorf("after %d workflows: %w", changed, err)
		}
		changed += page.Changed
		for _, w := range page.Failed {
			failed++
			fmt.Fprintf(s.env.stderr, "not %s: %s: %s\n", past, w.ID, w.Code)
		}
		if in.Body.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	fmt.Fprintf(s.env.stdout, "%s %d workflows\n", past, changed)
	if failed > 0 {
		return fmt.Errorf("%d workflows were not %s", failed, past)
	}
	return nil
}

// stopWorkflows stops the workflows of the arguments that have not ended, and prints the result for each.
func (s scope) stopWorkflows(stopped string, stop client.Operation[api.WorkflowChange, client.None]) error {
	return forEach(s, s.Args().Slice(), func(id string) error {
		w, err := client.GetWorkflow.Call(s.ctx, s.api, api.Reference{ID: id})
		if err == nil && w.Status.Terminal() {
			return done(s.env, nil, "ended already: %s, %s", id, w.Status)
		}
		if err == nil {
			err = stop.Do(s.ctx, s.api, api.WorkflowChange{Reference: api.Reference{ID: id}})
		}
		return done(s.env, err, "%s: %s", stopped, id)
	})
}
