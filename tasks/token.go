package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"muster/tasks/internal/engine"
	"muster/tasks/internal/graph"
)

// External declares that the task is completed externally: by a person, or by a program in any language. No handler is
// called. When the task is ready, a worker of its queue opens it: the task is STARTED, and waits for [Client.Complete]
// or [Client.Fail]. The worker needs no handler for it. An open task occupies no slot of a worker, but it counts for
// [AtMost].
//
// [Timeout] begins when the task is opened; [Client.Extend] moves the deadline. At the deadline the attempt fails
// with [tasktype.CodeTimeout]. If [MaxRetry] allows another attempt, the task is opened again, with a new token.
func External() TaskOption { return option(func(o *graph.Opts) { o.External = true }) }

const (
	mostChoices = 10
	mostLabel   = 60      // bytes
	mostChoice  = 4 << 10 // bytes of JSON
)

// Choice declares a result of an [External] task, or of one whose handler returns [ResultPending]: the page "To do" of package ui
// has a button with the label that completes the task with the value. A task has at most 10 choices. The value has the result type of the task and at most 4
// KiB of JSON.
//
//	var Approve = tasks.New[Order, bool]("order.approve", tasks.External(), tasks.Choice("Approve", true), tasks.Choice("Refuse", false))
func Choice(label string, value any) TaskOption {
	if label == "" || len(label) > mostLabel || !utf8.ValidString(label) || strings.ContainsFunc(label, unicode.IsControl) {
		return bad("Choice(%.100q): give a label of 1 to %d bytes of UTF-8 without control characters", label, mostLabel)
	}
	raw, err := marshal(value)
	if err != nil {
		return bad("Choice(%q): %w", label, err)
	}
	if len(raw) > mostChoice {
		return bad("Choice(%q): the value has more than %d bytes", label, mostChoice)
	}
	return option(func(o *graph.Opts) { o.Choices = append(o.Choices, graph.Choice{Label: label, Value: raw}) })
}

// checkChoices sets the error of a declaration if its choices are too many, have equal labels, or are not results of type O.
func checkChoices[O any](o *graph.Opts) {
	for i, c := range o.Choices {
		err := json.Unmarshal(c.Value, new(O))
		switch {
		case i == mostChoices:
			err = fmt.Errorf("a task has at most %d", mostChoices)
		case slices.ContainsFunc(o.Choices[:i], func(other graph.Choice) bool { return other.Label == c.Label }):
			err = errors.New("another choice has this label")
		}
		if err != nil {
			bad("Choice(%q): %w", c.Label, err)(o)
			return
		}
	}
}

// TokenFrom returns a token with which another program can complete the task of ctx instead of its handler. The
// handler passes the token on and returns [ResultPending]. A completion that arrives earlier is the result, and the
// return value of the handler is discarded. The first call in an attempt creates the token and stores its hash in Redis. An
// attempt that is repeated because its worker died has a new token, and the old one is stale.
//
// A token is a secret: any program that has it can end the task. Do not put it into the path of a URL or into a log.
func TokenFrom(ctx context.Context) (string, error) {
	r := engine.RunFrom(ctx)
	if r == nil {
		return "", errors.New("token of a task: the context does not belong to a handler")
	}
	token, err := r.Token(ctx)
	if err != nil {
		return "", fmt.Errorf("token of node %s of workflow %s: %w", r.Info.Node, r.Info.Workflow, err)
	}
	return token, nil
}

// ResultPending returns the result of a handler that has passed its token on: the task waits for external completion, as
// an [External] task does, and occupies no slot.
//
//	token, err := tasks.TokenFrom(ctx)
//	…
//	return tasks.ResultPending[Verdict](ctx)
func ResultPending[O any](ctx context.Context) (O, error) {
	var none O
	if engine.RunFrom(ctx) == nil {
		return none, errors.New("result pending outside of a task: the context does not belong to a handler")
	}
	return none, engine.ErrPending
}

// Complete ends the node of a token with the value out. The node must be one of task t. See [Client.Complete].
func (t Task[I, O]) Complete(ctx context.Context, c *Client, token string, out O) error {
	value, err := marshal(out)
	if err != nil {
		return fmt.Errorf("encode result of task %s as JSON: %w", t.name, err)
	}
	return complete(ctx, c, engine.ByToken(token, t.name), value)
}

// Complete ends the node of a token with a value in JSON, of at most 16 MiB. It does not check that the value has the
// type of the task; [Task.Complete] does. Only the first result is stored: later calls return [ErrCompleted],
// [ErrStale] or [ErrNotFound].
func (c *Client) Complete(ctx context.Context, token string, value json.RawMessage) error {
	return complete(ctx, c, engine.ByToken(token, ""), value)
}

