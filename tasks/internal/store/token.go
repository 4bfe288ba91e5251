package store

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"muster/tasks/tasktype"
)

// The results of guards and of requests for tokens.
const (
	TokenOK      = "ok"
	TokenDone    = "done"    // this very call has ended it before, and its reply was lost
	TokenEnded   = "ended"   // the node has, or its workflow is revoked
	TokenStale   = "stale"   // the token is not the node's current token, or its deadline has not passed
	TokenClosed  = "closed"  // the node is not open
	TokenUnknown = "unknown" // the workflow does not exist
	TokenGone    = "gone"    // the lease is not the worker's any more
)

// New gives an open node the token with a hash, and returns the result.
func (s Tokens) New(ctx context.Context, f Flow, node, hash string) (string, error) {
	return s.store(ctx, f, node, hash, "", &NodeLease{})
}

// OfRun gives a node the token with a hash while a worker that has its lease runs an attempt of it, and returns the result.
func (s Tokens) OfRun(ctx context.Context, f Flow, node, hash string, attempt int, l *NodeLease) (string, error) {
	return s.store(ctx, f, node, hash, attempt, l)
}

func (s Tokens) store(ctx context.Context, f Flow, node, hash string, attempt any, l *NodeLease) (string, error) {
	res, err := s.call(ctx, "token", f.shard, f.Ref, node, hash, attempt, l.Worker, l.value())
	if err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	return text(res[0]), nil
}

// mostTasks bounds the tasks that Tasks returns of a shard.
const mostTasks = 1000

// Tasks returns the tasks that have open nodes, by name: of each shard the first 1,000.
func (s Tokens) Tasks(ctx context.Context) ([]tasktype.OpenTask, error) {
	shards, err := s.callEach(ctx, "opened", mostTasks)
	if err != nil {
		return nil, fmt.Errorf("list tasks with open tokens: %w", err)
	}
	open := map[string]int64{}
	for _, list := range shards {
		for i := 0; i+1 < len(list); i += 2 {
			open[text(list[i])] += toInt(list[i+1])
		}
	}
	out := make([]tasktype.OpenTask, 0, len(open))
	for _, name := range slices.Sorted(maps.Keys(open)) {
		out = append(out, tasktype.OpenTask{Task: name, Open: open[name]})
	}
	return out, nil
}

// Open returns up to limit members of the list of the open nodes of a task in a shard, in their order after a member.
func (s Tokens) Open(ctx context.Context, shard int, task, after string, limit int) (members []string, err error) {
	from := "-"
	if after != "" {
		from = "(" + after
	}
	return s.rdb.ZRangeByLex(ctx, s.openKey(shard, task), &redis.ZRangeBy{Min: from, Max: "+", Count: int64(limit)}).Result()
}

// ReadOpen reads the node of a member that [Tokens.Open] has returned: its record and literal input. ok is false if it accepts no result. A
// member leaves the list if its workflow is gone: it was given up as damaged.
func (s Tokens) ReadOpen(ctx context.Context, shard int, task, member string) (e Entry, input []byte, ok bool, err error) {
	e = entry(shard, member)
	fields, err := Flows(s).Fields(ctx, e.Flow, FieldTasks, e.Node, FieldStopped, FieldInput+e.Node)
	if err == nil && fields[FieldTasks] == "" {
		err = s.rdb.ZRem(ctx, s.openKey(shard, task), member).Err()
	}
	e.Record = []byte(fields[e.Node])
	return e, raw(fields[FieldInput+e.Node]), bytes.HasPrefix(e.Record, []byte{StateOpen}) && fields[FieldStopped] != StoppedByRevoke, err
}

// The limits of the signals that are kept for a task of a workflow.
const (
	MaxSignals     = 1000
	maxSignalBytes = 16 << 20 // of their values, beyond the first
)

// The results of [Tokens.Signal].
const (
	SignalKept    = "ok"
	SignalOpen    = "open" // a node of the task is open: the caller delivers the signal
	SignalFull    = "full"
	SignalNone    = "none"  // no node of the task is open, and the signal is not to be kept
	SignalEnded   = "ended" // the workflow has
	SignalUnknown = "unknown"
)

// Signal keeps a signal for a task of a workflow, without keep only if a node of the task is open. value is JSON without line
// breaks.
func (s Tokens) Signal(ctx context.Context, f Flow, task, id string, value []byte, keep bool) (string, error) {
	res, err := s.call(ctx, "signal", f.shard, f.Ref, task, id, value, MaxSignals, maxSignalBytes, keep)
	if err != nil {
		return "", fmt.Errorf("keep a signal: %w", err)
	}
	return text(res[0]), nil
}

// Signalled is a signal and the open node that it is for.
type Signalled struct {
	Node, ID string
	Value    []byte
}

// Signalled returns the next signal of a task that can be delivered; nil if there is none.
func (s Tokens) Signalled(ctx context.Context, f Flow, task string) (*Signalled, error) {
	res, err := s.call(ctx, "signal", f.shard, f.Ref, task)
	if err != nil {
		return nil, fmt.Errorf("read a signal: %w", err)
	}
	if len(res) < 3 {
		return nil, nil
	}
	return &Signalled{text(res[0]), text(res[1]), []byte(text(res[2]))}, nil
}
