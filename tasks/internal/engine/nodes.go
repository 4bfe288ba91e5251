package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// Nodes returns the nodes of a workflow.
func (in *Inspector) Nodes(ctx context.Context, refOrID string) ([]tasktype.Node, error) {
	d, err := in.Workflow(ctx, refOrID)
	return d.Nodes, err
}

// Summary returns a workflow without its nodes. It has ended at the time at which its root did.
func (in *Inspector) Summary(ctx context.Context, refOrID string) (tasktype.WorkflowDetail, error) {
	fl, err := in.graphs.load(ctx, refOrID)
	if err != nil {
		return tasktype.WorkflowDetail{}, err
	}
	d := tasktype.WorkflowDetail{Workflow: runningWorkflow(fl)}
	d.Progress, err = in.progress.of(ctx, fl.Ref)
	if d.Paused, d.Queued = d.Progress.Paused, d.Progress.Queued; err != nil || !d.Progress.Ended {
		return d, err
	}
	root, err := in.graphs.values(fl).record(ctx, fl.Root)
	d.Ended, d.State = root.Ended, cmp.Or(endStates[d.Progress.Status], tasktype.WorkflowFailed)
	return d, err
}

// runningWorkflow describes a workflow that has not ended.
func runningWorkflow(fl *flow) tasktype.Workflow {
	first, last := fl.g.Ends()
	return tasktype.Workflow{ID: fl.ID(), Name: cmp.Or(fl.g.Name, store.Title(first, last)), Labels: fl.g.Labels, Origin: fl.g.Origin,
		State: tasktype.WorkflowRunning, Created: time.UnixMilli(fl.Created)}
}

// endStates are the states of workflows that have ended with a status; with others they have failed.
var endStates = map[tasktype.Status]tasktype.WorkflowState{tasktype.Success: tasktype.WorkflowSucceeded, tasktype.Revoked: tasktype.WorkflowRevoked}

// Workflow returns a workflow with its nodes.
func (in *Inspector) Workflow(ctx context.Context, refOrID string) (tasktype.WorkflowDetail, error) {
	w, running, err := in.whole(ctx, refOrID)
	if err != nil {
		return tasktype.WorkflowDetail{}, err
	}
	d := tasktype.WorkflowDetail{Workflow: runningWorkflow(w.flow)}
	isRunning := func() (bool, error) { return len(running) > 0, nil }
	if d.Progress, err = in.progress.from(ctx, w.flow, w.fields, isRunning); err != nil {
		return d, err
	}
	d.Paused, d.Queued = d.Progress.Paused, d.Progress.Queued
	if d.Nodes, err = in.nodes(ctx, w, running); err != nil || !d.Progress.Ended {
		return d, err
	}
	for i := range d.Nodes {
		if end := d.Nodes[i].Ended; end.After(d.Ended) {
			d.Ended = end
		}
	}
	d.State = cmp.Or(endStates[d.Progress.Status], tasktype.WorkflowFailed)
	return d, nil
}

// nodes returns the nodes of a workflow, of which some are running.
func (in *Inspector) nodes(ctx context.Context, w *whole, running map[string]*store.NodeLease) ([]tasktype.Node, error) {
	results := map[string]map[int]bool{} // by scope
	out := make([]tasktype.Node, 0, len(w.ids))
	external := map[string]bool{}
	needs := w.needs()
	for _, nid := range w.ids {
		g := w.graph(nid)
		if results[nid.Scope] == nil {
			results[nid.Scope] = g.Result()
		}
		name := nid.String()
		n := nodeInfo(g, nid, w.fields, w.Created, running[name])
		n.Needs, n.Side = needs[name], !results[nid.Scope][nid.Index]
		if planned, ok := w.past(nid); ok && strings.Count(nid.Scope, ":") == strings.Count(planned.Scope, ":") {
			n.Within = planned.String()
		}
		external[name] = n.Queue != "" && g.Specs[g.Nodes[nid.Index].Spec].External
		out = append(out, n)
	}
	w.schedule(out)
	return out, in.waitsFor(ctx, w, out, external, running)
}

