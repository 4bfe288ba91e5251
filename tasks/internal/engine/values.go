package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// values reads results of a workflow, each record once.
type values struct {
	e      *Engine
	fl     *flow
	recs   map[string]store.Record
	counts map[string]int
}

func (e *Engine) newValues(fl *flow) *values {
	return &values{e: e, fl: fl, recs: map[string]store.Record{}, counts: map[string]int{}}
}

func (v *values) fetch(ctx context.Context, ids []string) error {
	var missing []string
	for _, id := range ids {
		if _, ok := v.recs[id]; !ok {
			missing = append(missing, id)
			v.recs[id] = store.Record{}
		}
	}
	raws, err := v.e.store.Fields(ctx, v.fl.Flow, missing)
	if err != nil {
		return err
	}
	for i, id := range missing {
		v.recs[id] = store.ParseRecord(raws[i], v.fl.Created)
	}
	return nil
}

func (v *values) record(ctx context.Context, id string) (store.Record, error) {
	err := v.fetch(ctx, []string{id})
	return v.recs[id], err
}

// members returns how many members a map has; -1 when that is not known yet.
func (v *values) members(ctx context.Context, id string) (int, error) {
	if n, ok := v.counts[id]; ok {
		return n, nil
	}
	raws, err := v.e.store.Fields(ctx, v.fl.Flow, []string{"m" + id})
	if err != nil {
		return 0, err
	}
	if raws[0] == nil {
		return -1, nil
	}
	n, err := strconv.Atoi(string(raws[0]))
	if err != nil {
		return 0, fmt.Errorf("members of map %s: %w", id, err)
	}
	v.counts[id] = n
	return n, nil
}

// parts returns the nodes a value is made of, and none for the value of a task.
func (v *values) parts(ctx context.Context, g *graph.Graph, id graph.ID) ([]graph.ID, error) {
	n := &g.Nodes[id.Index]
	if id.Inst >= 0 {
		return nil, nil
	}
	var out []graph.ID
	switch n.Kind {
	case graph.List, graph.Pair, graph.Outcomes, graph.Or:
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

// value returns what a node yields.
func (v *values) value(ctx context.Context, id graph.ID) (json.RawMessage, error) {
	g, err := v.e.graphAt(ctx, v.fl.Flow, id)
	if err != nil {
		return nil, err
	}
	n := &g.Nodes[id.Index]
	switch {
	case id.Inst >= 0 || n.Kind == graph.Task || n.Kind == graph.Catch:
		return v.taskValue(ctx, id)
	case n.Kind == graph.Wrap:
		return v.wrap(ctx, id.At(n.In-1, -1))
	}
	parts, err := v.parts(ctx, g, id)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.String()
	}
	if err := v.fetch(ctx, names); err != nil {
		return nil, err
	}
	switch n.Kind {
	case graph.Or:
		i := slices.IndexFunc(names, func(name string) bool { return v.recs[name].State == 'S' })
		if i < 0 {
			return nil, v.noValue(id)
		}
		return v.value(ctx, parts[i])
	case graph.Pair:
		return v.concat(ctx, parts, `{"first":`, `,"second":`, "}", v.value)
	case graph.Outcomes, graph.EachEnded:
		return v.concat(ctx, parts, "[", ",", "]", v.outcome)
	}
	return v.concat(ctx, parts, "[", ",", "]", v.value)
}

func (v *values) noValue(id graph.ID) error {
	return fmt.Errorf("node %s of workflow %s %w", id, v.fl.ID, errNoValue)
}

// taskValue returns the result of a task; that of a planned one is the value of its plan.
func (v *values) taskValue(ctx context.Context, id graph.ID) (json.RawMessage, error) {
	rec, err := v.record(ctx, id.String())
	if err != nil {
		return nil, err
	}
	if rec.State != 'S' {
		return nil, v.noValue(id)
	}
	alias, ok := strings.CutPrefix(string(rec.Body), "=")
	if !ok {
		return rec.Body, nil
	}
	to, err := graph.ParseID(alias)
	if err != nil {
		return nil, err
	}
	return v.value(ctx, to)
}

// concat returns what one yields for each of parts, with text before, between and behind.
func (v *values) concat(ctx context.Context, parts []graph.ID, before, between, behind string,
	one func(context.Context, graph.ID) (json.RawMessage, error),
) (json.RawMessage, error) {
	var b bytes.Buffer
	b.WriteString(before)
	for i, p := range parts {
		if i > 0 {
			b.WriteString(between)
		}
		raw, err := one(ctx, p)
		if err != nil {
			return nil, err
		}
		b.Write(raw)
	}
	b.WriteString(behind)
	return b.Bytes(), nil
}

// outcome returns what became of a node whose record was read: its value, or the error it failed with.
func (v *values) outcome(ctx context.Context, id graph.ID) (json.RawMessage, error) {
	if v.recs[id.String()].State != 'S' {
		f, err := v.failure(ctx, id)
		if err != nil {
			return nil, err
		}
		// The zero value of the member's type is not known here; null decodes to it.
		return slices.Concat([]byte(`{"value":null,"err":`), encodeFailure(f), []byte("}")), nil
	}
	raw, err := v.value(ctx, id)
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(`{"value":`), raw, []byte("}")), nil
}

// wrap returns the elements of a list that has no members as outcomes.
func (v *values) wrap(ctx context.Context, id graph.ID) (json.RawMessage, error) {
	raw, err := v.value(ctx, id)
	if err != nil {
		return nil, err
	}
	var els []json.RawMessage
	if err := json.Unmarshal(raw, &els); err != nil {
		return nil, fmt.Errorf("settle a value that is no list: %w", err)
	}
	type outcome struct {
		Value json.RawMessage `json:"value"`
	}
	outs := make([]outcome, len(els))
	for i, el := range els {
		outs[i].Value = el
	}
	return json.Marshal(outs)
}

// failure returns why a node has no value.
func (v *values) failure(ctx context.Context, id graph.ID) (*tasktype.Failure, error) {
	rec, err := v.record(ctx, id.String())
	if err != nil {
		return nil, err
	}
	at := id.String()
	if rec.State == 'K' || rec.State == 'k' {
		at = rec.Cause
		if rec, err = v.record(ctx, at); err != nil {
			return nil, err
		}
	}
	f := &tasktype.Failure{Node: at, Code: tasktype.CodeRevoked, Message: "revoked"}
	if len(rec.Body) > 0 {
		if err := json.Unmarshal(rec.Body, f); err != nil {
			return nil, fmt.Errorf("failure of node %s: %w", at, err)
		}
	}
	if f.Task == "" {
		if fid, err := graph.ParseID(at); err == nil {
			if g, err := v.e.graphAt(ctx, v.fl.Flow, fid); err == nil {
				f.Task = title(g, fid)
			}
		}
	}
	return f, nil
}

// title returns the name of a node's task, or what a virtual node does.
func title(g *graph.Graph, id graph.ID) string {
	n := &g.Nodes[id.Index]
	if id.Inst >= 0 || n.Kind == graph.Task || n.Kind == graph.Catch {
		return g.Specs[n.Spec].Task
	}
	switch n.Kind {
	case graph.List:
		return "(group)"
	case graph.Pair:
		return "(join)"
	case graph.Or:
		return "(rescue)"
	case graph.Each:
		return "(map " + g.Specs[n.Spec].Task + ")"
	case graph.Permit:
		return "(permit)"
	}
	return "(settle)"
}
