package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Swept is what was due in a shard, and claimed.
type Swept struct {
	Shard int
	Due   []Entry
	Now   time.Time // by Redis
	Next  time.Time // the earliest entry that is left; zero if there is none
	Lines int       // of the agenda
	until string    // the claim
}

// Sweep claims what is due, at most so many entries of each shard.
func (s *Store) Sweep(ctx context.Context, claim time.Duration, most int) ([]Swept, error) {
	n, err := s.Shards(ctx)
	if err != nil {
		return nil, err
	}
	cmds := s.runEach(ctx, sweepCmd, n, agendaKey, claim.Milliseconds(), most)
	out := make([]Swept, n)
	for shard, c := range cmds {
		res, err := c.Slice()
		if err == nil && len(res) < 4 {
			err = fmt.Errorf("script answered %v", res)
		}
		if err != nil {
			return nil, fmt.Errorf("sweep agenda: %w", err)
		}
		sw := Swept{Shard: shard, Now: time.UnixMilli(toInt(res[0])), Lines: int(toInt(res[2])), until: fmt.Sprint(res[3])}
		if n := toInt(res[1]); n > 0 {
			sw.Next = time.UnixMilli(n)
		}
		for _, m := range res[4:] {
			sw.Due = append(sw.Due, entry(shard, fmt.Sprint(m)))
		}
		out[shard] = sw
	}
	return out, nil
}

// runEach runs a script in every shard, on one key, in one round trip.
func (s *Store) runEach(ctx context.Context, script *redis.Script, shards int, key func(int) string, args ...any) []*redis.Cmd {
	cmds := make([]*redis.Cmd, shards)
	pipe := s.rdb.Pipeline()
	for shard := range shards {
		cmds[shard] = script.EvalSha(ctx, pipe, []string{key(shard)}, args...)
	}
	_, _ = pipe.Exec(ctx) // each has its own error
	pipe = s.rdb.Pipeline()
	for shard, c := range cmds {
		if redis.HasErrorPrefix(c.Err(), "NOSCRIPT") {
			cmds[shard] = script.Eval(ctx, pipe, []string{key(shard)}, args...)
		}
	}
	if pipe.Len() > 0 {
		_, _ = pipe.Exec(ctx)
	}
	return cmds
}

// Moment is when to look at an entry again.
type Moment struct {
	Entry Entry
	In    time.Duration // from now; 0 for never
}

// Rest lets the agenda rest for entries that were claimed and that nobody has changed since.
func (s *Store) Rest(ctx context.Context, sw Swept, ms []Moment) error {
	if len(ms) == 0 {
		return nil
	}
	args := make([]any, 0, 1+2*len(ms))
	args = append(args, sw.until)
	for _, m := range ms {
		at := ""
		if m.In > 0 {
			at = strconv.FormatInt(sw.Now.Add(m.In).UnixMilli(), 10)
		}
		args = append(args, m.Entry.Flow.ID+"/"+m.Entry.Node, at)
	}
	if err := restCmd.Run(ctx, s.rdb, []string{agendaKey(sw.Shard)}, args...).Err(); err != nil {
		return fmt.Errorf("let agenda rest: %w", err)
	}
	return nil
}

// Ready is what [Store.DueNow] says of a node: "run" if its time came just now, "wait" if it has not,
// "gone" without a workflow, "W" without a state, or the state of a node that is not timed.
type Ready struct {
	Status string
	Epoch  int
	Err    error
}

// DueNow makes those of the nodes of a shard runnable whose time has come.
func (s *Store) DueNow(ctx context.Context, entries ...Entry) ([]Ready, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	calls := make([]*Call, len(entries))
	for i, en := range entries {
		calls[i] = en.Flow.call(dueCmd, []any{en.Flow.ID, en.Node})
	}
	if err := s.scripts.Do(ctx, calls...); err != nil {
		return nil, fmt.Errorf("release nodes: %w", err)
	}
	out := make([]Ready, len(entries))
	for i, c := range calls {
		res, _ := c.Reply.([]any)
		switch {
		case c.Err != nil:
			out[i].Err = fmt.Errorf("release node %s: %w", entries[i].Node, c.Err)
		case len(res) < 2:
			out[i].Err = fmt.Errorf("release node %s: script answered %v", entries[i].Node, c.Reply)
		default:
			out[i] = Ready{Status: fmt.Sprint(res[0]), Epoch: int(toInt(res[1]))}
		}
	}
	return out, nil
}

// Scope is a workflow, or a plan in it, that has a graph.
type Scope struct {
	Flow Flow
	Name string
}

// Graphs reads graphs; missing ones are nil.
func (s *Store) Graphs(ctx context.Context, scopes []Scope) ([][]byte, error) {
	return s.eachField(ctx, "read graphs", len(scopes), func(i int) (Flow, string) {
		return scopes[i].Flow, GraphField(scopes[i].Name)
	})
}

// TaskRef names a task of asynq.
type TaskRef struct{ Queue, ID string }

// QueueState is what asynq has of a task: no state if it has none.
type QueueState struct{ State, Message string }

// QueueStates reads what asynq has of tasks.
func (s *Store) QueueStates(ctx context.Context, refs []TaskRef) ([]QueueState, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.SliceCmd, len(refs))
	for i, r := range refs {
		cmds[i] = pipe.HMGet(ctx, asynqKey(r.Queue, "t:"+r.ID), "state", "msg")
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read tasks of queues: %w", err)
	}
	out := make([]QueueState, len(refs))
	for i, c := range cmds {
		vs := c.Val()
		out[i].State, _ = vs[0].(string)
		out[i].Message, _ = vs[1].(string)
	}
	return out, nil
}
