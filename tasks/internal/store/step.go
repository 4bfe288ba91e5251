package store

import (
	"context"
	"strconv"
	"strings"
	"time"

	"muster/tasks/tasktype"
)

// Limits of the steps of a node.
const (
	MaxSteps     = 1000
	MaxStepBytes = 16 << 20 // of all values
)

// StepField returns the field of step n of a node, from 1, or for 0 that of its saved value.
func StepField(node string, n int) string { return FieldStored + node + "/" + strconv.Itoa(n) }

// HoldsLease reports whether a worker has a lease, and returns the number of the last step of the node; -1 if no step was stored, nor a value saved.
func (s Flows) HoldsLease(ctx context.Context, l *NodeLease) (ok bool, last int, err error) {
	return s.step(ctx, l)
}

// StoreStep stores step n of the node of a lease, of which last is the last number, or for 0 its saved value. It reports false if the worker has lost the
// lease.
func (s Flows) StoreStep(ctx context.Context, l *NodeLease, n, last int, st *tasktype.Step) (bool, error) {
	text := strconv.FormatInt(st.Started.UnixMilli(), 10) + " " + strconv.FormatInt(st.Took.Milliseconds(), 10) + " " + st.Name + "\n" + string(st.Value)
	ok, _, err := s.step(ctx, l, n, text, last)
	return ok, err
}

func (s Flows) step(ctx context.Context, l *NodeLease, store ...any) (ok bool, last int, err error) {
	res, err := s.call(ctx, "step", l.Shard, append([]any{l.Flow.Ref, l.Node, l.Worker, l.value()}, store...)...)
	if err != nil || len(res) < 2 || res[1] == nil {
		return err == nil && toInt(res[0]) == 1, -1, err
	}
	return true, int(toInt(res[1])), nil
}

// ParseStep reads a field of [StepField].
func ParseStep(raw []byte) (st tasktype.Step, ok bool) {
	head, value, ok := strings.Cut(string(raw), "\n")
	p := strings.SplitN(head, " ", 3)
	if !ok || len(p) < 3 {
		return st, false
	}
	return tasktype.Step{Name: p[2], Started: time.UnixMilli(toInt(p[0])), Took: time.Duration(toInt(p[1])) * time.Millisecond, Value: []byte(value)}, true
}

// Steps returns the stored steps of a node up to number last, by number, with the saved value as number 0.
func (s Flows) Steps(ctx context.Context, f Flow, node string, last int) (map[int]tasktype.Step, error) {
	steps := map[int]tasktype.Step{}
	const atOnce = 100 // values can be large
	for from := 0; from <= last; from += atOnce {
		var fields []string
		for n := from; n <= min(last, from+atOnce-1); n++ {
			fields = append(fields, StepField(node, n))
		}
		raws, err := s.Fields(ctx, f, fields)
		if err != nil {
			return nil, err
		}
		for i, raw := range raws {
			if st, ok := ParseStep(raw); ok {
				steps[from+i] = st
			}
		}
	}
	return steps, nil
}
