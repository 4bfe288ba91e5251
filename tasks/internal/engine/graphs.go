package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// graphs reads the graphs of workflows, and keeps those in memory that were used last.
type graphs struct {
	*env
	seed maphash.Seed // of the sums of encodings

	decoding sync.Mutex // held while a graph is decoded

	mu   sync.Mutex // guards kept
	kept keptGraphs
}

func newGraphs(e *env) *graphs { return &graphs{env: e, seed: maphash.MakeSeed()} }

// load returns a workflow with its graph.
func (gs *graphs) load(ctx context.Context, id string) (*flow, error) {
	f, err := gs.store.Flows.Address(ctx, id)
	if err != nil {
		return nil, err
	}
	g, err := gs.of(ctx, f, "")
	if err != nil {
		return nil, err
	}
	return newFlow(f, g), nil
}

// of returns the graph of a scope of a workflow.
func (gs *graphs) of(ctx context.Context, f store.Flow, scope string) (*graph.Graph, error) {
	if g, _ := gs.get(f.ID, scope); g != nil {
		return g, nil
	}
	raws, err := gs.store.Flows.Fields(ctx, f, []string{store.GraphField(scope)})
	if err != nil {
		return nil, err
	}
	if raws[0] == nil {
		return nil, ErrUnknown
	}
	return gs.learn(f.ID, scope, raws[0], false)
}

// at returns the graph that a node is in. Node ids come from Redis, so they may be damaged.
func (gs *graphs) at(ctx context.Context, f store.Flow, id graph.ID) (*graph.Graph, error) {
	g, err := gs.of(ctx, f, id.Scope)
	if err != nil {
		return nil, err
	}
	return g, hasNode(g, f.ID, id)
}

// node returns a node by its name, with its graph.
func (gs *graphs) node(ctx context.Context, fl *flow, node string) (graph.ID, *graph.Graph, error) {
	id, err := graph.ParseID(node)
	if err != nil {
		return id, nil, fmt.Errorf("workflow %s %w: %w", fl.ID, errUnreadable, err)
	}
	g, err := gs.at(ctx, fl.Flow, id)
	return id, g, err
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

// hasNode returns an error if the graph of a workflow has no such node.
func hasNode(g *graph.Graph, workflow string, id graph.ID) error {
	if id.Index >= len(g.Nodes) || id.Inst >= 0 && g.Nodes[id.Index].Kind != graph.Each && g.Nodes[id.Index].Kind != graph.Catch {
		return fmt.Errorf("workflow %s %w: it has no node %s", workflow, errUnreadable, id)
	}
	return nil
}

// learn decodes a graph. It is kept if the workflow is known to be live, or its id is never used again.
func (gs *graphs) learn(id, scope string, raw []byte, live bool) (*graph.Graph, error) {
	gs.decoding.Lock() // many slots may meet a large workflow at once, and one of them decodes it
	defer gs.decoding.Unlock()
	sum := gs.sum(raw)
	if g, of := gs.get(id, scope); g != nil && of == sum {
		return g, nil
	}
	g, err := graph.Decode(raw)
	if err != nil {
		return nil, fmt.Errorf("workflow %s %w: %w", id, errUnreadable, err)
	}
	if live || generated(id) {
		gs.keep(id, scope, g, sum)
	}
	return g, nil
}

// sum returns the sum of the encoding of a graph.
func (gs *graphs) sum(raw []byte) uint64 { return maphash.Bytes(gs.seed, raw) }

// keep keeps a graph in memory.
func (gs *graphs) keep(id, scope string, g *graph.Graph, sum uint64) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	var until time.Time
	switch {
	case generated(id):
	case scope == "":
		until = gs.clock.Now().Add(cmp.Or(time.Duration(g.Retention)*time.Millisecond, DefaultRetention) / 2)
	default:
		top, _ := gs.kept.get(id + "/") // a plan is kept as long as its workflow
		until = top.until
	}
	gs.kept.put(id+"/"+scope, keptGraph{g, sum, until})
}

// get returns a graph in memory, and the sum of its encoding; nil if it is not there.
func (gs *graphs) get(id, scope string) (*graph.Graph, uint64) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	key := id + "/" + scope
	k, ok := gs.kept.get(key)
	if !ok {
		return nil, 0
	}
	if !k.until.IsZero() && !gs.clock.Now().Before(k.until) {
		gs.kept.drop(key)
		return nil, 0
	}
	return k.g, k.sum
}

// dropLarge drops the graph of a workflow that has ended if it is large. Small ones are kept for later reads.
func (gs *graphs) dropLarge(id string) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if k, ok := gs.kept.get(id + "/"); ok && len(k.g.Nodes) > largeGraph {
		gs.kept.drop(id + "/")
	}
}

// aborted returns why a workflow was given up as a whole, or nil if it was not.
func (gs *graphs) aborted(ctx context.Context, f store.Flow) (*tasktype.Failure, error) {
	raws, err := gs.store.Flows.Fields(ctx, f, []string{store.AbortField})
	if err != nil {
		return nil, err
	}
	return cause(f, raws[0])
}

// cause reads the field that says why a workflow was given up; nil if it was not.
func cause(f store.Flow, raw []byte) (*tasktype.Failure, error) {
	if raw == nil {
		return nil, nil
	}
	fail := &tasktype.Failure{}
	if err := json.Unmarshal(raw, fail); err != nil {
		return nil, fmt.Errorf("failure of workflow %s: %w", f.ID, err)
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

// keptGraph is a graph in memory. An id that the sender chose may be used for another workflow once the retention of
// this one is over, so such a graph is kept for less.
type keptGraph struct {
	g     *graph.Graph
	sum   uint64    // of its encoding
	until time.Time // zero for no limit
}

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
