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

// Active returns the nodes that run right now, by worker.
func (c *Client) Active(ctx context.Context) ([]ActiveNode, error) {
	as, err := c.eng.Active(ctx)
	if err != nil {
		return nil, fmt.Errorf("list active nodes: %w", err)
	}
	return as, nil
}

// ActiveNode is a node that runs right now.
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

// Reserved returns up to limit nodes of each queue that were handed to it and have not begun.
func (c *Client) Reserved(ctx context.Context, limit int) ([]ReservedNode, error) {
	rs, err := c.eng.Reserved(ctx, limit)
	if err != nil {
		return nil, fmt.Errorf("list reserved nodes: %w", err)
	}
	return rs, nil
}

// ReservedNode is a node that was handed to a queue and has not begun.
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

// Outbox returns the state of the outbox: what was released and has not begun, and what waits for its
// time. It is overdue when what a crash left behind was not attended to yet.
func (c *Client) Outbox(ctx context.Context) (Outbox, error) {
	o, err := c.eng.Outbox(ctx)
	if err != nil {
		return o, fmt.Errorf("read outbox: %w", err)
	}
	return o, nil
}
