package store

import (
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

// OpenNode is a node that waits for an external result.
type OpenNode struct {
	Flow   Flow // with the reference only
	Node   string
	Member string // its place in the order
	Record []byte
	Input  []byte // literal one; nil for none
}

// maxOpenBytes bounds the inputs that one call of OpenNodes returns, beyond the first.
const maxOpenBytes = 1 << 20

// Open returns up to limit open nodes of a task in a shard whose workflow is not revoked, in their order after a member,
// and where the next ones follow: more is false if none do.
func (s Tokens) Open(ctx context.Context, shard int, task, after string, limit int) (nodes []OpenNode, last string, more bool, err error) {
	from := "-"
	if after != "" {
		from = "(" + after
	}
	members, err := s.rdb.ZRangeByLex(ctx, s.openKey(shard, task), &redis.ZRangeBy{Min: from, Max: "+", Count: int64(limit)}).Result()
	if err != nil || len(members) == 0 {
		return nil, after, false, err
	}
	more = len(members) == limit
	fit, err := s.fitting(ctx, shard, task, members)
	if err != nil {
		return nil, after, false, err
	}
	more = more || fit < len(members)
	members = members[:fit]
	pipe := s.rdb.Pipeline()
	recs := make([]*redis.SliceCmd, len(members))
	for i, m := range members {
		e := entry(shard, m)
		recs[i] = pipe.HMGet(ctx, s.Key(e.Flow), e.Node, FieldStopped, FieldInput+e.Node)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, after, false, err
	}
	for i, c := range recs {
		rec, revoked := raw(c.Val()[0]), text(c.Val()[1]) == "1" // a revoked workflow accepts no results
		if len(rec) > 0 && rec[0] == StateOpen && !revoked {
			e := entry(shard, members[i])
			nodes = append(nodes, OpenNode{e.Flow, e.Node, members[i], rec, raw(c.Val()[2])})
		}
	}
	return nodes, members[len(members)-1], more, nil
}

// fitting returns how many of the first members have inputs that are not too large together. It takes those out
// whose workflow is gone: it was given up as damaged.
func (s Tokens) fitting(ctx context.Context, shard int, task string, members []string) (int, error) {
	pipe := s.rdb.Pipeline()
	exist := make([]*redis.IntCmd, len(members))
	sizes := make([]*redis.IntCmd, len(members))
	for i, m := range members {
		e := entry(shard, m)
		exist[i] = pipe.Exists(ctx, s.Key(e.Flow))
		sizes[i] = pipe.HStrLen(ctx, s.Key(e.Flow), FieldInput+e.Node)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, err
	}
	var lost []any
	var total int64
	fit := len(members)
	for i := range members {
		if exist[i].Val() == 0 {
			lost = append(lost, members[i])
		}
		if total += sizes[i].Val(); total > maxOpenBytes && i > 0 {
			fit = i
			break
		}
	}
	if len(lost) == 0 {
		return fit, nil
	}
	return fit, s.rdb.ZRem(ctx, s.openKey(shard, task), lost...).Err()
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
	res, err := s.call(ctx, "signalled", f.shard, f.Ref, task)
	if err != nil {
		return nil, fmt.Errorf("read a signal: %w", err)
	}
	if len(res) < 3 {
		return nil, nil
	}
	return &Signalled{text(res[0]), text(res[1]), []byte(text(res[2]))}, nil
}
