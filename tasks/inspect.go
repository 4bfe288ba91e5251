package tasks

import (
	"context"
	"fmt"
	"time"

	"muster/tasks/internal/engine"
)

// NodeInfo is what is known about one node of a workflow.
type NodeInfo = engine.NodeInfo

// Nodes returns the nodes of a workflow in the order of its definition, with states and times, and of those
// that could run and that no live worker would take, why.
func (c *Client) Nodes(ctx context.Context, id string) ([]NodeInfo, error) {
	nodes, err := c.eng.Nodes(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("nodes of workflow %s: %w", id, err)
	}
	return nodes, nil
}

// WorkerInfo describes a live worker, and WorkerStats what it has done.
type (
	WorkerInfo  = engine.WorkerInfo
	WorkerStats = engine.WorkerStats
)

// Workers returns the live workers, by name.
func (c *Client) Workers(ctx context.Context) ([]WorkerInfo, error) {
	ws, err := c.eng.Workers(ctx)
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	return ws, nil
}

// Pong is the answer of a worker to a ping, or that there was none.
type Pong = engine.Pong

// PingWorkers asks every live worker for an answer and returns who gave one within wait. It returns
// as soon as all have.
func (c *Client) PingWorkers(ctx context.Context, wait time.Duration) ([]Pong, error) {
	ps, err := c.eng.Ping(ctx, wait)
	if err != nil {
		return nil, fmt.Errorf("ping workers: %w", err)
	}
	return ps, nil
}

// Active returns the nodes in the batches of workers, by worker: each runs, or waits for a moment behind one that does.
func (c *Client) Active(ctx context.Context) ([]ActiveNode, error) {
	as, err := c.eng.Active(ctx)
	if err != nil {
		return nil, fmt.Errorf("list active nodes: %w", err)
	}
	return as, nil
}

// ActiveNode is a node in a batch of a worker. Started is when the batch was taken.
type ActiveNode = engine.ActiveNode

// Due returns up to limit nodes that wait for their time, soonest first.
func (c *Client) Due(ctx context.Context, limit int) ([]DueNode, error) {
	ds, err := c.eng.Due(ctx, limit)
	if err != nil {
		return nil, fmt.Errorf("list scheduled nodes: %w", err)
	}
	return ds, nil
}

// DueNode is a node that waits for its time: its first run, or after a failed attempt its next.
type DueNode = engine.DueNode

// Reserved returns up to limit nodes of each queue that are ready and that no worker has taken yet.
func (c *Client) Reserved(ctx context.Context, limit int) ([]ReservedNode, error) {
	rs, err := c.eng.Reserved(ctx, limit)
	if err != nil {
		return nil, fmt.Errorf("list reserved nodes: %w", err)
	}
	return rs, nil
}

// ReservedNode is a node that is ready and that no worker has taken yet.
type ReservedNode = engine.ReservedNode

// QueueInfo is the state of a queue.
type QueueInfo = engine.QueueInfo

// Queues returns the queues that work was sent to.
func (c *Client) Queues(ctx context.Context) ([]QueueInfo, error) {
	qs, err := c.eng.Queues(ctx)
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	return qs, nil
}

// Outbox is how much there is for workers to look after, and how far they are behind with it.
type Outbox = engine.Outbox

// Outbox returns the state of the outbox: nodes that wait for their time, and steps of workflows that workers take
// again should the process that was to take them have died. It is overdue when no worker attends to it.
func (c *Client) Outbox(ctx context.Context) (Outbox, error) {
	o, err := c.eng.Outbox(ctx)
	if err != nil {
		return o, fmt.Errorf("read outbox: %w", err)
	}
	return o, nil
}

// WorkflowState is whether a workflow has ended, and how.
type WorkflowState string

// The states of a workflow in a listing.
const (
	WorkflowRunning   WorkflowState = engine.WorkflowRunning // sent and not ended, whether or not a worker is at it
	WorkflowSucceeded WorkflowState = engine.WorkflowSucceeded
	WorkflowFailed    WorkflowState = engine.WorkflowFailed
	WorkflowRevoked   WorkflowState = engine.WorkflowRevoked
)

// WorkflowFilter says which workflows [Client.Workflows] lists. The zero value lists all.
//
// The time of a workflow is when it ended, or while it is running, when it was sent.
type WorkflowFilter struct {
	State  WorkflowState // empty: any
	Name   string        // empty: any
	After  time.Time     // its time is not before this one; zero: no bound
	Before time.Time     // its time is before this one; zero: no bound
	Cursor string        // what the call for the page before returned; empty: the first page
	Limit  int           // workflows in a page, at most 1,000; 0 means 100
}

// WorkflowInfo is a workflow in a listing.
type WorkflowInfo struct {
	ID      string        `json:"id"`
	Name    string        `json:"name"` // at most 64 bytes of it
	State   WorkflowState `json:"state"`
	Created time.Time     `json:"created"`
	Ended   time.Time     `json:"ended,omitzero"` // zero while it is running
}

// Workflows returns a page of the workflows that f asks for, the latest by its time first, and the cursor
// of the next page: call again with it in f.Cursor until it is empty. A page can be short, or empty, although
// others follow it.
//
// Workflows that are running are all listed. Of those that have ended, the last 10,000 of each state are (on
// a Redis Cluster, of each shard), for as long as their results are kept.
func (c *Client) Workflows(ctx context.Context, f WorkflowFilter) (page []WorkflowInfo, next string, err error) {
	list, next, err := c.eng.Workflows(ctx, engine.WorkflowQuery{State: string(f.State), Name: f.Name,
		After: f.After, Before: f.Before, Cursor: f.Cursor, Limit: f.Limit})
	if err != nil {
		return nil, "", fmt.Errorf("list workflows: %w", err)
	}
	for _, w := range list {
		page = append(page, WorkflowInfo{ID: w.ID, Name: w.Name, State: WorkflowState(w.State), Created: w.Created, Ended: w.Ended})
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

// RatePoint counts what became of the nodes of a task in a minute or an hour.
type RatePoint struct {
	Time      time.Time     `json:"time"` // when the minute or hour began
	Queue     string        `json:"queue"`
	Task      string        `json:"task"` // at most 100 bytes of it
	Succeeded int64         `json:"succeeded"`
	Failed    int64         `json:"failed"` // for good
	Revoked   int64         `json:"revoked"`
	Retried   int64         `json:"retried"` // attempts that failed, with another to follow
	Busy      time.Duration `json:"busy_ns"` // how long handlers ran
}

// Rates returns the counts that f asks for, by time, queue and task. There is no point for a minute or hour
// in which nothing ended. Counts of minutes are kept for 24 hours, those of hours for 30 days. When there are
// very many tasks, those that came last in an hour (or day) are counted together, as the task "(other)" of
// their queue.
func (c *Client) Rates(ctx context.Context, f RateFilter) ([]RatePoint, error) {
	list, err := c.eng.Rates(ctx, engine.RateQuery{Queue: f.Queue, Task: f.Task, Since: f.Since, Step: f.Step})
	if err != nil {
		return nil, fmt.Errorf("read rates: %w", err)
	}
	points := make([]RatePoint, len(list))
	for i, r := range list {
		points[i] = RatePoint(r)
	}
	return points, nil
}
