package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"muster/tasks/tasktype"
)

// The limits of the output of a node, unless its task has others.
const (
	OutputChunks = 1000
	OutputBytes  = 1 << 20
)

// outputKey is the hash of the output of a workflow, with its expiry:
//
//	nodes         the nodes with output, separated by spaces
//	<node>        "<first> <last> <bytes>": numbers of the first and the last kept chunk of a node, and the bytes of all
//	<node>/<n>    a chunk
func (k Keys) outputKey(f Flow) string { return k.Key(f) + ":out" }

// storedChunk is the stored form of a chunk.
type storedChunk struct {
	Attempt int             `json:"a"`
	Run     int64           `json:"r"` // when its run began, unix µs
	Time    int64           `json:"t"` // unix µs
	Value   json.RawMessage `json:"v"`
}

// EncodeChunk returns the stored form of a chunk of a run that began at a time.
func EncodeChunk(attempt int, began, at time.Time, value []byte) ([]byte, error) {
	return json.Marshal(storedChunk{attempt, began.UnixMicro(), at.UnixMicro(), value})
}

// AddOutput adds chunks to the output of the node of a lease, of which so many chunks and bytes are kept. So many were dropped before them.
// It reports false if the worker has lost the lease.
func (s Flows) AddOutput(ctx context.Context, l *NodeLease, most, mostBytes, dropped int, chunks [][]byte) (bool, error) {
	args := []any{l.Flow.Ref, l.Node, l.Worker, l.value(), most, mostBytes, dropped}
	for _, c := range chunks {
		args = append(args, c)
	}
	res, err := s.call(ctx, "emit", l.Shard, args...)
	if err != nil {
		return false, fmt.Errorf("store output: %w", err)
	}
	return toInt(res[0]) == 1, nil
}

// OutputReader reads the output of a workflow. Each read continues after the one before.
type OutputReader struct {
	Flow  Flow
	Node  string // the only one; empty for all
	after map[string]place
}

// place is the place of a reader in the output of a node.
type place struct {
	n   int   // the last chunk
	run int64 // of this chunk
}

// Output returns the next chunks.
func (s Flows) Output(ctx context.Context, r *OutputReader) (out []tasktype.Chunk, err error) {
	if r.after == nil {
		r.after = map[string]place{}
	}
	nodes := []string{r.Node}
	if r.Node == "" {
		raws, err := s.outputFields(ctx, r.Flow, []string{"nodes"})
		if err != nil || raws[0] == nil {
			return nil, err
		}
		nodes = strings.Fields(string(raws[0]))
	}
	heads, err := s.outputFields(ctx, r.Flow, nodes)
	if err != nil {
		return nil, err
	}
	for i, node := range nodes {
		var first, last, bytes int
		if _, err := fmt.Sscan(string(heads[i]), &first, &last, &bytes); err != nil {
			continue
		}
		at := r.after[node]
		var fields []string
		for n := max(first, at.n+1); n <= last; n++ {
			fields = append(fields, node+"/"+strconv.Itoa(n))
		}
		raws, err := s.outputFields(ctx, r.Flow, fields)
		if err != nil {
			return nil, err
		}
		for k, raw := range raws {
			var c storedChunk
			if raw == nil || json.Unmarshal(raw, &c) != nil {
				continue // it was dropped meanwhile
			}
			n := max(first, at.n+1) + k
			out = append(out, tasktype.Chunk{Node: node, Attempt: c.Attempt, Begin: c.Run != at.run, Lost: n - r.after[node].n - 1, Time: time.UnixMicro(c.Time), Value: c.Value})
			at.run = c.Run
			r.after[node] = place{n, c.Run}
		}
	}
	return out, nil
}

// outputFields reads fields of the output of a workflow; missing ones are nil.
func (s Flows) outputFields(ctx context.Context, f Flow, fields []string) ([][]byte, error) {
	if len(fields) == 0 {
		return nil, nil
	}
	vs, err := s.rdb.HMGet(ctx, s.outputKey(f), fields...).Result()
	if err != nil {
		return nil, fmt.Errorf("read output of workflow %s: %w", f.ID(), err)
	}
	out := make([][]byte, len(vs))
	for i, v := range vs {
		out[i] = raw(v)
	}
	return out, nil
}