// needs returns the dependencies of each node. A member of a map has the dependencies of the map, and the map depends
// on its members. The first nodes of a plan depend on the planned node, and the nodes that need the planned node on
// the plan.
func (w *whole) needs() map[string][]string {
	out := map[string][]string{}
	var members []graph.ID
	for _, id := range w.ids {
		g, name := w.graph(id), id.String()
		if id.Inst >= 0 && g.Nodes[id.Index].Kind == graph.Each {
			members = append(members, id)
		}
		sources := []string{name}
		for scope := name; w.graphs[scope] != nil; {
			scope = graph.ID{Scope: scope, Index: w.graphs[scope].Root, Inst: -1}.String()
			sources = append(sources, scope)
		}
		for _, e := range end(g, id, "").Edges {
			if e.Kind != string(graph.Replaces) {
				out[e.Node] = append(out[e.Node], sources...)
			}
		}
	}
	own := map[string][]string{} // of maps, without their members
	for _, id := range members {
		of := id.At(id.Index, -1).String()
		if _, known := own[of]; !known {
			own[of] = slices.DeleteFunc(slices.Clone(out[of]), func(need string) bool { return strings.HasPrefix(need, of+".") })
		}
		out[id.String()] = own[of]
	}
	for _, id := range w.ids {
		if name := id.String(); id.Scope != "" && len(out[name]) == 0 {
			if _, past := w.past(id); !past {
				out[name] = []string{id.Scope}
			}
		}
	}
	return out
}

// schedule sets when the nodes could run. It needs their dependencies.
func (w *whole) schedule(nodes []tasktype.Node) {
	byID := make(map[string]*tasktype.Node, len(nodes))
	for i := range nodes {
		byID[nodes[i].ID] = &nodes[i]
	}
	for i, id := range w.ids {
		n := &nodes[i]
		if n.Status == tasktype.Skipped {
			continue
		}
		if _, past := w.past(id); past {
			n.Ready, n.Scheduled = n.First, n.First
			continue
		}
		at, first := time.UnixMilli(w.Created).UTC(), true
		for _, need := range n.Needs {
			d, end := byID[need], time.Time{}
			if d != nil {
				end = d.Ended
			}
			if need == id.Scope {
				end = d.Planned
			} else {
				first = false
			}
			if end.IsZero() || n.Status == tasktype.Revoked && n.First.IsZero() && (d.Status == tasktype.Revoked || d.Status == tasktype.Skipped) {
				at = time.Time{}
				break
			}
			if end.After(at) {
				at = end
			}
		}
		if at.IsZero() {
			continue
		}
		if n.Ready = at; !n.First.IsZero() && n.First.Before(at) {
			n.Ready = n.First
		}
		in, when := w.delayOf(id, first)
		n.Scheduled = n.Ready.Add(in)
		if when.After(n.Scheduled) {
			n.Scheduled = when
		}
		if !n.First.IsZero() && n.First.Before(n.Scheduled) {
			n.Scheduled = n.First
		}
	}
}

// delayOf returns the options In and At of a node. first: it has no dependencies in its graph.
func (w *whole) delayOf(id graph.ID, first bool) (in time.Duration, at time.Time) {
	g := w.graph(id)
	n := &g.Nodes[id.Index]
	if id.Inst < 0 && g.Virtual(id.Index) {
		return 0, at
	}
	ms, when := g.Specs[n.Spec].In, g.Specs[n.Spec].At
	if first {
		ms, when = max(ms, g.Delay), max(when, g.At)
	}
	if when > 0 {
		at = time.UnixMilli(when).UTC()
	}
	return time.Duration(ms) * time.Millisecond, at
}

// nodeInfo describes a node by the fields of its workflow and its lease, if it has one.
func nodeInfo(g *graph.Graph, id graph.ID, fields map[string]string, created int64, l *store.NodeLease) tasktype.Node {
	name := id.String()
	rec := store.ParseRecord([]byte(fields[name]), created)
	n := tasktype.Node{ID: name, Task: title(g, id), Status: status(rec), Attempts: rec.Attempts,
		Worker: workerOf(rec.Owner), Ended: rec.Ended, Message: fields[store.FieldError+name], Within: id.Scope}
	if id.Inst >= 0 && g.Nodes[id.Index].Kind == graph.Each {
		n.Within = id.At(id.Index, -1).String()
	}
	if id.Inst >= 0 || !g.Virtual(id.Index) {
		n.Queue = g.Specs[g.Nodes[id.Index].Spec].QueueName()
	}
	switch rec.State {
	case 0:
		if delayed := fields[store.FieldSpans]; delayed != "" {
			n.Due = store.DueInSpan(delayed, name)
		}
	case store.StateDelayed, store.StateRetrying, store.StateUnhandled:
		n.Due = time.UnixMilli(rec.At).UTC()
	case store.StateGathering:
		n.Due, n.Waits = time.UnixMilli(rec.At).UTC(), "it waits for others of its batch"
	case store.StateLimited:
		n.Waits = "the limit of its key is reached"
	case store.StateOpen:
		n.Due, n.Waits, n.Open = rec.Deadline, waitsForCompletion, true
	case store.StateFailed, store.StateRevoked:
		n.Failure = &tasktype.Failure{}
		if json.Unmarshal(rec.Body, n.Failure) != nil {
			n.Failure = nil
		}
	}
	if ms := fields[store.FieldPlannedAt+name]; ms != "" {
		since, _ := strconv.ParseInt(ms, 10, 64)
		n.Planned = time.UnixMilli(created + since).UTC()
	}
	began := rec.Began
	if !began.IsZero() && n.Worker == "" {
		n.Opened = began
	}
	if l != nil && !rec.Terminal() {
		n.Status, n.Worker, began = tasktype.Started, l.Worker, l.Taken
		n.Attempts++
	}
	setRuns(&n, store.ParseRuns([]byte(fields[store.FieldRuns+name])), began)
	_, _ = fmt.Sscanf(fields[store.FieldProgress+name], "%d/%d", &n.Done, &n.Total)
	return n
}

