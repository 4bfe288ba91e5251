package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// delivery is one hand-over of a node to asynq. Its id is the same whoever makes it.
type delivery struct {
	flow     *flow
	node     string
	epoch    int
	task     string
	queue    string
	priority int
}

func newDelivery(fl *flow, g *graph.Graph, id graph.ID, epoch int) delivery {
	sp := &g.Specs[g.Nodes[id.Index].Spec]
	return delivery{fl, id.String(), epoch, sp.Task, sp.QueueName(), sp.Priority}
}

func (d *delivery) id() string { return d.flow.ID + "." + d.node + "." + strconv.Itoa(d.epoch) }

// parseDelivery reads the id of a delivery.
func parseDelivery(id string) (flow, node string, epoch int, err error) {
	flow, rest, ok := strings.Cut(id, ".")
	cut := strings.LastIndexByte(rest, '.')
	if !ok || cut < 0 {
		return "", "", 0, fmt.Errorf("task id %q is not of a workflow", id)
	}
	if epoch, err = strconv.Atoi(rest[cut+1:]); err != nil {
		return "", "", 0, fmt.Errorf("task id %q is not of a workflow", id)
	}
	return flow, rest[:cut], epoch, nil
}

// header marks our tasks among others on the same queues; its value is the version of the ids.
const header, headerVersion = "muster", "1"

// asynq must never time a task out or give it up: the engine does both.
const (
	neverTimeout = 10 * 365 * 24 * time.Hour
	manyRetries  = 1 << 30
)

// How long what was handed over is left alone before someone looks whether asynq still has it.
const (
	holdFirst = 15 * time.Second
	holdThen  = time.Minute
)

// deliver hands nodes to asynq and lets the agenda rest for them.
func (e *Engine) deliver(ctx context.Context, fl *flow, ds []delivery) error {
	if len(ds) == 0 {
		return nil
	}
	if _, err := e.queue.send(ctx, ds); err != nil {
		return err
	}
	nodes := make([]store.Handed, len(ds))
	for i := range ds {
		nodes[i] = store.Handed{Node: ds[i].node, Epoch: ds[i].epoch}
	}
	return e.store.Hold(ctx, fl.Flow, nodes, time.Now().Add(holdFirst))
}

// enqueuer sends many asynq tasks in few round trips. asynq itself makes the messages: its client
// gets a connection that catches the script call instead of sending it.
type enqueuer struct {
	rdb    redis.UniversalClient
	client *asynq.Client
	catch  *catcher
}

func newEnqueuer(rdb redis.UniversalClient) *enqueuer {
	c := &catcher{UniversalClient: rdb, sources: map[string]string{}}
	return &enqueuer{rdb: rdb, client: asynq.NewClientFromRedisClient(c), catch: c}
}

// call is a script call that asynq wanted to make.
type call struct {
	source string
	keys   []string
	args   []any
}

type callKey struct{}

// catcher keeps the script calls of contexts that ask for it.
type catcher struct {
	redis.UniversalClient
	mu      sync.Mutex // guards sources
	sources map[string]string
}

// noScript makes redis.Script send the source of a script.
type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT not seen before" }
func (noScript) RedisError()   {}

// EvalSha implements redis.Scripter.
func (c *catcher) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	got, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	c.mu.Lock()
	source, known := c.sources[sha]
	c.mu.Unlock()
	cmd := redis.NewCmd(ctx)
	if !known {
		ctxSha, _ := ctx.Value(shaKey{}).(*string)
		if ctxSha != nil {
			*ctxSha = sha
		}
		cmd.SetErr(noScript{})
		return cmd
	}
	*got = call{source, keys, args}
	cmd.SetVal(int64(1))
	return cmd
}

type shaKey struct{}

// Eval implements redis.Scripter.
func (c *catcher) Eval(ctx context.Context, source string, keys []string, args ...any) *redis.Cmd {
	got, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return c.UniversalClient.Eval(ctx, source, keys, args...)
	}
	if sha, ok := ctx.Value(shaKey{}).(*string); ok && *sha != "" {
		c.mu.Lock()
		c.sources[*sha] = source
		c.mu.Unlock()
	}
	*got = call{source, keys, args}
	cmd := redis.NewCmd(ctx)
	cmd.SetVal(int64(1))
	return cmd
}

// first returns the script that puts a task at the head of its queue.
func first(source string) string {
	return strings.Replace(source, `redis.call("LPUSH", KEYS[2]`, `redis.call("RPUSH", KEYS[2]`, 1)
}

