package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Reset is how the fields of an ended workflow change when it is retried.
type Reset struct {
	Revision string            // of the workflow that the other fields were computed from
	Call     string            // id of the call: a repeated call has no further effect
	Delete   []string          // fields
	Set      map[string]string // values by field
	Plans    []string          // planned nodes whose plan has ended
	Failed   []string          // nodes that had failed
	Lanes    []string          // of the workflow
	First    string            // span of its first nodes, if it is one; else empty
	Source   string            // reference of the workflow to copy; empty to retry the workflow itself
	Roots    []Release         // nodes that can run
}

// The responses of [Flows.Retry].
const (
	RetryOK      = "ok"
	RetryChanged = "changed" // the workflow has another revision
	RetryBusy    = "busy"    // a worker has leases of nodes of the workflow
	RetryRunning = "running"
	RetryRevoked = "revoked"
	RetryDamaged = "damaged"
	RetryUnknown = "unknown"
)

// Retry resets nodes of an ended workflow, or of a new copy of the workflow Source in the same shard, and releases nodes that can run.
func (s Flows) Retry(ctx context.Context, f Flow, r *Reset) (string, Todo, error) {
	args := append(f.facts(nil), r.Revision, r.Call, len(r.Delete), len(r.Set), len(r.Plans), len(r.Failed), len(r.Lanes), len(r.Roots), r.First, r.Source)
	add := func(list []string) {
		for _, s := range list {
			args = append(args, s)
		}
	}
	add(r.Delete)
	for _, field := range slices.Sorted(maps.Keys(r.Set)) {
		args = append(args, field, r.Set[field])
	}
	add(r.Plans)
	add(r.Failed)
	add(r.Lanes)
	grow := Grow{Roots: r.Roots}
	res, err := s.call(ctx, "retry", f.shard, grow.roots(args)...)
	if err != nil {
		return "", Todo{}, fmt.Errorf("reset workflow: %w", err)
	}
	if len(res) < 2 {
		return text(res[0]), Todo{}, nil
	}
	return text(res[0]), todo(res[1]), nil
}
