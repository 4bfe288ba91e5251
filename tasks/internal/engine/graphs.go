package engine

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// The graphs kept in memory are bounded by their number of nodes, each of some 250 bytes. A graph itself counts as
// graphWeight nodes.
const (
	maxKept     = 200_000
	graphWeight = 32
	largeGraph  = 256 // nodes; a larger graph is dropped when its workflow ends
)

// keptGraph is a graph in memory. An id that the sender chose may be used for another workflow once the retention of
// this one is over, so such a graph is kept for less.
type keptGraph struct {
	g     *graph.Graph
	sum   uint64    // of its encoding
	until time.Time // zero for no limit
}

var sumSeed = maphash.MakeSeed()

// keptGraphs holds the graphs used last, in two generations. When the young ones reach half of maxKept, they become the
// old ones, and the old ones that were not used in the meantime are dropped.
type keptGraphs struct {
	young, old map[string]keptGraph
	weight     int // of the young ones
}

func (k *keptGraphs) get(key string) (keptGraph, bool) {
	if g, ok := k.young[key]; ok {
		return g, true
	}
	g, ok := k.old[key]
	if ok {
		delete(k.old, key)
		k.put(key, g)
	}
	return g, ok
}

func (k *keptGraphs) put(key string, g keptGraph) {
	k.drop(key)
	if k.weight += weight(g.g); k.weight > maxKept/2 || k.young == nil {
		k.young, k.old, k.weight = map[string]keptGraph{}, k.young, weight(g.g)
	}
	k.young[key] = g
}

func (k *keptGraphs) drop(key string) {
	if g, ok := k.young[key]; ok {
		k.weight -= weight(g.g)
		delete(k.young, key)
	}
	delete(k.old, key)
}

func weight(g *graph.Graph) int { return len(g.Nodes) + graphWeight }

func (e *Engine) keep(id, scope string, g *graph.Graph, sum uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var until time.Time
	switch {
	case generated(id):
	case scope == "":
		until = e.clock.Now().Add(cmp.Or(time.Duration(g.Retention)*time.Millisecond, DefaultRetention) / 2)
	default:
		top, _ := e.graphs.get(id + "/") // a plan is kept as long as its workflow
		until = top.until
	}
	e.graphs.put(id+"/"+scope, keptGraph{g, sum, until})
}

// dropLarge drops the graph of a workflow that has ended if it is large. Small ones are kept for later reads.
func (e *Engine) dropLarge(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if k, ok := e.graphs.get(id + "/"); ok && len(k.g.Nodes) > largeGraph {
		e.graphs.drop(id + "/")
	}
}

// kept returns a graph in memory, and the sum of its encoding; nil if it is not there.
func (e *Engine) kept(id, scope string) (*graph.Graph, uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := id + "/" + scope
	k, ok := e.graphs.get(key)
	if !ok {
		return nil, 0
	}
	if !k.until.IsZero() && !e.clock.Now().Before(k.until) {
		e.graphs.drop(key)
		return nil, 0
	}
	return k.g, k.sum
}

// load returns a workflow with its graph.
func (e *Engine) load(ctx context.Context, id string) (*flow, error) {
	f, err := e.store.Flows.Address(ctx, id)
	if err != nil {
		return nil, err
	}
	g, err := e.graphOf(ctx, f, "")
	if err != nil {
		return nil, err
	}
	return newFlow(f, g), nil
}

func (e *Engine) graphOf(ctx context.Context, f store.Flow, scope string) (*graph.Graph, error) {
	if g, _ := e.kept(f.ID, scope); g != nil {
		return g, nil
	}
	raws, err := e.store.Flows.Fields(ctx, f, []string{store.GraphField(scope)})
	if err != nil {
		return nil, err
	}
	if raws[0] == nil {
		return nil, ErrUnknown
	}
	return e.learn(f.ID, scope, raws[0], false)
}

// graphAt returns the graph that a node is in. Node ids come from Redis, so they may be damaged.
func (e *Engine) graphAt(ctx context.Context, f store.Flow, id graph.ID) (*graph.Graph, error) {
	g, err := e.graphOf(ctx, f, id.Scope)
	if err != nil {
		return nil, err
	}
	return g, hasNode(g, f.ID, id)
}

// hasNode returns an error if the graph of a workflow has no such node.
func hasNode(g *graph.Graph, workflow string, id graph.ID) error {
	if id.Index >= len(g.Nodes) || id.Inst >= 0 && g.Nodes[id.Index].Kind != graph.Each && g.Nodes[id.Index].Kind != graph.Catch {
		return fmt.Errorf("workflow %s %w: it has no node %s", workflow, errUnreadable, id)
	}
	return nil
}

// learn decodes a graph. It is kept if the workflow is known to be live, or its id is never used again.
func (e *Engine) learn(id, scope string, raw []byte, live bool) (*graph.Graph, error) {
	e.decoding.Lock() // many slots may meet a large workflow at once, and one of them decodes it
	defer e.decoding.Unlock()
	sum := maphash.Bytes(sumSeed, raw)
	if g, of := e.kept(id, scope); g != nil && of == sum {
		return g, nil
	}
	g, err := graph.Decode(raw)
	if err != nil {
		return nil, fmt.Errorf("workflow %s %w: %w", id, errUnreadable, err)
	}
	if live || generated(id) {
		e.keep(id, scope, g, sum)
	}
	return g, nil
}