// enqueueAtOnce bounds a pipeline.
const enqueueAtOnce = 500

// send enqueues ds and wakes workers. It returns those that asynq had already.
func (q *enqueuer) send(ctx context.Context, ds []delivery) (had []delivery, err error) {
	scripts := map[string]*redis.Script{}
	for part := range slices.Chunk(ds, enqueueAtOnce) {
		calls := make([]call, len(part))
		queues := map[string]bool{}
		for i := range part {
			d := &part[i]
			queues[d.queue] = true
			sha := ""
			cctx := context.WithValue(context.WithValue(ctx, callKey{}, &calls[i]), shaKey{}, &sha)
			t := asynq.NewTaskWithHeaders(d.task, nil, map[string]string{header: headerVersion})
			_, err := q.client.EnqueueContext(cctx, t, asynq.TaskID(d.id()), asynq.Queue(d.queue),
				asynq.MaxRetry(manyRetries), asynq.Timeout(neverTimeout))
			if err != nil {
				return had, fmt.Errorf("enqueue %s: %w", d.id(), err)
			}
			if calls[i].source == "" {
				return had, fmt.Errorf("enqueue %s: asynq made no script call; is this the version this program is built for?", d.id())
			}
			if d.priority > 0 {
				calls[i].source = first(calls[i].source)
			}
			if scripts[calls[i].source] == nil {
				scripts[calls[i].source] = redis.NewScript(calls[i].source)
			}
		}
		replies, err := q.exec(ctx, scripts, calls, queues)
		if err != nil {
			return had, err
		}
		for i, r := range replies {
			if r == 0 {
				had = append(had, part[i])
			}
		}
	}
	return had, nil
}

func (q *enqueuer) exec(ctx context.Context, scripts map[string]*redis.Script, calls []call, queues map[string]bool) ([]int64, error) {
	names := make([]string, 0, len(queues))
	for n := range queues {
		names = append(names, n)
	}
	for try := 0; ; try++ {
		pipe := q.rdb.Pipeline()
		cmds := make([]*redis.Cmd, len(calls))
		for i, c := range calls {
			cmds[i] = scripts[c.source].EvalSha(ctx, pipe, c.keys, c.args...)
		}
		// The parts of a pipeline that go to different nodes of a cluster have no order, and who is woken
		// before there is something finds nothing.
		_, cluster := q.rdb.(*redis.ClusterClient)
		if !cluster {
			pipe.Publish(ctx, store.BusChannel, "q "+strings.Join(names, ","))
		}
		_, err := pipe.Exec(ctx)
		if err == nil && cluster {
			// What was enqueued is there, and found at the next poll at the latest.
			_ = q.rdb.Publish(ctx, store.BusChannel, "q "+strings.Join(names, ",")).Err()
		}
		if err == nil {
			replies := make([]int64, len(cmds))
			for i, c := range cmds {
				if replies[i], err = c.Int64(); err != nil {
					return nil, fmt.Errorf("enqueue: %w", err)
				}
			}
			return replies, nil
		}
		missing := slices.ContainsFunc(cmds, func(c *redis.Cmd) bool { return redis.HasErrorPrefix(c.Err(), "NOSCRIPT") })
		if !missing || try > 0 {
			return nil, fmt.Errorf("enqueue: %w", err)
		}
		for _, s := range scripts {
			if err := s.Load(ctx, q.rdb).Err(); err != nil {
				return nil, fmt.Errorf("load script: %w", err)
			}
		}
	}
}

// whereabouts is what became of a delivery that asynq has.
type whereabouts int

const (
	waiting whereabouts = iota // in its queue, or unknown to asynq
	taken                      // by a worker, or by one that died, or on the way to one
	putAway                    // archived, by an operator or by asynq
)

func (e *Engine) whereabouts(d delivery) (whereabouts, error) {
	info, err := asynq.NewInspectorFromRedisClient(e.store.Redis()).GetTaskInfo(d.queue, d.id())
	if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
		return waiting, nil
	}
	if err != nil {
		return waiting, fmt.Errorf("look up %s: %w", d.id(), err)
	}
	switch info.State {
	case asynq.TaskStateArchived, asynq.TaskStateCompleted:
		return putAway, nil
	case asynq.TaskStateActive, asynq.TaskStateRetry:
		return taken, nil
	}
	return waiting, nil
}
