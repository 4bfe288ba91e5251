package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// The sizes of a page of open nodes.
const (
	openPage     = 100
	openPageMost = 1000
	openBytes    = 1 << 20 // of inputs, beyond the first
)

// Open returns a page of the nodes of a task that wait for an answer, and where the next page begins; empty for
// no more.
func (a *Answers) Open(ctx context.Context, task, cursor string, limit int) (page []tasktype.OpenToken, next string, err error) {
	if limit <= 0 {
		limit = openPage
	}
	limit = min(limit, openPageMost)
	shards, err := a.store.Shards(ctx)
	if err != nil {
		return nil, "", err
	}
	shard, after := 0, ""
	if cursor != "" {
		text, rest, ok := strings.Cut(cursor, " ")
		if shard, err = strconv.Atoi(text); err != nil || !ok || shard < 0 {
			return nil, "", fmt.Errorf("cursor %.100q is none of OpenTokens", cursor)
		}
		after = rest
	}
	bytes := 0
	for shard < shards {
		nodes, last, more, err := a.store.Tokens.Open(ctx, shard, store.ClipTask(task), after, limit-len(page))
		if err != nil {
			return nil, "", fmt.Errorf("list open tokens: %w", err)
		}
		for i := range nodes {
			t, err := a.openToken(ctx, &nodes[i])
			if errors.Is(err, ErrUnknown) || errors.Is(err, errUnreadable) || errors.Is(err, errNoValue) || err == nil && t.Task != task {
				continue
			}
			if err != nil {
				return nil, "", err
			}
			page = append(page, t)
			if bytes += len(t.Input); bytes > openBytes {
				return page, strconv.Itoa(shard) + " " + nodes[i].Member, nil
			}
		}
		if after = last; !more {
			shard, after = shard+1, ""
		}
		if len(page) >= limit && shard < shards {
			return page, strconv.Itoa(shard) + " " + after, nil
		}
	}
	return page, "", nil
}

// openToken describes a node that waits for an answer.
func (a *Answers) openToken(ctx context.Context, n *store.OpenNode) (t tasktype.OpenToken, err error) {
	o, err := a.outside(ctx, token{workflow: n.Flow.ID, node: n.Node})
	if err != nil {
		return t, err
	}
	rec := store.ParseRecord(n.Record, o.fl.Created)
	t = tasktype.OpenToken{Workflow: n.Flow.ID, Node: n.Node, Task: o.spec().Task, Attempt: rec.Attempts, Opened: rec.Began, Deadline: rec.Deadline}
	t.Input, err = a.graphs.values(o.fl).input(ctx, o.g, o.id, &rec)
	return t, err
}
