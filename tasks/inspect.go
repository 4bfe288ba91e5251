package tasks

import (
	"context"
	"fmt"
	"time"

	"muster/tasks/internal/engine"
	"muster/tasks/tasktype"
)

// Nodes returns the nodes of a workflow in the order of its definition, with states and times, and of those
// that could run and that no live worker would take, why.
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

// PingWorkers asks every live worker for an answer and returns who gave one within wait. It returns
// as soon as all have.
func (c *Client) PingWorkers(ctx context.Context, wait time.Duration) ([]tasktype.Pong, error) {
	ps, err := c.eng.Fleet.Ping(ctx, wait)
	if err != nil {
		return nil, fmt.Errorf("ping workers: %w", err)
	}
	return ps, nil
}

// Active returns the nodes in the batches of workers, by worker: each runs, or waits for a moment behind one that does.
func (c *Client) Active(ctx context.Context) ([]tasktype.ActiveNode, error) {
	as, err := c.eng.Inspector.Active(ctx)
	if err != nil {
		return nil, fmt.Errorf("list active nodes: %w", err)
	}
	return as, nil
}

// Due returns up to limit nodes that wait for their time, soonest first.
func (c *Client) Due(ctx context.Context, limit int) ([]tasktype.DueNode, error) {
	ds, err := c.eng.Inspector.Due(ctx, limit)
	if err != nil {
		return nil, fmt.Errorf("list scheduled nodes: %w", err)
	}
	return ds, nil
}

// Reserved returns up to limit nodes of each queue that are ready and that no worker has taken yet.
func (c *Client) Reserved(ctx context.Context, limit int) ([]tasktype.ReservedNode, error) {
	rs, err := c.eng.Inspector.Reserved(ctx, limit)
	if err != nil {
		return nil, fmt.Errorf("list reserved nodes: %w", err)
	}
	return rs, nil
}

// Queues returns the queues that work was sent to.
func (c *Client) Queues(ctx context.Context) ([]tasktype.Queue, error) {
	qs, err := c.eng.Inspector.Queues(ctx)
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	return qs, nil
}

// Outbox returns the state of the outbox: nodes that wait for their time, and steps of workflows that workers take
// again should the process that was to take them have died. It is overdue when no worker attends to it.
func (c *Client) Outbox(ctx context.Context) (tasktype.Outbox, error) {
	o, err := c.eng.Inspector.Outbox(ctx)
	if err != nil {
		return o, fmt.Errorf("read outbox: %w", err)
	}
	return o, nil
}

// WorkflowFilter says which workflows [Client.Workflows] lists. The zero value lists all.
//
// The time of a workflow is when it ended, or while it is running, when it was sent.
type WorkflowFilter struct {
	State  tasktype.WorkflowState // empty: any
	Name   string                 // empty: any
	After  time.Time              // its time is not before this one; zero: no bound
	Before time.Time              // its time is before this one; zero: no bound
	Cursor string                 // what the call for the page before returned; empty: the first page
	Limit  int                    // workflows in a page, at most 1,000; 0 means 100
}

// Workflows returns a page of the workflows that f asks for, the latest by its time first, and the cursor
// of the next page: call again with it in f.Cursor until it is empty. A page can be short, or empty, although
// others follow it.
//
// Workflows that are running are all listed. Of those that have ended, the last 10,000 of each state are (on
// a Redis Cluster, of each shard), for as long as their results are kept.
func (c *Client) Workflows(ctx context.Context, f WorkflowFilter) (page []tasktype.Workflow, next string, err error) {
	page, next, err = c.eng.Inspector.Workflows(ctx, engine.WorkflowQuery(f))
	if err != nil {
		return nil, "", fmt.Errorf("list workflows: %w", err)
	}
	return page, next, nil
}

// RateFilter says which counts [Client.Rates] returns. The zero value asks for all tasks, by minute.
type RateFilter struct {
	Queue string        // empty: all
	Task  string        // empty: all
	Since time.Time     // from the minute or hour that this time lies in; zero: all that are kept
	Step  time.Duration // [time.Minute], or [time.Hour]; 0 means a minute
}

// Rates returns the counts that f asks for, by time, queue and task. There is no point for a minute or hour
// in which nothing ended. Counts of minutes are kept for 24 hours, those of hours for 30 days. When there are
// very many tasks, those that came last in an hour (or day) are counted together, as the task "(other)" of
// their queue.
func (c *Client) Rates(ctx context.Context, f RateFilter) ([]tasktype.RatePoint, error) {
	points, err := c.eng.Inspector.Rates(ctx, engine.RateQuery(f))
	if err != nil {
		return nil, fmt.Errorf("read rates: %w", err)
	}
	return points, nil
}
