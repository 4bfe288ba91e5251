package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// advancer moves workflows on: it takes the steps that follow from the end of a node, and revokes nodes.
type advancer struct {
	*env
	graphs   *graphs
	progress *progress
}

// changesAtOnce bounds the changes of one call of a script.
const changesAtOnce = 200

// settle takes the steps that follow from a change: it advances nodes without a task. The agenda has an entry for
// each step, so that a worker takes the steps that settle does not complete.
func (a *advancer) settle(ctx context.Context, fl *flow, t store.Todo) error {
	if t.Bad != "" {
		return a.giveUp(ctx, fl.Flow, errors.New(t.Bad))
	}
	all := t
	for len(t.Run)+len(t.Skips)+len(t.Plans) > 0 {
		changes, err := a.follow(ctx, fl, t)
		if err != nil {
			return err
		}
		t = store.Todo{}
		for part := range slices.Chunk(changes, changesAtOnce) {
			next, err := a.apply(ctx, fl, part)
			if err != nil {
				return err
			}
			t.Run = append(t.Run, next.Run...)
			t.Skips = append(t.Skips, next.Skips...)
			t.Plans = append(t.Plans, next.Plans...)
			all.Fast = append(all.Fast, next.Fast...)
			all.Signalled = append(all.Signalled, next.Signalled...)
			all.Ended = all.Ended || next.Ended
			all.Next = cmp.Or(all.Next, next.Next)
			all.Timer = sooner(all.Timer, next.Timer)
		}
	}
	return a.conclude(ctx, fl, all)
}

// conclude completes a series of steps: it revokes siblings of failed nodes, and notifies workers of new timers and
// of the end of the workflow.
func (a *advancer) conclude(ctx context.Context, fl *flow, all store.Todo) error {
	for _, s := range all.Fast {
		if err := a.failFast(ctx, fl, s); err != nil {
			return err
		}
	}
	for _, task := range all.Signalled {
		if err := a.deliver(ctx, fl, task); err != nil {
			return err
		}
	}
	if all.Timer > 0 {
		if err := a.store.Tell(ctx, fl.Shard(), "t "+strconv.FormatInt(all.Timer.Milliseconds(), 10)); err != nil {
			return fmt.Errorf("announce timer: %w", err)
		}
	}
	if all.Next != "" {
		if err := a.orderNext(ctx, all.Next); err != nil {
			a.log.WarnContext(ctx, "a workflow that waited for the end of another one begins later", "workflow", store.IDOf(all.Next), "error", err)
		}
	}
	if all.Ended {
		if fl.g.Progress != "" {
			if err := a.progress.write(ctx, fl); err != nil && !errors.Is(err, ErrUnknown) {
				a.log.WarnContext(ctx, "progress keys were not written", "workflow", fl.ID(), "error", err)
			}
		}
		a.graphs.dropLarge(fl.Ref)
	}
	return nil
}

// follow returns the changes that the steps of t make.
func (a *advancer) follow(ctx context.Context, fl *flow, t store.Todo) ([]store.Change, error) {
	var out []store.Change
	v := a.graphs.values(fl)
	skip := func(_ context.Context, _ *values, g *graph.Graph, id graph.ID) (store.Change, error) {
		return ended(g, id, store.ChangeSkip, nil), nil
	}
	for _, steps := range []struct {
		nodes []string
		take  func(context.Context, *values, *graph.Graph, graph.ID) (store.Change, error)
	}{{t.Run, a.virtual}, {t.Skips, skip}, {t.Plans, a.planEnded}} {
		for _, node := range steps.nodes {
			id, g, err := v.named(ctx, node)
			if err != nil {
				return nil, err
			}
			c, err := steps.take(ctx, v, g, id)
			if err != nil {
				return nil, err
			}
			if c.Nodes > 0 {
				out = append(out, c)
			}
		}
	}
	return out, nil
}

