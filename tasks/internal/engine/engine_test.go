package engine

import (
	"fmt"
	"testing"

	"muster/tasks/internal/graph"
	"muster/tasks/redistest"
)

// A process keeps the graphs that it works on, and not all it has seen.
func TestGraphsInMemoryAreBounded(t *testing.T) {
	t.Parallel()
	e := engineOn(t, redistest.New(t))
	large := &graph.Graph{Nodes: make([]graph.Node, 10_000)}
	weigh := func() (nodes int) {
		for _, generation := range []map[string]keptGraph{e.graphs.young, e.graphs.old} {
			for _, k := range generation {
				nodes += weight(k.g)
			}
		}
		return nodes
	}
	e.keep("inuse", "", large)
	for i := range 100 {
		if e.kept("inuse", "") == nil {
			t.Fatalf("after %d others, a graph in use is not kept", i)
		}
		e.keep(fmt.Sprint(i), "", large)
		if n := weigh(); n > maxKept {
			t.Fatalf("%d nodes are kept, want at most %d", n, maxKept)
		}
	}
	if e.kept("0", "") != nil {
		t.Error("the oldest graph is still kept")
	}

	e.keep("huge", "", &graph.Graph{Nodes: make([]graph.Node, 2*maxKept)})
	if e.kept("huge", "") == nil {
		t.Error("a graph that is larger than all that should be kept is not kept while it is the newest")
	}
	e.keep("next", "", large)
	for i := range 20 {
		e.keep(fmt.Sprint("more", i), "", large)
	}
	if n := weigh(); n > maxKept || e.kept("huge", "") != nil {
		t.Errorf("%d nodes are kept: a huge graph stays though others came", n)
	}

	e.keep("next", "", large)
	e.keep("small", "", &graph.Graph{Nodes: make([]graph.Node, largeGraph)})
	e.dropLarge("next")
	e.dropLarge("small")
	e.dropLarge("unknown")
	if e.kept("next", "") != nil || e.kept("small", "") == nil {
		t.Error("want the graph of an ended workflow forgotten if it is large, and only then")
	}
}
