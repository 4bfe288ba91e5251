package tasks

import (
	"context"
	"fmt"
	"time"

	"muster/tasks/internal/engine"
	"muster/tasks/tasktype"
)

// Inspector reads what operators want to know of tasks, their nodes and their failures, beside what [Client] lists. It
// may be used by many goroutines at once.
type Inspector struct{ client *Client }

// NewInspector returns an inspector of what c sends to. It does no I/O.
func NewInspector(c *Client) *Inspector { return &Inspector{c} }

// ErrNoNode means that a workflow has no node with the given id.
var ErrNoNode = engine.ErrNoNode

// Node returns a node of a workflow with its input and its attempts, however large the workflow is. It leaves out what
// takes the other nodes: Needs and Side, and Waits unless the node waits for an answer from outside. Its errors are
// [ErrUnknown] and [ErrNoNode].
//
// The input of a node that comes after others is their value. An input that the workflow was sent with is kept while
// its node has not ended, and when it fails. After success it is kept if all such inputs of the workflow have at most
// 4 KiB together.
func (in *Inspector) Node(ctx context.Context, id, node string) (tasktype.NodeDetail, error) {
	d, err := in.client.eng.Inspector.Node(ctx, id, node)
	if err != nil {
		return d, fmt.Errorf("node %.100s of workflow %s: %w", node, id, err)
	}
	return d, nil
}

// OpenTasks returns the tasks that have nodes that wait for an answer, by name, with their number: at most 1,000 tasks
// (on a Redis Cluster, of each shard). [Client.OpenTokens] lists the nodes.
func (in *Inspector) OpenTasks(ctx context.Context) ([]tasktype.OpenTask, error) {
	list, err := in.client.eng.Answers.Tasks(ctx)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// CountWorkflows returns how many workflows [Client.Workflows] can list in each state. The number of those that are
// running is exact; among the others may be some whose results are no longer kept, which are not listed.
func (in *Inspector) CountWorkflows(ctx context.Context) (map[tasktype.WorkflowState]int64, error) {
	counts, err := in.client.eng.Inspector.Counts(ctx)
	if err != nil {
		return nil, fmt.Errorf("count workflows: %w", err)
	}
	return counts, nil
}

// CountDue counts the tasks that wait for their time, by queue, without reading their inputs: the first limit tasks of
// workflows (on a Redis Cluster, of each shard), and all of asynq's own tasks. [Client.Due] lists those of workflows.
func (in *Inspector) CountDue(ctx context.Context, limit int) ([]tasktype.DueCount, error) {
	counts, err := in.client.eng.Inspector.CountDue(ctx, limit)
	if err != nil {
		return nil, fmt.Errorf("count scheduled tasks: %w", err)
	}
	return counts, nil
}

// DurationFilter selects what [Inspector.Durations] returns. The zero value selects all tasks, of the last 24 hours.
type DurationFilter struct {
	Queue string    // empty: all
	Task  string    // empty: all
	Since time.Time // from the hour of this time on; zero: all that are kept
}

// Durations returns how long the handlers of tasks ran, by hour, queue and task, for the last 24 hours. Each
// attempt that ended with a value, a failure or another attempt to follow counts.
func (in *Inspector) Durations(ctx context.Context, f DurationFilter) ([]tasktype.DurationPoint, error) {
	points, err := in.client.eng.Inspector.Durations(ctx, f.Queue, f.Task, f.Since)
	if err != nil {
		return nil, fmt.Errorf("read durations: %w", err)
	}
	return points, nil
}

// Failures returns at most limit of the last 100 nodes of a task that failed in the last day, the newest first (on a
// Redis Cluster, the last 100 of each shard). Nodes of workflows whose results are no longer kept are left out.
func (in *Inspector) Failures(ctx context.Context, task string, limit int) ([]tasktype.FailedNode, error) {
	list, err := in.client.eng.Inspector.Failures(ctx, task, limit)
	if err != nil {
		return nil, fmt.Errorf("list failed nodes of task %s: %w", task, err)
	}
	return list, nil
}
