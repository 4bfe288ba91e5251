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
//	<node>        "<first> <last> <bytes> <call>": numbers of the first and the last kept chunk of a node, the bytes of all, and the name
//	              of the last call
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
// A connection may repeat a call, which has a name. It reports false if the worker has lost the lease.
func (s Flows) AddOutput(ctx context.Context, l *NodeLease, most, mostBytes, dropped int, call string, chunks [][]byte) (bool, error) {
	args := []any{l.Flow.Ref, l.Node, l.Worker, l.value(), most, mostBytes, dropped, call}
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
		list, err := s.fieldsOf(ctx, s.outputKey(r.Flow), "nodes")
		if err != nil {
			return nil, err
		}
		nodes = strings.Fields(list["nodes"])
	}
	heads, err := s.fieldsOf(ctx, s.outputKey(r.Flow), nodes...)
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		var first, last, bytes int
		if _, err := fmt.Sscan(heads[node], &first, &last, &bytes); err != nil {
			continue
		}
		at := r.after[node]
		var fields []string
		for n := max(first, at.n+1); n <= last; n++ {
			fields = append(fields, node+"/"+strconv.Itoa(n))
		}
		raws, err := s.fieldsOf(ctx, s.outputKey(r.Flow), fields...)
		if err != nil {
			return nil, err
		}
		for k, field := range fields {
			var c storedChunk
			if json.Unmarshal([]byte(raws[field]), &c) != nil {
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
func ParseStep(raw string) (st tasktype.Step, ok bool) {
	head, value, ok := strings.Cut(raw, "\n")
	p := strings.SplitN(head, " ", 3)
	if !ok || len(p) < 3 {
		return st, false
	}
	return tasktype.Step{Name: p[2], Started: time.UnixMilli(toInt(p[0])).UTC(), Took: time.Duration(toInt(p[1])) * time.Millisecond, Value: []byte(value)}, true
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
		raws, err := s.Fields(ctx, f, fields...)
		if err != nil {
			return nil, err
		}
		for i, field := range fields {
			if st, ok := ParseStep(raws[field]); ok {
				steps[from+i] = st
			}
		}
	}
	return steps, nil
}

// How a progress key changes.
const (
	KeyMax  = "max"  // a number that never goes down
	KeyOnce = "once" // the first value is kept
	KeyWord = "word" // a status that only goes forward
	KeySet  = "set"
)

// progressTTL is how many seconds a progress key lives after its last update.
const progressTTL = 3600

// Set writes a public progress key.
func (s ProgressKeys) Set(ctx context.Context, prefix, id, name, how, value string) error {
	return s.scripts["project"].Run(ctx, s.rdb, []string{progressKey(prefix, id, name)}, how, value, progressTTL).Err()
}

// Delete deletes progress keys.
func (s ProgressKeys) Delete(ctx context.Context, prefix, id string, names ...string) error {
	pipe := s.rdb.Pipeline()
	for _, n := range names {
		pipe.Del(ctx, progressKey(prefix, id, n))
	}
	_, err := pipe.Exec(ctx)
	return err
}

// Refresh pushes the expiry of progress keys that exist.
func (s ProgressKeys) Refresh(ctx context.Context, prefix, id string, names []string) error {
	pipe := s.rdb.Pipeline()
	for _, n := range names {
		pipe.Expire(ctx, progressKey(prefix, id, n), progressTTL*time.Second)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// MaxLog is the maximum number of stored log lines of a workflow.
const MaxLog = 200

// logKey is the key of the log lines of a workflow.
func (k Keys) logKey(f Flow) string { return k.Key(f) + ":log" }

// AddLog stores log lines of the tasks of a workflow, unless it has expired.
func (s Flows) AddLog(ctx context.Context, f Flow, lines []tasktype.LogLine) error {
	args := []any{f.Ref, MaxLog}
	for _, l := range lines {
		raw, err := json.Marshal(l)
		if err != nil {
			return fmt.Errorf("encode log line: %w", err)
		}
		args = append(args, raw)
	}
	if _, err := s.call(ctx, "log", f.shard, args...); err != nil {
		return fmt.Errorf("store log lines: %w", err)
	}
	return nil
}

// Log returns the stored log lines of a workflow.
func (s Flows) Log(ctx context.Context, f Flow) ([]tasktype.LogLine, error) {
	raws, err := s.rdb.LRange(ctx, s.logKey(f), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read log lines: %w", err)
	}
	lines := make([]tasktype.LogLine, len(raws))
	for i, raw := range raws {
		if err := json.Unmarshal([]byte(raw), &lines[i]); err != nil {
			return nil, fmt.Errorf("log line of workflow %s: %w", f.ID(), err)
		}
	}
	return lines, nil
}
