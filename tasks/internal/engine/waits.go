package engine

import (
	"context"
	"fmt"
	"slices"

	"muster/tasks/tasktype"
)

// waitsFor sets Waits of the nodes that could run but that no live worker will take. External ones need no handler.
func (e *Engine) waitsFor(ctx context.Context, nodes []tasktype.Node, external map[string]bool) error {
	open := make(map[string]bool, len(nodes)) // not terminal
	for i := range nodes {
		open[nodes[i].ID] = !nodes[i].Status.Terminal()
	}
	now := e.clock.Now()
	var ready []*tasktype.Node
	for i := range nodes {
		n := &nodes[i]
		if n.Queue == "" || n.Status != tasktype.Pending && n.Status != tasktype.Retry || n.Due.After(now) {
			continue
		}
		if !slices.ContainsFunc(n.Needs, func(id string) bool { return open[id] }) {
			ready = append(ready, n)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	live, err := e.Workers(ctx)
	if err != nil {
		return err
	}
	paused := map[string]bool{}
	for _, n := range ready {
		if _, known := paused[n.Queue]; known {
			continue
		}
		if paused[n.Queue], err = e.store.Queues.Paused(ctx, n.Queue); err != nil {
			return err
		}
	}
	for _, n := range ready {
		n.Waits = lacks(n, live, paused[n.Queue], external[n.ID])
	}
	return nil
}

// lacks says what a node that could run lacks, "" if a worker will take it.
func lacks(n *tasktype.Node, live []tasktype.Worker, paused, external bool) string {
	takes, handles := false, external
	for i := range live {
		if live[i].Queues[n.Queue] == 0 {
			continue
		}
		takes = true
		handles = handles || slices.Contains(live[i].Tasks, n.Task)
	}
	switch {
	case len(live) == 0:
		return "no worker is live"
	case !takes:
		return fmt.Sprintf("no live worker takes from queue %s", n.Queue)
	case !handles:
		return fmt.Sprintf("no live worker of queue %s has a handler for %s", n.Queue, n.Task)
	case paused:
		return fmt.Sprintf("queue %s is paused", n.Queue)
	}
	return ""
}
