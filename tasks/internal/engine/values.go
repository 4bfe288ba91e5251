package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/clip"
	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// values reads the records of a workflow, each once, and the results of nodes.
type values struct {
	all    *graphs
	fl     *flow
	recs   map[string]store.Record
	counts map[string]int          // members of maps
	graphs map[string]*graph.Graph // by scope
}

// values returns a reader of the results of a workflow.
func (gs *graphs) values(fl *flow) *values {
	known := map[string]*graph.Graph{"": fl.g}
	if fl.plan != nil {
		known[fl.scope] = fl.plan
	}
	return &values{all: gs, fl: fl, recs: map[string]store.Record{}, counts: map[string]int{}, graphs: known}
}

// graph returns the graph that a node is in. With errUnreadable it has no such node.
func (v *values) graph(ctx context.Context, id graph.ID) (*graph.Graph, error) {
	g := v.graphs[id.Scope]
	if g == nil {
		var err error
		if g, err = v.all.of(ctx, v.fl.Flow, id.Scope); err != nil {
			return nil, err
		}
		v.graphs[id.Scope] = g
	}
	if id.Index >= len(g.Nodes) || id.Inst >= 0 && g.Nodes[id.Index].Kind != graph.Each && g.Nodes[id.Index].Kind != graph.Catch {
		return g, fmt.Errorf("workflow %s %w: it has no node %s", v.fl.ID(), errUnreadable, id)
	}
	return g, nil
}

// named returns a node by its name, with its graph. Names come from Redis, so they may be damaged.
func (v *values) named(ctx context.Context, node string) (graph.ID, *graph.Graph, error) {
	id, err := graph.ParseID(node)
	if err != nil {
		return id, nil, fmt.Errorf("workflow %s %w: %w", v.fl.ID(), errUnreadable, err)
	}
	g, err := v.graph(ctx, id)
	return id, g, err
}

// fetch reads the records of nodes that were not read before.
func (v *values) fetch(ctx context.Context, ids []string) error {
	var missing []string
	for _, id := range ids {
		if _, ok := v.recs[id]; !ok {
			missing = append(missing, id)
			v.recs[id] = store.Record{}
		}
	}
	raws, err := v.all.store.Flows.Fields(ctx, v.fl.Flow, missing...)
	if err != nil {
		return err
	}
	for _, id := range missing {
		v.recs[id] = store.ParseRecord([]byte(raws[id]), v.fl.Created)
	}
	return nil
}

// record returns the record of a node.
func (v *values) record(ctx context.Context, id string) (store.Record, error) {
	err := v.fetch(ctx, []string{id})
	return v.recs[id], err
}

// members returns how many members a map has; -1 when that is not known yet.
func (v *values) members(ctx context.Context, id string) (int, error) {
	if n, ok := v.counts[id]; ok {
		return n, nil
	}
	fields, err := v.all.store.Flows.Fields(ctx, v.fl.Flow, store.FieldMembersOf+id)
	if err != nil {
		return 0, err
	}
	m, ok := fields[store.FieldMembersOf+id]
	if !ok {
		return -1, nil
	}
	n, err := strconv.Atoi(m)
	if err != nil {
		return 0, fmt.Errorf("workflow %s %w: members of map %s: %w", v.fl.ID(), errUnreadable, id, err)
	}
	v.counts[id] = n
	return n, nil
}

// parts returns the nodes that the value of a group, a join, a map or one of these settled is made of.
func (v *values) parts(ctx context.Context, g *graph.Graph, id graph.ID) ([]graph.ID, error) {
	n := &g.Nodes[id.Index]
	var out []graph.ID
	switch n.Kind {
	case graph.List, graph.Pair, graph.Outcomes:
		for _, a := range n.Args {
			out = append(out, id.At(a, -1))
		}
	case graph.Each, graph.EachEnded:
		of := id
		if n.Kind == graph.EachEnded {
			of = id.At(n.In-1, -1)
		}
		m, err := v.members(ctx, of.String())
		if err != nil {
			return nil, err
		}
		for i := range m {
			out = append(out, of.At(of.Index, i))
		}
	}
	return out, nil
}

