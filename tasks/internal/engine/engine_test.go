package engine

import (
	"fmt"
	"log/slog"
	"testing"

	"muster/tasks/internal/graph"
	"muster/tasks/redistest"
)

// A process keeps the graphs that it works on, and not all it has seen.
func TestGraphsInMemoryAreBounded(t *testing.T) {
	t.Parallel()
	e := New(redistest.New(t), slog.New(slog.DiscardHandler))
	t.Cleanup(e.Close)
	large := &graph.Graph{Nodes: make([]graph.Node, 10_000)}
	weigh := func() (nodes int) {
		for _, k := range e.graphs {
			nodes += k.weight()
		}
		return nodes
	}
	e.keep("inuse", "", large)
	for i := range 100 {
		for range 1500 {
			if e.kept("inuse", "") == nil {
				t.Fatalf("after %d others, a graph in use is not kept", i)
			}
		}
		e.keep(fmt.Sprint(i), "", large)
		if n := weigh(); n > maxKept || n != e.weight {
			t.Fatalf("%d nodes are kept and counted as %d, want at most %d", n, e.weight, maxKept)
		}
	}
	if e.kept("0", "") != nil {
		t.Error("the oldest graph is still kept")
	}

	e.keep("huge", "", &graph.Graph{Nodes: make([]graph.Node, 2*maxKept)})
	if e.kept("huge", "") == nil || len(e.graphs) != 1 {
		t.Errorf("%d graphs are kept with one that is larger than all that should be", len(e.graphs))
	}
	e.keep("next", "", large)
	if e.kept("huge", "") != nil || e.kept("next", "") == nil {
		t.Error("a huge graph stays though another one came")
	}

	e.keep("small", "", &graph.Graph{Nodes: make([]graph.Node, largeGraph)})
	e.dropLarge("next")
	e.dropLarge("small")
	e.dropLarge("unknown")
	if e.kept("next", "") != nil || e.kept("small", "") == nil {
		t.Error("want the graph of an ended workflow forgotten if it is large, and only then")
	}
}
