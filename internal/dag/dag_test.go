package dag_test

import (
	"fmt"
	"testing"

	"muster/internal/dag"
)

func TestLayersAndReduction(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		needs, reduced [][]int
		layers         []int
	}{
		{nil, nil, nil},
		{[][]int{{}, {0}, {0, 1}}, [][]int{{}, {0}, {1}}, []int{0, 1, 2}},
		{[][]int{{}, {}, {0, 1}, {0, 2, 1}}, [][]int{{}, {}, {0, 1}, {2}}, []int{0, 0, 1, 2}},
		{[][]int{{}, {0}, {}, {0, 1, 2}, {3, 0, 2}}, [][]int{{}, {0}, {}, {1, 2}, {3}}, []int{0, 1, 0, 2, 3}},
		{[][]int{{}, {}, {0, 1}, {0, 1}}, [][]int{{}, {}, {0, 1}, {0, 1}}, []int{0, 0, 1, 1}},
		{[][]int{{1}, {0}}, [][]int{{}, {}}, []int{0, 0}}, // a cycle, which a workflow cannot contain
	} {
		if got := dag.Layers(c.needs); fmt.Sprint(got) != fmt.Sprint(c.layers) {
			t.Errorf("layers of %v: got %v, want %v", c.needs, got, c.layers)
		}
		if got := dag.Reduce(c.needs); fmt.Sprint(got) != fmt.Sprint(c.reduced) {
			t.Errorf("reduction of %v: got %v, want %v", c.needs, got, c.reduced)
		}
	}
	// A join over many and a fan-out from it: the running time is linear in the dependencies.
	const many = 20_000
	needs := make([][]int, 2*many+1)
	for i := range many {
		needs[many] = append(needs[many], i)
		needs[many+1+i] = []int{many}
	}
	if got := dag.Reduce(needs); len(got[many]) != many {
		t.Errorf("got %d dependencies of a join over %d", len(got[many]), many)
	}
}
