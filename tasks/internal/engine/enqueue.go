package engine

import (
	"bytes"
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
	e.hold(fl, ds, holdFirst)
	return nil
}

func (e *Engine) hold(fl *flow, ds []delivery, d time.Duration) {
	nodes := make([]store.Handed, len(ds))
	for i := range ds {
		nodes[i] = store.Handed{Node: ds[i].node, Epoch: ds[i].epoch}
	}
	e.store.Hold(fl.Flow, nodes, d)
}

// enqueuer sends many asynq tasks in few round trips. asynq itself makes the messages: its client
// gets a connection that catches the script call instead of sending it.
type enqueuer struct {
	store  *store.Store
	client *asynq.Client

	mu    sync.Mutex // guards molds
	molds map[moldKey]*mold
}

func newEnqueuer(s *store.Store) *enqueuer {
	c := &catcher{UniversalClient: s.Redis()}
	return &enqueuer{store: s, client: asynq.NewClientFromRedisClient(c), molds: map[moldKey]*mold{}}
}

// moldKey says which messages of asynq differ in nothing but the id.
type moldKey struct {
	task, queue string
	idLen       int
}

// mold is a message that asynq made for an id of ours, cut where the id is.
type mold struct {
	pending, prefix string // keys: of the queue, and of a task without its id
	head, tail      []byte
}

// maxMolds bounds the molds kept in memory.
const maxMolds = 10_000

// mold returns the mold for a delivery.
func (q *enqueuer) mold(ctx context.Context, d *delivery, id string) (*mold, error) {
	key := moldKey{d.task, d.queue, len(id)}
	q.mu.Lock()
	m := q.molds[key]
	q.mu.Unlock()
	if m != nil {
		return m, nil
	}
	// No id of ours has these characters.
	filler := strings.Repeat("~", len(id))
	c, err := q.caught(ctx, d, filler)
	if err != nil {
		return nil, err
	}
	message, ok := c.args[0].([]byte)
	prefix, isKey := strings.CutSuffix(c.keys[0], filler)
	if !ok || !isKey || bytes.Count(message, []byte(filler)) != 1 {
		return nil, fmt.Errorf("enqueue %s: asynq's message is not the one this program knows", id)
	}
	head, tail, _ := bytes.Cut(message, []byte(filler))
	m = &mold{pending: c.keys[1], prefix: prefix, head: head, tail: tail}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.molds) >= maxMolds {
		clear(q.molds)
	}
	q.molds[key] = m
	return m, nil
}

// push returns the call that enqueues a delivery.
func (q *enqueuer) push(ctx context.Context, d *delivery) (*store.Call, error) {
	id := d.id()
	m, err := q.mold(ctx, d, id)
	if err != nil {
		return nil, err
	}
	message := make([]byte, 0, len(m.head)+len(id)+len(m.tail))
	message = append(append(append(message, m.head...), id...), m.tail...)
	return q.store.Push(store.Queued{Queue: d.queue, Pending: m.pending, Key: m.prefix + id, ID: id, Message: message, Head: d.priority > 0}), nil
}

// caught is a script call that asynq wanted to make.
type caught struct {
	script *redis.Script
	keys   []string
	args   []any
}

// caught has asynq make the call for a delivery under an id.
func (q *enqueuer) caught(ctx context.Context, d *delivery, id string) (*caught, error) {
	c := &caught{}
	t := asynq.NewTaskWithHeaders(d.task, nil, map[string]string{header: headerVersion})
	_, err := q.client.EnqueueContext(context.WithValue(ctx, caughtKey{}, c), t, asynq.TaskID(id), asynq.Queue(d.queue),
		asynq.MaxRetry(manyRetries), asynq.Timeout(neverTimeout))
	if err != nil {
		return nil, fmt.Errorf("enqueue %s: %w", d.id(), err)
	}
	if c.script == nil || len(c.keys) != 2 || len(c.args) != 3 {
		return nil, fmt.Errorf("enqueue %s: asynq made no call that this program knows; is it the version it is built for?", d.id())
	}
	return c, nil
}

type caughtKey struct{}

// catcher keeps the script calls of contexts that ask for it.
type catcher struct{ redis.UniversalClient }

// noScript makes redis.Script send the source of a script.
type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT not seen before" }
func (noScript) RedisError()   {}

// EvalSha implements redis.Scripter.
func (c *catcher) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if ctx.Value(caughtKey{}) == nil {
		return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(noScript{})
	return cmd
}

// Eval implements redis.Scripter.
func (c *catcher) Eval(ctx context.Context, source string, keys []string, args ...any) *redis.Cmd {
	got, ok := ctx.Value(caughtKey{}).(*caught)
	if !ok {
		return c.UniversalClient.Eval(ctx, source, keys, args...)
	}
	*got = caught{redis.NewScript(source), keys, args}
	cmd := redis.NewCmd(ctx)
	cmd.SetVal(int64(1))
	return cmd
}

// enqueueAtOnce bounds a round trip.
const enqueueAtOnce = 250

// send enqueues ds and wakes workers. It returns those that asynq had already.
func (q *enqueuer) send(ctx context.Context, ds []delivery) (had []delivery, err error) {
	for part := range slices.Chunk(ds, enqueueAtOnce) {
		calls := make([]*store.Call, len(part))
		for i := range part {
			if calls[i], err = q.push(ctx, &part[i]); err != nil {
				return had, err
			}
		}
		if err := q.store.Scripts().Do(ctx, calls...); err != nil {
			return had, fmt.Errorf("enqueue: %w", err)
		}
		for i, c := range calls {
			fresh, err := store.Pushed(c)
			if err != nil {
				return had, err
			}
			if !fresh {
				had = append(had, part[i])
			}
		}
	}
	return had, nil
}

// whereabouts is what became of a delivery that asynq has.
type whereabouts int

const (
	waiting whereabouts = iota // in its queue, or unknown to asynq
	taken                      // by a worker, or by one that died, or on the way to one
	putAway                    // archived, by an operator or by asynq
	gone                       // nowhere: what was left of it has been deleted
)

// whereabouts also returns why asynq put a delivery away, if it did so itself.
func (e *Engine) whereabouts(ctx context.Context, d delivery) (where whereabouts, why string, err error) {
	info, err := asynq.NewInspectorFromRedisClient(e.store.Redis()).GetTaskInfo(d.queue, d.id())
	if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
		return waiting, "", nil
	}
	if err != nil || info.ID != d.id() {
		// A hash without a message can be left of a task that someone deleted while it was taken; asynq
		// takes it for one that exists.
		raw, merr := e.store.Message(ctx, d.queue, d.id())
		if merr != nil || raw != nil && readable(&store.Popped{ID: d.id(), Message: string(raw)}) == nil {
			return waiting, "", fmt.Errorf("look up %s: %w", d.id(), errors.Join(err, merr))
		}
		return gone, "", e.store.Bury(ctx, d.queue, d.id())
	}
	switch info.State {
	case asynq.TaskStateArchived, asynq.TaskStateCompleted:
		return putAway, info.LastErr, nil
	case asynq.TaskStateActive, asynq.TaskStateRetry:
		return taken, "", nil
	}
	return waiting, "", nil
}
