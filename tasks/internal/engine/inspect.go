package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// Writable returns why Redis takes no writes, or nil.
func (e *Engine) Writable(ctx context.Context) error { return e.store.Writable(ctx) }

// Workers returns the live workers. While Redis takes no writes, workers cannot beat; if no worker is listed then, it
// returns an error.
func (e *Engine) Workers(ctx context.Context) ([]tasktype.Worker, error) {
	names, _, err := e.store.Workers.Beat(ctx, "", nil, deadAfter, deadConfirm)
	if err == nil && len(names) == 0 {
		err = e.store.Writable(ctx)
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	raws, err := e.store.Workers.Infos(ctx, names)
	if err != nil {
		return nil, err
	}
	var out []tasktype.Worker
	for i, raw := range raws {
		if raw == nil {
			continue
		}
		var w tasktype.Worker
		if err := json.Unmarshal(raw, &w); err != nil {
			return nil, fmt.Errorf("info of worker %s: %w", names[i], err)
		}
		out = append(out, w)
	}
	return out, nil
}

// Ping asks the workers for an answer, and returns the live workers and the others that answered. It returns once all
// live workers have answered, or after wait. If no worker is listed as live it always waits that long: when Redis takes
// no writes, workers are not listed but can answer.
func (e *Engine) Ping(ctx context.Context, wait time.Duration) ([]tasktype.Pong, error) {
	live, err := e.Workers(ctx)
	if err != nil && !store.Refused(err) {
		return nil, err
	}
	out := make([]tasktype.Pong, len(live))
	for i, w := range live {
		out[i].Worker = w.Name
	}
	token := newID()
	sub := e.store.Redis().Subscribe(ctx, e.store.Workers.PongChannel(token))
	defer func() { _ = sub.Close() }()
	if _, err := sub.Receive(ctx); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	begun := time.Now()
	if err := e.store.Tell(ctx, "p "+token); err != nil {
		return nil, fmt.Errorf("tell workers: %w", err)
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	for left := len(live); left > 0 || len(live) == 0; {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-over.C:
			return out, nil
		case m, ok := <-sub.Channel():
			if !ok {
				return out, nil
			}
			i := slices.IndexFunc(out, func(p tasktype.Pong) bool { return p.Worker == m.Payload })
			switch {
			case i < 0: // it is not listed, or joined after we looked
				out = append(out, tasktype.Pong{Worker: m.Payload, Answered: true, After: time.Since(begun)})
			case !out[i].Answered:
				out[i].Answered, out[i].After = true, time.Since(begun)
				left--
			}
		}
	}
	return out, nil
}

// nodeSpec returns how a node runs.
func (e *Engine) nodeSpec(ctx context.Context, f store.Flow, node string) (*graph.Spec, error) {
	id, err := graph.ParseID(node)
	if err != nil {
		return nil, err
	}
	g, err := e.graphOf(ctx, f, id.Scope)
	if err != nil {
		return nil, err
	}
	if id.Index >= len(g.Nodes) {
		return nil, ErrUnknown
	}
	return &g.Specs[g.Nodes[id.Index].Spec], nil
}

// Active returns the nodes in the batches of workers: each one runs, or waits in its batch for one that does. Started
// is when the batch was taken.
func (e *Engine) Active(ctx context.Context) ([]tasktype.ActiveNode, error) {
	batches, err := e.store.Batches.All(ctx)
	if err != nil {
		return nil, err
	}
	var out []tasktype.ActiveNode
	for _, b := range batches {
		for _, el := range b.Nodes {
			for _, node := range el.Nodes {
				sp, err := e.nodeSpec(ctx, el.Flow, node)
				if errors.Is(err, ErrUnknown) || errors.Is(err, errUnreadable) {
					continue
				}
				if err != nil {
					return nil, err
				}
				out = append(out, tasktype.ActiveNode{Workflow: el.Flow.ID, Node: node, Task: sp.Task, Queue: sp.QueueName(),
					Worker: b.Worker, Started: b.Taken})
			}
		}
	}
	slices.SortFunc(out, func(a, b tasktype.ActiveNode) int {
		return strings.Compare(a.Worker+"/"+a.Workflow+"/"+a.Node, b.Worker+"/"+b.Workflow+"/"+b.Node)
	})
	return out, nil
}

// Due returns nodes that wait for their time.
func (e *Engine) Due(ctx context.Context, limit int) ([]tasktype.DueNode, error) {
	entries, err := e.store.Agenda.First(ctx, 10*limit)
	if err != nil {
		return nil, err
	}
	var out []tasktype.DueNode
	for _, en := range entries {
		rec := store.ParseRecord(en.Record, 0)
		if rec.State != 'D' && rec.State != 'T' {
			continue
		}
		sp, err := e.nodeSpec(ctx, en.Flow, en.Node)
		if errors.Is(err, ErrUnknown) || errors.Is(err, errUnreadable) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, tasktype.DueNode{Workflow: en.Flow.ID, Node: en.Node, Task: sp.Task, Queue: sp.QueueName(),
			Status: status(rec), Due: time.UnixMilli(rec.At)})
	}
	slices.SortFunc(out, func(a, b tasktype.DueNode) int { return a.Due.Compare(b.Due) })
	return out[:min(limit, len(out))], nil
}