// virtual returns the change for a ready node that has no task: a map gets its members, any other node succeeds.
func (a *advancer) virtual(ctx context.Context, v *values, g *graph.Graph, id graph.ID) (store.Change, error) {
	fl, n := v.fl, &g.Nodes[id.Index]
	if n.Kind != graph.Each || id.Inst >= 0 {
		return ended(g, id, store.ChangeSucceed, nil), nil
	}
	rec, err := a.graphs.values(fl).record(ctx, id.String())
	if err != nil {
		return store.Change{}, err
	}
	switch {
	case rec.State == store.StateMapped:
		return ended(g, id, store.ChangeSucceed, nil), nil
	case rec.State == store.StateMapping || rec.Terminal():
		return store.Change{}, nil // another process has done it
	}
	list, err := v.value(ctx, id.At(n.In-1, -1))
	if err != nil {
		return store.Change{}, err
	}
	var elements []json.RawMessage
	bad := ""
	if err := json.Unmarshal(list, &elements); err != nil {
		bad = "a map needs a list to go over: " + err.Error()
	} else if len(elements) > graph.MaxNodes {
		bad = fmt.Sprintf("a map over %d elements, more than %d: give each task a chunk of them", len(elements), graph.MaxNodes)
	}
	if bad != "" {
		return ended(g, id, store.ChangeFail, encodeFailure(&tasktype.Failure{Task: g.Specs[n.Spec].Task, Node: id.String(), Code: tasktype.CodeInput, Message: bad})), nil
	}
	inputs := make([]store.Literal, len(elements))
	for i, el := range elements {
		inputs[i] = store.Literal{Node: id.At(id.Index, i).String(), Input: el}
	}
	if ok, err := a.store.Flows.StoreInputs(ctx, fl.Flow, id.String(), id.Scope, g.Planned, inputs); err != nil || !ok {
		return store.Change{}, err
	}
	var joins []store.Edge
	for _, e := range g.Members(id.Index) {
		if e.Kind == graph.Any {
			joins = append(joins, edge(g, id, e))
		}
	}
	members := release(g, id.At(id.Index, 0), false)
	c := store.ExtendChange(id.String(), len(elements), g.Specs[n.Spec].Sub > 0, &members, joins)
	c.Scope, c.Planned = id.Scope, g.Planned
	return c, nil
}

// planEnded returns the change that gives a planned node the outcome of its plan.
func (a *advancer) planEnded(ctx context.Context, v *values, g *graph.Graph, id graph.ID) (store.Change, error) {
	planned := id.String()
	sub, err := a.graphs.of(ctx, v.fl.Flow, planned)
	if err != nil {
		return store.Change{}, err
	}
	root := graph.ID{Scope: planned, Index: sub.Root, Inst: -1}
	rec, err := v.record(ctx, root.String())
	if err != nil || !rec.Terminal() {
		return store.Change{}, err
	}
	var c store.Change
	if rec.State == store.StateSucceeded {
		c = ended(g, id, store.ChangeSucceed, []byte("="+root.String()))
	} else {
		f, err := v.failure(ctx, root)
		if err != nil {
			return store.Change{}, err
		}
		if rec.Cause != "" { // it was skipped
			if rec, err = v.record(ctx, rec.Cause); err != nil {
				return store.Change{}, err
			}
		}
		outcome := store.ChangeFail
		if rec.State == store.StateRevoked {
			outcome = store.ChangeRevoke
		}
		c = ended(g, id, outcome, encodeFailure(f))
	}
	c.Flags = append(c.Flags, store.FlagPlanned, store.FlagAfter+root.String())
	return c, nil
}

// apply makes changes of nodes of which the caller has no leases.
func (a *advancer) apply(ctx context.Context, fl *flow, changes []store.Change) (store.Todo, error) {
	res, err := a.store.Turns.Advance(ctx, store.Changes{Flow: fl.Flow, List: changes})
	if err != nil {
		return store.Todo{}, err
	}
	if len(res.Todos) == 0 {
		return store.Todo{}, nil
	}
	if bad := res.Todos[0].Bad; bad != "" {
		return store.Todo{}, a.giveUp(ctx, fl.Flow, errors.New(bad))
	}
	return res.Todos[0], nil
}

// ended returns the change that makes a node terminal of which the caller has no lease, with the body of its record.
func ended(g *graph.Graph, id graph.ID, outcome string, body []byte) store.Change {
	c := end(g, id, outcome)
	c.End(id.String(), append([]byte{'?'}, body...))
	return c
}

