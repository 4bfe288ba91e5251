package tasks

import (
	"context"
	"fmt"
	"time"

	"muster/tasks/internal/engine"
	"muster/tasks/tasktype"
)

// Nodes returns the nodes of a workflow in the order of its definition, with states and times. For a node that could
// run, but that no live worker can take, Waits has the reason.
func (c *Client) Nodes(ctx context.Context, id string) ([]tasktype.Node, error) {
	nodes, err := c.eng.Inspector.Nodes(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("nodes of workflow %s: %w", id, err)
	}
	return nodes, nil
}

// Workers returns the live workers, by name.
func (c *Client) Workers(ctx context.Context) ([]tasktype.Worker, error) {
	ws, err := c.eng.Fleet.Workers(ctx)
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	return ws, nil
}

// PingWorkers pings every live worker, and returns for each whether it responded within wait. It returns as soon as all
// have responded.
func (c *Client) PingWorkers(ctx context.Context, wait time.Duration) ([]tasktype.Pong, error) {
	ps, err := c.eng.Fleet.Ping(ctx, wait)
	if err != nil {
		return nil, fmt.Errorf("ping workers: %w", err)
	}
	return ps, nil
}

// Active returns the nodes that workers have, by worker. Each node is running, or waits briefly for a slot.
func (c *Client) Active(ctx context.Context) ([]tasktype.ActiveNode, error) {
	as, err := c.eng.Inspector.Active(ctx)
	if err != nil {
		return nil, fmt.Errorf("list active nodes: %w", err)
	}
	return as, nil
}

// Due returns at most limit nodes that wait for their time, the earliest first.
func (c *Client) Due(ctx context.Context, limit int) ([]tasktype.DueNode, error) {
	ds, err := c.eng.Inspector.Due(ctx, limit)
	if err != nil {
		return nil, fmt.Errorf("list scheduled nodes: %w", err)
	}
	return ds, nil
}

// Reserved returns at most limit nodes of each queue that are ready and that no worker has taken yet.
func (c *Client) Reserved(ctx context.Context, limit int) ([]tasktype.ReservedNode, error) {
	rs, err := c.eng.Inspector.Reserved(ctx, limit)
	if err != nil {
		return nil, fmt.Errorf("list reserved nodes: %w", err)
	}
	return rs, nil
}

// Queues returns the state of all queues that tasks were sent to.
func (c *Client) Queues(ctx context.Context) ([]tasktype.Queue, error) {
	qs, err := c.eng.Inspector.Queues(ctx)
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	return qs, nil
}

// Outbox returns the size of the outbox and its delay. The outbox has the nodes that wait for
// their time, and the steps that workers repeat if the process that should take them has died.
func (c *Client) Outbox(ctx context.Context) (tasktype.Outbox, error) {
	o, err := c.eng.Inspector.Outbox(ctx)
	if err != nil {
		return o, fmt.Errorf("read outbox: %w", err)
	}
	return o, nil
}

// Workflows returns a page of the workflows that f selects, the latest first, and the cursor
// of the next page: call again with it in f.Cursor until it is empty. A page can be short, or empty, although
// others follow it.
//
// All running workflows are listed. Of the ended workflows, the last 100,000 failed ones and the last 10,000 of each other
// state are listed (on a Redis Cluster, of each shard), for as long as their results are kept.
func (c *Client) Workflows(ctx context.Context, f tasktype.WorkflowFilter) (page []tasktype.Workflow, next string, err error) {
	page, next, err = c.eng.Inspector.Workflows(ctx, f)
	if err != nil {
		return nil, "", fmt.Errorf("list workflows: %w", err)
	}
	return page, next, nil
}