// Outbox returns how many entries the agenda has, and how late the workers are with it.
func (e *Engine) Outbox(ctx context.Context) (tasktype.Outbox, error) {
	entries, overdue, err := e.store.Agenda.Overdue(ctx)
	return tasktype.Outbox{Entries: entries, Overdue: overdue}, err
}

// Reserved returns up to limit nodes of each queue that are ready.
func (e *Engine) Reserved(ctx context.Context, limit int) ([]tasktype.ReservedNode, error) {
	queues, err := e.queues(ctx)
	if err != nil {
		return nil, err
	}
	var out []tasktype.ReservedNode
	for _, q := range queues {
		els, err := e.store.Queues.Ready(ctx, q, limit)
		if err != nil {
			return nil, fmt.Errorf("queue %s: %w", q, err)
		}
		n := 0
		for _, el := range els {
			for _, node := range el.Nodes {
				if n++; n > limit {
					break
				}
				sp, err := e.nodeSpec(ctx, el.Flow, node)
				if errors.Is(err, ErrUnknown) || errors.Is(err, errUnreadable) {
					continue
				}
				if err != nil {
					return nil, err
				}
				out = append(out, tasktype.ReservedNode{Workflow: el.Flow.ID, Node: node, Task: sp.Task, Queue: q})
			}
		}
	}
	return out, nil
}

// queues returns the queues that work was sent to or that a live worker serves, sorted.
func (e *Engine) queues(ctx context.Context) ([]string, error) {
	names, err := asynq.NewInspectorFromRedisClient(e.store.Redis()).Queues()
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

// Queues returns the queues that work was sent to.
func (e *Engine) Queues(ctx context.Context) ([]tasktype.Queue, error) {
	names, err := e.queues(ctx)
	if err != nil {
		return nil, err
	}
	depths, err := e.store.Queues.Depths(ctx, names)
	if err != nil {
		return nil, err
	}
	batches, err := e.store.Batches.All(ctx)
	if err != nil {
		return nil, err
	}
	active := map[string]int64{}
	for _, b := range batches {
		for _, el := range b.Nodes {
			active[b.Queue] += int64(len(el.Nodes))
		}
	}
	in := asynq.NewInspectorFromRedisClient(e.store.Redis())
	var out []tasktype.Queue
	for _, n := range names {
		q, err := in.GetQueueInfo(n)
		if err != nil {
			return nil, fmt.Errorf("queue %s: %w", n, err)
		}
		wakes, err := e.wakeTasks(in, n, q)
		if err != nil {
			return nil, err
		}
		info := tasktype.Queue{Name: n, Pending: depths[n].Ready + int64(q.Pending-wakes.pending), Active: active[n] + int64(q.Active-wakes.active),
			Archived: int64(q.Archived), Paused: q.Paused}
		if q.Pending > wakes.pending {
			info.Latency = q.Latency
		}
		if since := depths[n].Since; !since.IsZero() {
			info.Latency = max(info.Latency, e.clock.Now().Sub(since))
		}
		out = append(out, info)
	}
	return out, nil
}

type wakeCount struct{ pending, active int }

// wakeTasks counts the wake-tasks that asynq has in a queue.
func (e *Engine) wakeTasks(in *asynq.Inspector, queue string, q *asynq.QueueInfo) (c wakeCount, err error) {
	const most = 1000
	count := func(list []*asynq.TaskInfo, err error) (int, error) {
		n := 0
		for _, t := range list {
			if t.Type == wakeType {
				n++
			}
		}
		return n, err
	}
	if q.Pending > 0 {
		if c.pending, err = count(in.ListPendingTasks(queue, asynq.PageSize(most))); err != nil {
			return c, fmt.Errorf("queue %s: %w", queue, err)
		}
	}
	if q.Active > 0 {
		if c.active, err = count(in.ListActiveTasks(queue, asynq.PageSize(most))); err != nil {
			return c, fmt.Errorf("queue %s: %w", queue, err)
		}
	}
	return c, nil
}