// end returns the change that makes a node terminal. The caller adds the node and its record.
func end(g *graph.Graph, id graph.ID, outcome string) store.Change {
	n := &g.Nodes[id.Index]
	c := store.Change{Outcome: outcome, Scope: id.Scope, Planned: g.Planned}
	if id.Inst >= 0 || !g.Virtual(id.Index) {
		c.Task = g.Specs[n.Spec].Task
	}
	edges := g.Succs(id.Index)
	switch {
	case id.Inst >= 0 && n.Kind == graph.Each:
		c.Flags = []string{store.FlagMember}
		if g.Specs[n.Spec].Sub > 0 {
			c.Flags = append(c.Flags, store.FlagStep)
		}
		edges = g.Members(id.Index)
		if n.AtMost > 0 {
			c.Back = id.At(id.Index, -1).String()
		}
	case id.Inst >= 0:
		edges = nil
	case g.Virtual(id.Index):
		c.Flags = []string{store.FlagStep}
	case g.Drops:
		c.Flags = []string{store.FlagDrop}
	}
	if outcome == store.ChangeFail && g.FailsFast() {
		c.Flags = append(c.Flags, store.FlagFailFast)
	}
	if n.Rel > 0 && id.Inst < 0 {
		c.Back = id.At(n.Rel-1, -1).String()
		if n.By > 0 {
			c.Back += " " + id.At(n.By-1, -1).String()
		}
	}
	first, last := 0, -2 // of the span at the end of the edges
	for _, e := range edges {
		if outcome == store.ChangeSucceed && (e.Kind == graph.Rescuer || e.Kind == graph.Catcher || e.Kind == graph.NoMap) {
			continue // they act on failures
		}
		s := edge(g, id, e)
		if plain := outcome == store.ChangeSucceed && e.Kind == graph.Need && e.Inst == -1 && s.Need == "1" && s.Lim == "" && s.Lane != store.NoLane; plain {
			if e.To == last+1 && s.Delay == c.Edges[len(c.Edges)-1].Delay && s.Lane == c.Edges[len(c.Edges)-1].Lane {
				last = e.To
				span := &c.Edges[len(c.Edges)-1]
				span.Node = id.At(first, -1).String() + "-" + strconv.Itoa(last)
				continue
			}
			first, last = e.To, e.To
		} else {
			last = -2
		}
		c.Edges = append(c.Edges, s)
	}
	if id.Scope != "" && id.Index == g.Root && id.Inst < 0 {
		c.Edges = append(c.Edges, store.Edge{Node: id.Scope, Kind: string(graph.Replaces), Need: "1", Lane: store.NoLane})
	}
	return c
}

// edge returns the stored form of an edge of node id.
func edge(g *graph.Graph, id graph.ID, e graph.Edge) store.Edge {
	inst := e.Inst
	if inst == -2 {
		inst = id.Inst
	}
	to := id.At(e.To, inst)
	r := release(g, to, false)
	s := store.Edge{Node: to.String(), Kind: string(e.Kind), Need: need(g, id, e.To), Delay: r.Delay, Lim: r.Lim, Lane: r.Lane}
	if e.Kind == graph.OfMap {
		s.Need, s.Lane = "0+"+s.Node, store.NoLane
	}
	return s
}

// sooner returns the shorter of two waits; 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// giveUp ends a workflow that cannot be decoded.
func (a *advancer) giveUp(ctx context.Context, f store.Flow, cause error) error {
	return a.giveUpIn(ctx, f, cause, nil)
}

// giveUpIn is giveUp for a worker with a lease. A worker that has lost the lease may know a plan that Redis lost.
func (a *advancer) giveUpIn(ctx context.Context, f store.Flow, cause error, l *store.NodeLease) error {
	a.log.ErrorContext(ctx, "workflow cannot be read, and was given up", "workflow", f.ID(), "error", cause)
	failure := &tasktype.Failure{Attempts: 1, Code: tasktype.CodeDamaged, Message: shorten(fmt.Sprintf("its data in Redis cannot be decoded, key %s: %v", a.store.Key(f), cause))}
	_, err := a.store.Flows.Abort(ctx, f, encodeFailure(failure), l)
	return err
}

func encodeFailure(f *tasktype.Failure) []byte {
	raw, _ := json.Marshal(f) // its input, if it has one, is JSON
	return raw
}