// Rates returns the counts that f selects, by time, queue and task. A minute or hour in which no task ended has
// no point. Counts by minute are kept for 24 hours, counts by hour for 30 days. When there are very many tasks, tasks that
// first ended late in an hour (or day) are counted together, as the task "(other)" of their queue. Workers store counts once a
// second; a killed worker loses the counts of its last second.
func (c *Client) Rates(ctx context.Context, f tasktype.RateFilter) ([]tasktype.RatePoint, error) {
	points, err := c.eng.Inspector.Rates(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("read rates: %w", err)
	}
	return points, nil
}

// History returns the series that f selects, by name: depths of queues and memory of workers, every minute of the last 25
// hours. A minute in which no worker was running has no value. It includes at most 300 series per hour.
func (c *Client) History(ctx context.Context, f tasktype.HistoryFilter) ([]tasktype.Series, error) {
	list, err := c.eng.Inspector.History(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	return list, nil
}

// ErrNoNode means that a workflow has no node with the given id.
var ErrNoNode = engine.ErrNoNode

// Node returns a node of a workflow with its input and its attempts, however large the workflow is. It does not set fields
// that depend on other nodes: Needs and Side, and Waits unless the node waits for external completion. It returns
// [ErrUnknown] or [ErrNoNode].
//
// The input of a node that comes after others is their value. An input that the workflow was sent with is kept while
// its node has not ended, and when it fails. After success it is kept if all such inputs of the workflow have at most
// 4 KiB together.
func (c *Client) Node(ctx context.Context, id, node string) (tasktype.NodeDetail, error) {
	d, err := c.eng.Inspector.Node(ctx, id, node)
	if err != nil {
		return d, fmt.Errorf("node %.100s of workflow %s: %w", node, id, err)
	}
	return d, nil
}

// OpenTasks returns the tasks with open nodes, which wait for an external result, by name and with the number of nodes:
// at most 1,000 tasks (on a Redis Cluster, of each shard). [Client.OpenTokens] lists the nodes.
func (c *Client) OpenTasks(ctx context.Context) ([]tasktype.OpenTask, error) {
	list, err := c.eng.Completer.Tasks(ctx)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// CountWorkflows returns how many workflows [Client.Workflows] can list in each state. The number of running workflows is
// exact; the others may include workflows whose results are no longer kept, which are not listed.
func (c *Client) CountWorkflows(ctx context.Context) (map[tasktype.WorkflowState]int64, error) {
	counts, err := c.eng.Inspector.Counts(ctx)
	if err != nil {
		return nil, fmt.Errorf("count workflows: %w", err)
	}
	return counts, nil
}

// CountDue counts the tasks that wait for their time, by queue, without reading their inputs: the first limit tasks of
// workflows (on a Redis Cluster, of each shard), and all of asynq's own tasks. [Client.Due] lists the tasks of workflows.
func (c *Client) CountDue(ctx context.Context, limit int) ([]tasktype.DueCount, error) {
	counts, err := c.eng.Inspector.CountDue(ctx, limit)
	if err != nil {
		return nil, fmt.Errorf("count scheduled tasks: %w", err)
	}
	return counts, nil
}

// Durations returns how long the handlers of tasks ran, by hour, queue and task, for the last 24 hours. Each
// attempt that ended with a value, a failure or another attempt to follow counts.
func (c *Client) Durations(ctx context.Context, f tasktype.DurationFilter) ([]tasktype.DurationPoint, error) {
	points, err := c.eng.Inspector.Durations(ctx, f.Queue, f.Task, f.Since)
	if err != nil {
		return nil, fmt.Errorf("read durations: %w", err)
	}
	return points, nil
}

// Failures returns at most limit of the last 100 nodes of a task that failed in the last day, the newest first (on a
// Redis Cluster, the last 100 of each shard). Nodes of workflows whose results are no longer kept are left out.
func (c *Client) Failures(ctx context.Context, task string, limit int) ([]tasktype.FailedNode, error) {
	list, err := c.eng.Inspector.Failures(ctx, task, limit)
	if err != nil {
		return nil, fmt.Errorf("list failed nodes of task %s: %w", task, err)
	}
	return list, nil
}
