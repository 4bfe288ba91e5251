package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// graphs reads the graphs of workflows, and keeps those in memory that were used last.
type graphs struct {
	*env
	decoding sync.Mutex // held while a graph is decoded

	mu        sync.Mutex // guards the fields below
	kept      keptGraphs
	templates keptGraphs // graphs by the key of their template
}

// load returns the workflow with a reference or id, with its graph.
func (gs *graphs) load(ctx context.Context, refOrID string) (*flow, error) {
	f, err := gs.store.Flows.Address(ctx, refOrID)
	if err != nil {
		return nil, err
	}
	g, err := gs.of(ctx, f, "")
	if err != nil {
		return nil, err
	}
	return newFlow(f, g), nil
}

// of returns the graph of a scope of a workflow. The graph of a workflow never changes, but a planner runs again if Redis
// lost its plan, and may return another one.
func (gs *graphs) of(ctx context.Context, f store.Flow, scope string) (*graph.Graph, error) {
	g, planned := gs.get(f.Ref, scope), store.FieldPlannedAt+scope
	if g != nil && scope != "" {
		fields, err := gs.store.Flows.Fields(ctx, f, planned)
		if err != nil {
			return nil, err
		}
		if fields[planned] != g.Planned {
			g = nil
		}
	}
	if g != nil {
		return g, nil
	}
	fields, err := gs.store.Flows.Fields(ctx, f, store.FieldGraph+scope, planned)
	if err != nil {
		return nil, err
	}
	raw, ok := fields[store.FieldGraph+scope]
	if !ok {
		return nil, ErrUnknown
	}
	return gs.learn(f.Ref, scope, fields[planned], []byte(raw))
}

// spec returns how a node runs; nil if its workflow is gone or cannot be read.
func (gs *graphs) spec(ctx context.Context, f store.Flow, node string) (*graph.Spec, error) {
	id, err := graph.ParseID(node)
	if err != nil {
		return nil, err
	}
	g, err := gs.of(ctx, f, id.Scope)
	if errors.Is(err, ErrUnknown) || errors.Is(err, errUnreadable) || err == nil && id.Index >= len(g.Nodes) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &g.Specs[g.Nodes[id.Index].Spec], nil
}

// learn decodes a graph, and keeps it. planned is the time at which a plan was stored.
func (gs *graphs) learn(ref, scope, planned string, raw []byte) (*graph.Graph, error) {
	gs.decoding.Lock() // many slots may meet a large workflow at once, and one of them decodes it
	defer gs.decoding.Unlock()
	if g := gs.get(ref, scope); g != nil && g.Planned == planned {
		return g, nil
	}
	g, err := gs.decode(ref, raw)
	if err != nil {
		return nil, fmt.Errorf("workflow %s %w: %w", store.IDOf(ref), errUnreadable, err)
	}
	g.Planned = planned
	gs.keep(ref, scope, g)
	return g, nil
}

// decode decodes a graph of a workflow. It shares the template of an earlier one, if that is in memory.
func (gs *graphs) decode(ref string, raw []byte) (*graph.Graph, error) {
	header, key, err := graph.Peek(raw)
	if err != nil {
		return nil, err
	}
	if header.Created == 0 {
		header.Created = store.SentAt(ref).UnixMilli()
	}
	gs.mu.Lock()
	g := gs.templates.get(key)
	gs.mu.Unlock()
	if g != nil {
		return &graph.Graph{Header: header, Template: g.Template}, nil
	}
	if g, err = graph.Decode(raw); err != nil {
		return nil, err
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.templates.put(key, g)
	return &graph.Graph{Header: header, Template: g.Template}, nil
}

// caption is [store.Captions].
func (gs *graphs) caption(ref string, raw []byte) (string, int64) {
	g, err := gs.decode(ref, raw)
	if err != nil {
		return store.Unreadable, store.SentAt(ref).UnixMilli()
	}
	f := newFlow(store.Flow{}, g)
	return f.Caption, f.Created
}

// keep keeps a graph in memory.
func (gs *graphs) keep(ref, scope string, g *graph.Graph) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.kept.put(ref+"/"+scope, g)
}

// get returns a graph in memory; nil if it is not there. A plan may be one that Redis lost.
func (gs *graphs) get(ref, scope string) *graph.Graph {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.kept.get(ref + "/" + scope)
}

// dropLarge drops the graph of a workflow that has ended if it is large. Small ones are kept for later reads.
func (gs *graphs) dropLarge(ref string) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if g := gs.kept.get(ref + "/"); g != nil && len(g.Nodes) > largeGraph {
		gs.kept.drop(ref + "/")
	}
}

// aborted returns why a workflow was given up as a whole, or nil if it was not.
func (gs *graphs) aborted(ctx context.Context, f store.Flow) (*tasktype.Failure, error) {
	fields, err := gs.store.Flows.Fields(ctx, f, store.FieldAborted)
	if err != nil {
		return nil, err
	}
	return cause(f, fields)
}

// cause reads the reason why a workflow was abandoned; nil if it was not.
func cause(f store.Flow, fields map[string]string) (*tasktype.Failure, error) {
	if fields[store.FieldAborted] == "" {
		return nil, nil
	}
	fail := &tasktype.Failure{}
	if err := json.Unmarshal([]byte(fields[store.FieldAborted]), fail); err != nil {
		return nil, fmt.Errorf("failure of workflow %s: %w", f.ID(), err)
	}
	return fail, nil
}

// The graphs kept in memory are bounded by their number of nodes, each of some 250 bytes. A graph itself counts as
// graphWeight nodes.
const (
	maxKept     = 200_000
	graphWeight = 32
	largeGraph  = 256 // nodes; a larger graph is dropped when its workflow ends
)

// keptGraphs holds the graphs used last, by a key, in two generations. When the young ones reach half of
// maxKept, they become the old ones, and the old ones that were not used in the meantime are dropped.
type keptGraphs struct {
	young, old map[string]*graph.Graph
	weight     int // of the young ones
}

// get returns a graph; nil if it is not there.
func (k *keptGraphs) get(key string) *graph.Graph {
	if g := k.young[key]; g != nil {
		return g
	}
	g := k.old[key]
	if g != nil {
		delete(k.old, key)
		k.put(key, g)
	}
	return g
}

func (k *keptGraphs) put(key string, g *graph.Graph) {
	k.drop(key)
	if k.weight += weight(g); k.weight > maxKept/2 || k.young == nil {
		k.young, k.old, k.weight = map[string]*graph.Graph{}, k.young, weight(g)
	}
	k.young[key] = g
}

func (k *keptGraphs) drop(key string) {
	if g := k.young[key]; g != nil {
		k.weight -= weight(g)
		delete(k.young, key)
	}
	delete(k.old, key)
}

func weight(g *graph.Graph) int { return len(g.Nodes) + graphWeight }
