package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"muster/tasks/internal/engine"
	"muster/tasks/internal/graph"
	"muster/tasks/tasktype"
)

// The errors of answers to a task token, beside [ErrUnknown], which says that it leads to no workflow: the token was made up, or
// the workflow is forgotten or lost.
var (
	// ErrCompleted says that the node has ended: it was answered, revoked, or its last attempt has failed. The first answer counts,
	// so a call that is made again, because its error left open whether Redis had it, gets this one.
	ErrCompleted = engine.ErrCompleted
	// ErrStale says that the token is not that of the node, or no more: its attempt is over and another has followed or will,
	// or somebody had a new token made.
	ErrStale = engine.ErrStale
	// ErrNotOpen says that the node does not wait for an answer: it has not begun, or its handler runs still.
	ErrNotOpen = engine.ErrNotOpen
)

// External, at a declaration, says that somebody outside answers for the task: a person, or a program in any language. No
// handler is called. Once the task can run, a worker of its queue, which needs no handler for it, opens it: it is STARTED, and
// waits for [Client.Complete] or [Client.Fail]. It holds no slot meanwhile, but what it has of [AtMost].
//
// [Timeout] counts from when it is opened, and [Client.Extend] moves that deadline; after it the attempt has failed with
// [tasktype.CodeTimeout]. [MaxRetry] opens the task again, with a token of its own for each attempt.
func External() TaskOption { return option(func(o *graph.Opts) { o.External = true }) }

// TokenFrom returns the token with which somebody outside can answer for the task of ctx, in the place of its handler. The first call
// in an attempt makes it, and asks Redis; the token made when the same attempt ran before, on a worker that died, ends. The
// handler passes it on and returns [ResultPending]. An answer that comes before that counts: what the handler returns then does not.
//
// A token is a secret: who has it decides what the task came to. It must not be in the path of a URL, nor in a log.
func TokenFrom(ctx context.Context) (string, error) {
	r := engine.RunFrom(ctx)
	if r == nil {
		return "", errors.New("token of a task: the context is not that of a handler")
	}
	token, err := r.Token(ctx)
	if err != nil {
		return "", fmt.Errorf("token of node %s of workflow %s: %w", r.Info.Node, r.Info.Workflow, err)
	}
	return token, nil
}

// ResultPending is what a handler returns that has given its task away: the task waits for an answer from outside, as one
// that is [External], and its slot is free.
//
//	token, err := tasks.TokenFrom(ctx)
//	…
//	return tasks.ResultPending[Verdict](ctx)
func ResultPending[O any](ctx context.Context) (O, error) {
	var none O
	if engine.RunFrom(ctx) == nil {
		return none, errors.New("result pending outside of a task: the context is not that of a handler")
	}
	return none, engine.ErrPending
}

// IsPending reports whether err is what [ResultPending] returns: a middleware should not take it for a failure.
func IsPending(err error) bool { return engine.IsPending(err) }

// Complete answers for the node of a token, which must be one of t: its value is out. See [Client.Complete].
func Complete[I, O any](ctx context.Context, c *Client, t Task[I, O], token string, out O) error {
	value, err := marshal(out)
	if err != nil {
		return fmt.Errorf("answer for task %s does not marshal to JSON: %w", t.name, err)
	}
	return c.complete(ctx, token, t.name, value)
}

// Complete answers for the node of a token with a value as JSON, of 16 MiB at most. Nothing checks that it decodes to what the task
// yields: see the function of the same name. The first answer counts. The others get [ErrCompleted], or [ErrStale] or [ErrUnknown].
func (c *Client) Complete(ctx context.Context, token string, value json.RawMessage) error {
	if !json.Valid(value) {
		return errors.New("complete a task: the answer is not JSON")
	}
	return c.complete(ctx, token, "", value)
}

func (c *Client) complete(ctx context.Context, token, task string, value json.RawMessage) error {
	if err := c.eng.Complete(ctx, token, task, value); err != nil {
		return fmt.Errorf("complete a task: %w", err)
	}
	return nil
}

// Fail answers for the node of a token that its attempt has failed, as a handler that returns cause: another follows as [MaxRetry]
// says, and [Permanent], [RetryIn] and [WithCode] count. The errors are those of [Client.Complete].
func (c *Client) Fail(ctx context.Context, token string, cause error) error {
	if cause == nil {
		return errors.New("fail a task: a cause is needed")
	}
	if err := c.eng.FailToken(ctx, token, cause); err != nil {
		return fmt.Errorf("fail a task: %w", err)
	}
	return nil
}

// Extend moves the deadline of the node of a token to d from now, as a sign that whoever is to answer is at it. A node without a
// deadline gets none. The errors are those of [Client.Complete], and [ErrNotOpen].
func (c *Client) Extend(ctx context.Context, token string, d time.Duration) error {
	if err := c.eng.Extend(ctx, token, d); err != nil {
		return fmt.Errorf("extend the deadline of a task: %w", err)
	}
	return nil
}

// NewToken makes a token for a node that waits for an answer. The token before it, if there is one, ends: it gets [ErrStale]. Errors
// are [ErrUnknown], [ErrCompleted] and [ErrNotOpen]. On tokens as secrets see [TokenFrom].
func (c *Client) NewToken(ctx context.Context, workflow, node string) (string, error) {
	token, err := c.eng.NewToken(ctx, workflow, node)
	if err != nil {
		return "", fmt.Errorf("new token for node %s of workflow %s: %w", node, workflow, err)
	}
	return token, nil
}

// OpenTokens returns a page of the nodes of a task that wait for an answer, by workflow and node, and the cursor of the next page: call
// again with it until it is empty. A page has 100 nodes at most, and fewer when their inputs are large; it can be empty although
// others follow. There are no tokens in it: see [Client.NewToken].
func (c *Client) OpenTokens(ctx context.Context, task, cursor string) (page []tasktype.OpenToken, next string, err error) {
	page, next, err = c.eng.OpenTokens(ctx, task, cursor, 0)
	if err != nil {
		return nil, "", fmt.Errorf("open tokens of task %s: %w", task, err)
	}
	return page, next, nil
}