// fetchParts reads the records that determine the results of nodes. For passive nodes it reads their parts.
func (v *values) fetchParts(ctx context.Context, ids []graph.ID) error {
	var names []string
	var add func(id graph.ID) error
	add = func(id graph.ID) error {
		g, err := v.graph(ctx, id)
		if err != nil {
			return err
		}
		if id.Inst >= 0 || !g.Passive(id.Index) {
			names = append(names, id.String())
			return nil
		}
		for _, a := range g.Nodes[id.Index].Args {
			if err := add(id.At(a, -1)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, id := range ids {
		if err := add(id); err != nil {
			return err
		}
	}
	return v.fetch(ctx, names)
}

// state returns S if a node has a value, 0 while it runs, and otherwise the letter of the failed outcome and the node
// that caused it: for a passive node, its first failed part. It also returns when the node ended: a skipped one with the node that caused
// that, a passive one with its last part.
func (v *values) state(ctx context.Context, id graph.ID) (state byte, at graph.ID, ended time.Time, err error) {
	g, err := v.graph(ctx, id)
	if err != nil {
		return 0, id, ended, err
	}
	if id.Inst >= 0 || !g.Passive(id.Index) {
		rec, err := v.record(ctx, id.String())
		if err != nil || !rec.Terminal() {
			return 0, id, ended, err
		}
		cause := rec
		if rec.Cause != "" {
			cause, err = v.record(ctx, rec.Cause)
		}
		return rec.State, id, cause.Ended, err
	}
	if err := v.fetchParts(ctx, []graph.ID{id}); err != nil {
		return 0, id, ended, err
	}
	state, at = store.StateSucceeded, id
	for _, a := range g.Nodes[id.Index].Args {
		part, of, end, err := v.state(ctx, id.At(a, -1))
		if err != nil {
			return 0, id, ended, err
		}
		if end.After(ended) {
			ended = end
		}
		switch {
		case state != store.StateSucceeded && state != 0: // an earlier part has failed
		case part == 0:
			state = 0
		case part != store.StateSucceeded && g.Nodes[id.Index].Kind != graph.Outcomes:
			state, at = part, of
		}
	}
	return state, at, ended, nil
}

// member returns the result of a node as a member of a list.
func (v *values) member(ctx context.Context, id graph.ID) (m Member, err error) {
	state, at, ended, err := v.state(ctx, id)
	m.Ended = ended
	switch {
	case err != nil || state == 0:
	case state == store.StateSucceeded:
		m.Raw, err = v.value(ctx, id)
	default:
		m.Failure, err = v.failure(ctx, at)
	}
	return m, err
}

// value returns the value of a node.
func (v *values) value(ctx context.Context, id graph.ID) (json.RawMessage, error) {
	g, err := v.graph(ctx, id)
	if err != nil {
		return nil, err
	}
	n := &g.Nodes[id.Index]
	switch {
	case id.Inst >= 0 || n.Kind == graph.Task || n.Kind == graph.Catch:
		return v.result(ctx, id)
	case n.Kind == graph.Wrap:
		return v.wrap(ctx, id.At(n.In-1, -1))
	case n.Kind == graph.Or:
		of, err := v.chosen(ctx, n, id)
		if err != nil {
			return nil, err
		}
		return v.value(ctx, of)
	case n.Kind == graph.Permit:
		return nil, v.noValue(id)
	case n.Kind == graph.Const:
		return n.Value, nil
	}
	return v.compose(ctx, g, id)
}

// noValue is the error for a node that has no value.
func (v *values) noValue(id graph.ID) error {
	return fmt.Errorf("node %s of workflow %s %w", id, v.fl.ID(), errNoValue)
}

// result returns the value of a node with a handler.
func (v *values) result(ctx context.Context, id graph.ID) (json.RawMessage, error) {
	rec, err := v.record(ctx, id.String())
	if err != nil {
		return nil, err
	}
	if rec.State != store.StateSucceeded {
		return nil, v.noValue(id)
	}
	to, ok, err := v.alias(id, rec)
	if err != nil {
		return nil, err
	}
	if ok {
		return v.value(ctx, to)
	}
	return rec.Body, nil
}

// alias returns the node of its plan that a planned node has its value from.
func (v *values) alias(id graph.ID, rec store.Record) (to graph.ID, ok bool, err error) {
	name, ok := strings.CutPrefix(string(rec.Body), "=")
	if !ok || rec.State != store.StateSucceeded {
		return id, false, nil
	}
	to, err = graph.ParseID(name)
	if err == nil && to.Scope != id.String() { // it could lead back here
		err = fmt.Errorf("the plan of node %s has no node %s", id, name)
	}
	if err != nil {
		return id, false, fmt.Errorf("workflow %s %w: %w", v.fl.ID(), errUnreadable, err)
	}
	return to, true, nil
}

// chosen returns the part of a rescue that has its value: the rescued part or the rescuer.
func (v *values) chosen(ctx context.Context, n *graph.Node, id graph.ID) (graph.ID, error) {
	for _, a := range n.Args {
		rec, err := v.record(ctx, id.At(a, -1).String())
		if err != nil {
			return id, err
		}
		if rec.State == store.StateSucceeded {
			return id.At(a, -1), nil
		}
	}
	return id, v.noValue(id)
}

// partNames are the fields of a join.
var partNames = [...]string{`"first":`, `"second":`}

// compose returns the value of a node that is made of others.
func (v *values) compose(ctx context.Context, g *graph.Graph, id graph.ID) (json.RawMessage, error) {
	n := &g.Nodes[id.Index]
	parts, err := v.parts(ctx, g, id)
	if err != nil {
		return nil, err
	}
	if err := v.fetchParts(ctx, parts); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	object := n.Kind == graph.Pair
	switch {
	case object:
		b.WriteByte('{')
	case !n.Single:
		b.WriteByte('[')
	}
	for i, p := range parts {
		if i > 0 {
			b.WriteByte(',')
		}
		if object {
			b.WriteString(partNames[i])
		}
		m, err := v.member(ctx, p)
		if err != nil {
			return nil, err
		}
		if settles(n.Kind) {
			m = m.settled()
		}
		if m.Raw == nil {
			return nil, v.noValue(p)
		}
		b.Write(m.Raw)
	}
	switch {
	case object:
		b.WriteByte('}')
	case !n.Single:
		b.WriteByte(']')
	}
	return b.Bytes(), nil
}

// failure returns why a node has no value.
func (v *values) failure(ctx context.Context, id graph.ID) (*tasktype.Failure, error) {
	rec, err := v.record(ctx, id.String())
	if err != nil {
		return nil, err
	}
	at := id.String()
	if rec.State == store.StateSkipped || rec.State == store.StateSkipping {
		at = rec.Cause
		if rec, err = v.record(ctx, at); err != nil {
			return nil, err
		}
	}
	f := &tasktype.Failure{Node: at, Code: tasktype.CodeRevoked, Message: "revoked"}
	if len(rec.Body) > 0 {
		if err := json.Unmarshal(rec.Body, f); err != nil {
			return nil, fmt.Errorf("workflow %s %w: failure of node %s: %w", v.fl.ID(), errUnreadable, at, err)
		}
	}
	if f.Task == "" {
		if fid, err := graph.ParseID(at); err == nil {
			if g, err := v.graph(ctx, fid); err == nil {
				f.Task = title(g, fid)
			}
		}
	}
	return f, nil
}

// titles describe virtual nodes, by their kind.
var titles = map[graph.Kind]string{graph.List: "(group)", graph.Pair: "(join)", graph.Or: "(rescue)", graph.Permit: "(permit)", graph.Const: "(value)",
	graph.Outcomes: "(settle)", graph.Wrap: "(settle)", graph.EachEnded: "(settle)"}

// title returns the name of a node's task, or a description of a virtual node.
func title(g *graph.Graph, id graph.ID) string {
	n := &g.Nodes[id.Index]
	switch {
	case id.Inst >= 0 || n.Kind == graph.Task || n.Kind == graph.Catch:
		return g.Specs[n.Spec].Task
	case n.Kind == graph.Each:
		return "(map " + g.Specs[n.Spec].Task + ")"
	}
	return titles[n.Kind]
}

// input returns the input of a node, including the bound argument of its task.
func (v *values) input(ctx context.Context, g *graph.Graph, id graph.ID, rec *store.Record) ([]byte, error) {
	input, err := v.givenTo(ctx, g, id, rec)
	if err != nil {
		return nil, err
	}
	return Bound(g.Specs[g.Nodes[id.Index].Spec].Bind, input), nil
}

// inputOf returns the input of a failed node, and nil if it had none or it is unreadable.
func (v *values) inputOf(ctx context.Context, node string) (json.RawMessage, error) {
	id, err := graph.ParseID(node)
	if err != nil {
		return nil, nil
	}
	g, err := v.graph(ctx, id)
	if err != nil {
		return nil, unknownInput(err)
	}
	rec, err := v.record(ctx, node)
	if err != nil {
		return nil, err
	}
	fields, err := v.all.store.Flows.Fields(ctx, v.fl.Flow, store.FieldInput+node)
	if err != nil {
		return nil, err
	}
	return v.keptInput(ctx, g, id, &rec, fields)
}

// Bound adds bound second halves to an input.
func Bound(bind []json.RawMessage, input []byte) []byte {
	for _, second := range slices.Backward(bind) {
		input = slices.Concat([]byte(`{"first":`), input, []byte(`,"second":`), second, []byte("}"))
	}
	return input
}

// unbound returns an input without the second halves that [Bound] adds. They must be the bound ones.
func unbound(sp *graph.Spec, input []byte) ([]byte, error) {
	for _, second := range sp.Bind {
		var pair struct{ First, Second json.RawMessage }
		if err := json.Unmarshal(input, &pair); err != nil || pair.First == nil {
			return nil, errors.New("it must be an object with the fields first and second")
		}
		var have bytes.Buffer
		if json.Compact(&have, pair.Second) != nil || !bytes.Equal(have.Bytes(), second) {
			return nil, fmt.Errorf("its second half is bound to %s in the workflow", clip.Line(string(second), 200))
		}
		input = pair.First
	}
	return input, nil
}

// givenTo returns the input of a node: its literal, or the result of its dependency.
func (v *values) givenTo(ctx context.Context, g *graph.Graph, id graph.ID, rec *store.Record) ([]byte, error) {
	n := &g.Nodes[id.Index]
	switch {
	case n.Kind == graph.Catch:
		of := id.At(n.In-1, -1)
		if id.Inst >= 0 {
			if len(n.Args) > 0 {
				if id.Inst >= len(n.Args) {
					return nil, fmt.Errorf("workflow %s %w: it has no node %s", v.fl.ID(), errUnreadable, id)
				}
				of = id.At(n.Args[id.Inst], -1)
			} else {
				of.Inst = id.Inst
			}
		}
		f, err := v.failure(ctx, of)
		if err != nil {
			return nil, err
		}
		if f.Input, err = v.inputOf(ctx, f.Node); err != nil {
			return nil, err
		}
		return encodeFailure(f), nil
	case rec.Input != nil:
		return rec.Input, nil
	case n.In > 0 && id.Inst < 0:
		return v.value(ctx, id.At(n.In-1, -1))
	}
	return nil, fmt.Errorf("node %s of workflow %s: %w: it has no input", id, v.fl.ID(), errUnreadable)
}
