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

// PingWorkers asks every live worker for an answer, and returns for each whether it answered within wait. It returns
// as soon as all have answered.
func (c *Client) PingWorkers(ctx context.Context, wait time.Duration) ([]tasktype.Pong, error) {
	ps, err := c.eng.Fleet.Ping(ctx, wait)
	if err != nil {
		return nil, fmt.Errorf("ping workers: %w", err)
	}
	return ps, nil
}

// Active returns the nodes in the batches of workers, by worker. Each node is running, or waits briefly for a node
// before it in its batch.
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

// Outbox returns the size of the outbox and how far workers are behind with it. The outbox has the nodes that wait for
// their time, and the steps that workers repeat if the process that should take them has died.
func (c *Client) Outbox(ctx context.Context) (tasktype.Outbox, error) {
	o, err := c.eng.Inspector.Outbox(ctx)
	if err != nil {
		return o, fmt.Errorf("read outbox: %w", err)
	}
	return o, nil
}

// WorkflowFilter selects the workflows that [Client.Workflows] lists. The zero value selects all.
//
// The time of a workflow is when it ended or, while it is running, when it was sent.
type WorkflowFilter struct {
	State    tasktype.WorkflowState // empty: any
	Name     string                 // the whole name, or that of the first or last task; empty: any
	Contains string                 // a part of the name, in any case; empty: any
	After    time.Time              // the earliest time; zero: no bound
	Before   time.Time              // times must be before this one; zero: no bound
	Cursor   string                 // next of the page before; empty: the first page
	Limit    int                    // workflows in a page, at most 1,000; 0 means 100
}

// Workflows returns a page of the workflows that f selects, the latest first, and the cursor
// of the next page: call again with it in f.Cursor until it is empty. A page can be short, or empty, although
// others follow it.
//
// All running workflows are listed. Of those that have ended, the last 10,000 of each state are listed (on
// a Redis Cluster, of each shard), for as long as their results are kept.
func (c *Client) Workflows(ctx context.Context, f WorkflowFilter) (page []tasktype.Workflow, next string, err error) {
	page, next, err = c.eng.Inspector.Workflows(ctx, engine.WorkflowQuery(f))
	if err != nil {
		return nil, "", fmt.Errorf("list workflows: %w", err)
	}
	return page, next, nil
}

// RateFilter selects the counts that [Client.Rates] returns. The zero value selects all tasks, by minute.
type RateFilter struct {
	Queue string        // empty: all
	Task  string        // empty: all
	Since time.Time     // from the minute or hour of this time on; zero: all that are kept
	Step  time.Duration // [time.Minute], or [time.Hour]; 0 means a minute
}

// Rates returns the counts that f selects, by time, queue and task. A minute or hour in which no task ended has
// no point. Counts by minute are kept for 24 hours, those by hour for 30 days. When there are
// very many tasks, those that first ended late in an hour (or day) are counted together, as the task "(other)" of
// their queue.
func (c *Client) Rates(ctx context.Context, f RateFilter) ([]tasktype.RatePoint, error) {
	points, err := c.eng.Inspector.Rates(ctx, engine.RateQuery(f))
	if err != nil {
		return nil, fmt.Errorf("read rates: %w", err)
	}
	return points, nil
}