// CompleteNode is [Client.Complete] for a node that waits for external completion, without a token, for operators. The token
// that the task passed on stays valid until then. It returns [ErrNotFound], [ErrCompleted] or [ErrNotOpen].
func (w *Workflow) CompleteNode(ctx context.Context, node string, value json.RawMessage) error {
	return complete(ctx, w.client, engine.ByNode(w.ref, node), value)
}

func complete(ctx context.Context, c *Client, find engine.Find, value json.RawMessage) error {
	if !json.Valid(value) {
		return errors.New("complete a task: the result is not JSON")
	}
	return wrap(c.eng.Completer.Complete(ctx, find, value), "complete a task")
}

// Fail ends the attempt of a token with a failure, as if a handler had returned cause: [MaxRetry] decides whether
// another attempt follows, and cause may be marked with [Permanent], [RetryIn] and [WithCode]. It returns the errors of
// [Client.Complete].
func (c *Client) Fail(ctx context.Context, token string, cause error) error {
	return fail(ctx, c, engine.ByToken(token, ""), cause)
}

// FailNode is [Client.Fail] for a node, as [Workflow.CompleteNode] is Complete.
func (w *Workflow) FailNode(ctx context.Context, node string, cause error) error {
	return fail(ctx, w.client, engine.ByNode(w.ref, node), cause)
}

func fail(ctx context.Context, c *Client, find engine.Find, cause error) error {
	if cause == nil {
		return errors.New("fail a task: a cause is needed")
	}
	return wrap(c.eng.Completer.Fail(ctx, find, cause), "fail a task")
}

// Extend moves the deadline of the node of a token to d from now. A program that works for long calls it as a heartbeat. A
// node without a deadline gets none. It returns the errors of [Client.Complete], and [ErrNotOpen].
func (c *Client) Extend(ctx context.Context, token string, d time.Duration) error {
	return extend(ctx, c, engine.ByToken(token, ""), d)
}

// ExtendNode is [Client.Extend] for a node, as [Workflow.CompleteNode] is Complete.
func (w *Workflow) ExtendNode(ctx context.Context, node string, d time.Duration) error {
	return extend(ctx, w.client, engine.ByNode(w.ref, node), d)
}

func extend(ctx context.Context, c *Client, find engine.Find, d time.Duration) error {
	return wrap(c.eng.Completer.Extend(ctx, find, d, false), "extend the deadline of a task")
}

// NewToken creates a token for a node that waits for external completion. Earlier tokens of the node become stale. It returns
// [ErrNotFound], [ErrCompleted] or [ErrNotOpen]. A token is a secret: see [TokenFrom].
func (w *Workflow) NewToken(ctx context.Context, node string) (string, error) {
	token, err := w.client.eng.Completer.New(ctx, w.ref, node)
	return token, wrap(err, "new token for node %s of workflow %s", node, w.ID())
}

// Signal completes task t of a workflow, which waits for an external result, with the value out. The sender needs the ID of the workflow, but no token. See
// [Workflow.Signal].
func (t Task[I, O]) Signal(ctx context.Context, c *Client, id string, out O) error {
	value, err := marshal(out)
	if err != nil {
		return fmt.Errorf("encode signal for task %s as JSON: %w", t.name, err)
	}
	return c.Workflow(id).Signal(ctx, t.name, value)
}

// Signal completes a task of the workflow that waits for an external result, by the name of the task. value is the result in JSON,
// of at most 16 MiB; whether it has the type of the task is not checked: [Task.Signal] does.
//
// A signal may come early: if no node of the task waits, the workflow keeps the signal, and the next node of the task that opens
// receives it. So a chain of three nodes receives three signals in the order in which they were sent. If several nodes wait,
// the first by node ID receives it. Kept signals are deleted with the workflow. A signal for a task of the workflow that is
// declared neither with [External] nor with [Choice] is [ErrInvalid] unless one of its nodes waits because of [ResultPending].
//
// Once Signal has returned nil, the signal is stored in Redis, and is delivered once even if all processes are killed. It
// returns [ErrInvalid] for a value or a name that cannot be sent, [ErrNotFound], [ErrEnded] or [ErrFull].
func (w *Workflow) Signal(ctx context.Context, task string, value json.RawMessage) error {
	return wrap(w.client.eng.Completer.Signal(ctx, w.ref, task, value), "signal task %s of workflow %s", task, w.ID())
}