// setRuns sets the runs of a node: the earlier runs, and the current or last one, whose start is zero if no handler
// was called.
func setRuns(n *tasktype.Node, before []tasktype.NodeAttempt, began time.Time) {
	n.First, n.Started = began, began
	if !began.IsZero() {
		n.Runs = 1
	}
	if len(before) == 0 {
		return
	}
	last := &before[len(before)-1]
	n.Runs += last.Run
	for i := range before {
		if start := before[i].Started; !start.IsZero() {
			n.First = start
			break
		}
	}
	if began.IsZero() {
		n.Started = last.Started
		n.Worker = cmp.Or(n.Worker, last.Worker)
	}
}

// waitsFor sets Waits of the nodes that could run but that no live worker will take, and of those running on a worker that is not
// live. External ones need no handler.
func (in *Inspector) waitsFor(ctx context.Context, w *whole, nodes []tasktype.Node, external map[string]bool, running map[string]*store.NodeLease) error {
	now, err := in.redisTime(ctx, w.Shard())
	if err != nil {
		return err
	}
	var ready, leased []*tasktype.Node
	for i := range nodes {
		n := &nodes[i]
		due := !n.Due.After(now) || strings.HasPrefix(w.field(n.ID), store.AgainUnhandled)
		if n.Queue != "" && n.Waits == "" && (n.Status == tasktype.Pending || n.Status == tasktype.Retry) && !n.Ready.IsZero() && due {
			ready = append(ready, n)
		}
		if n.Status == tasktype.Started && running[n.ID] != nil {
			leased = append(leased, n)
		}
	}
	if len(ready)+len(leased) == 0 {
		return nil
	}
	live, err := in.fleet.Workers(ctx)
	if store.Refused(err) { // no heartbeats can be stored: which workers are live is unknown
		return nil
	}
	if err != nil {
		return err
	}
	for _, n := range leased {
		if !slices.ContainsFunc(live, func(w tasktype.Worker) bool { return w.Name == n.Worker }) {
			n.Waits = fmt.Sprintf("its worker %s is lost; another one will run it", n.Worker)
		}
	}
	if why := map[string]string{store.StoppedByPause: "the workflow is paused",
		store.StoppedByOrder: "an earlier workflow with the same unique key has not ended"}[w.field(store.FieldStopped)]; why != "" {
		for _, n := range ready {
			n.Waits = why
		}
		return nil
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
		n.Waits = blockReason(n, live, paused[n.Queue], external[n.ID])
	}
	return nil
}

