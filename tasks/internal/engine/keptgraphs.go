package engine

import (
	"time"

	"muster/tasks/internal/graph"
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
