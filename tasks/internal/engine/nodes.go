package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// Nodes returns the nodes of a workflow.
func (in *Inspector) Nodes(ctx context.Context, id string) ([]tasktype.Node, error) {
	w, err := in.graphs.whole(ctx, id)
	if err != nil {
		return nil, err
	}
	var running map[string]*store.Batch
	if !over(w.fields) {
		if running, err = in.progress.running(ctx, w.Flow); err != nil {
			return nil, err
		}
	}
	preds := map[string][]string{}
	for _, nid := range w.ids {
		for _, s := range end(w.graph(nid), nid, "").Edges {
			preds[s.Node] = append(preds[s.Node], nid.String())
		}
	}
	results := map[string]map[int]bool{} // by scope
	out := make([]tasktype.Node, 0, len(w.ids))
	external := map[string]bool{}
	for _, nid := range w.ids {
		g := w.graph(nid)
		if results[nid.Scope] == nil {
			results[nid.Scope] = g.Result()
		}
		name := nid.String()
		n := nodeInfo(g, nid, w.fields, w.Created, running[name])
		n.Needs, n.Side = preds[name], !results[nid.Scope][nid.Index]
		external[name] = n.Queue != "" && g.Specs[g.Nodes[nid.Index].Spec].External
		out = append(out, n)
	}
	return out, in.waitsFor(ctx, out, external)
}

// nodeInfo describes a node by the fields of its workflow and the batch that it is in, if it is in one.
func nodeInfo(g *graph.Graph, id graph.ID, fields map[string]string, created int64, b *store.Batch) tasktype.Node {
	name := id.String()
	rec := store.ParseRecord([]byte(fields[name]), created)
	n := tasktype.Node{ID: name, Task: title(g, id), Status: status(rec), Attempts: rec.Attempts,
		Worker: workerOf(rec.Owner), Started: rec.Began, Ended: rec.Ended, Message: fields[store.ErrorField(name)], Within: id.Scope}
	if id.Inst >= 0 && g.Nodes[id.Index].Kind == graph.Each {
		n.Within = id.At(id.Index, -1).String()
	}
	if id.Inst >= 0 || !g.Virtual(id.Index) {
		n.Queue = g.Specs[g.Nodes[id.Index].Spec].QueueName()
	}
	switch rec.State {
	case 'D', 'T':
		n.Due = time.UnixMilli(rec.At)
	case 'W':
		n.Due, n.Waits = rec.Deadline, waitsForAnswer
	case 'F', 'X':
		n.Failure = &tasktype.Failure{}
		if json.Unmarshal(rec.Body, n.Failure) != nil {
			n.Failure = nil
		}
	}
	if b != nil && !rec.Terminal() {
		n.Status, n.Worker, n.Started = tasktype.Started, b.Worker, b.Taken
		n.Attempts++
	}
	if d, t, ok := strings.Cut(fields["p"+name], "/"); ok {
		n.Done, _ = strconv.Atoi(d)
		n.Total, _ = strconv.Atoi(t)
	}
	return n
}

// waitsFor sets Waits of the nodes that could run but that no live worker will take. External ones need no handler.
func (in *Inspector) waitsFor(ctx context.Context, nodes []tasktype.Node, external map[string]bool) error {
	open := make(map[string]bool, len(nodes)) // not terminal
	for i := range nodes {
		open[nodes[i].ID] = !nodes[i].Status.Terminal()
	}
	now := in.clock.Now()
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
	live, err := in.fleet.Workers(ctx)
	if err != nil {
		return err
	}
	paused := map[string]bool{}
	for _, n := range ready {
		if _, known := paused[n.Queue]; known {
			continue
		}
		if paused[n.Queue], err = in.store.Queues.Paused(ctx, n.Queue); err != nil {
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