// blockReason returns the reason why no worker takes a node that could run, or "".
func blockReason(n *tasktype.Node, live []tasktype.Worker, paused, external bool) string {
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

// whole is a workflow with all that Redis has of it.
type whole struct {
	*flow
	fields map[string]string
	ids    []graph.ID              // the nodes in order; the nodes of a plan follow the planned node
	graphs map[string]*graph.Graph // by scope
}

// whole returns a whole workflow, and the nodes that run. It reads the workflow only if it has changed since the last call.
func (in *Inspector) whole(ctx context.Context, refOrID string) (*whole, map[string]*store.NodeLease, error) {
	f, err := in.store.Flows.Address(ctx, refOrID)
	if err != nil {
		return nil, nil, err
	}
	revision, err := in.store.Flows.Revision(ctx, f)
	if err != nil {
		return nil, nil, err
	}
	have, _ := in.wholes.Load(f.Ref)
	k, _ := have.(*keptWhole)
	if k == nil || k.revision != revision {
		w, err := in.graphs.whole(ctx, f.Ref)
		if err != nil {
			return nil, nil, err
		}
		k = in.wholes.keep(w)
	} else {
		k.drop.Reset(keepWhole)
	}
	if over(k.fields) {
		return k.whole, nil, nil
	}
	running, err := in.store.Leases.OfFlow(ctx, k.Flow)
	return k.whole, running, err
}

// whole reads a whole workflow.
func (gs *graphs) whole(ctx context.Context, refOrID string) (*whole, error) {
	fl, err := gs.load(ctx, refOrID)
	if err != nil {
		return nil, err
	}
	fields, err := gs.store.Flows.All(ctx, fl.Flow)
	if err != nil {
		return nil, err
	}
	w := &whole{flow: fl, fields: fields, graphs: map[string]*graph.Graph{}}
	return w, w.walk(gs, "")
}

// field returns a field of the workflow; empty for none.
func (w *whole) field(name string) string { return w.fields[name] }

// graph returns the graph that one of the nodes is in.
func (w *whole) graph(id graph.ID) *graph.Graph { return w.graphs[id.Scope] }

// lanes returns the lanes of all tasks.
func (w *whole) lanes() []string {
	lanes := map[string]bool{}
	for _, g := range w.graphs {
		for i := range g.Specs {
			lanes[store.Lane(g.Specs[i].QueueName(), g.Specs[i].Priority)] = true
		}
	}
	return slices.Sorted(maps.Keys(lanes))
}

// walk adds the nodes of a scope, each followed by the nodes of its plan.
func (w *whole) walk(gs *graphs, scope string) error {
	g, err := gs.learn(w.Ref, scope, w.fields[store.FieldPlannedAt+scope], []byte(w.fields[store.FieldGraph+scope]))
	if err != nil {
		return err
	}
	w.graphs[scope] = g
	for i := range g.Nodes {
		for _, id := range w.instances(g, graph.ID{Scope: scope, Index: i, Inst: -1}) {
			w.ids = append(w.ids, id)
			if _, planned := w.fields[store.FieldGraph+id.String()]; !planned {
				continue
			}
			if err := w.walk(gs, id.String()); err != nil {
				return err
			}
		}
		for k := 0; g.Nodes[i].Kind == graph.Task; k++ {
			past := graph.ID{Scope: scope, Index: i, Inst: k}.String()
			if w.field(store.FieldGraph+past) == "" {
				break
			}
			if err := w.walk(gs, past); err != nil {
				return err
			}
		}
	}
	return nil
}

// past returns the planned node in whose earlier plans a node is, kept by a retry: a scope like 7.0 of node 7. See [resetter.keepUndo].
func (w *whole) past(id graph.ID) (planned graph.ID, ok bool) {
	for scope := id.Scope; scope != ""; scope = planned.Scope {
		var err error
		if planned, err = graph.ParseID(scope); err != nil {
			return planned, false
		}
		if planned.Inst >= 0 && w.graph(planned).Nodes[planned.Index].Kind == graph.Task {
			return planned.At(planned.Index, -1), true
		}
	}
	return planned, false
}

// instances returns the nodes that there are of a node of a graph: a map with its members, the runs of a catch, none
// for a value, and else the node itself.
func (w *whole) instances(g *graph.Graph, id graph.ID) []graph.ID {
	switch n := &g.Nodes[id.Index]; {
	case g.Passive(id.Index):
		return nil
	case n.Kind == graph.Catch:
		return w.runsOf(id)
	case n.Kind == graph.Each:
		out := []graph.ID{id}
		m, _ := strconv.Atoi(w.fields[store.FieldMembersOf+id.String()])
		for k := range m {
			out = append(out, id.At(id.Index, k))
		}
		return out
	}
	return []graph.ID{id}
}

// runsOf returns the runs of a catch, in order.
func (w *whole) runsOf(id graph.ID) (out []graph.ID) {
	prefix := id.String()
	for f := range w.fields {
		if f != prefix && !strings.HasPrefix(f, prefix+".") {
			continue
		}
		if run, err := graph.ParseID(f); err == nil && run.Scope == id.Scope && run.Index == id.Index {
			out = append(out, run)
		}
	}
	slices.SortFunc(out, func(a, b graph.ID) int { return a.Inst - b.Inst })
	return out
}

// Workflows that were read as a whole are kept in memory for keepWhole after their last use, so that an open page reads them from Redis
// only after changes. They have at most maxWhole fields together.
const (
	keepWhole = 5 * time.Second
	maxWhole  = 200_000
)

// wholes has a [keptWhole] by reference.
type wholes struct {
	sync.Map
	fields atomic.Int64
}

// keep keeps a workflow unless there are too many.
func (ws *wholes) keep(w *whole) *keptWhole {
	k, n := &keptWhole{whole: w, revision: store.RevisionOf(w.fields)}, int64(len(w.fields))
	drop := func() {
		if ws.CompareAndDelete(w.Ref, k) {
			ws.fields.Add(-n)
		}
	}
	k.drop = time.AfterFunc(keepWhole, drop)
	if v, had := ws.Swap(w.Ref, k); had {
		old := v.(*keptWhole)
		old.drop.Stop()
		ws.fields.Add(-int64(len(old.fields)))
	}
	if ws.fields.Add(n) > maxWhole {
		k.drop.Stop()
		drop()
	}
	return k
}

// keptWhole is a workflow in memory. Its fields must not be changed.
type keptWhole struct {
	*whole
	revision string
	drop     *time.Timer
}
