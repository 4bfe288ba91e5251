package engine

import (
	"maps"
	"slices"
	"sync"
)

// runs holds the attempts that a worker makes at present.
type runs struct {
	mu  sync.Mutex // guards set
	set map[*Run]bool
}

func newRuns() *runs { return &runs{set: map[*Run]bool{}} }

func (rs *runs) add(r *Run) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.set[r] = true
}

func (rs *runs) remove(r *Run) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.set, r)
}

// all returns the attempts, in any order.
func (rs *runs) all() []*Run {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return slices.Collect(maps.Keys(rs.set))
}

// revoke cancels the attempts at nodes of a workflow, or with nil at all of them.
func (rs *runs) revoke(workflow string, nodes []string) {
	for _, r := range rs.all() {
		if r.Info.Workflow == workflow && (nodes == nil || slices.Contains(nodes, r.Info.Node)) {
			r.cancel(errRevoked)
		}
	}
}
