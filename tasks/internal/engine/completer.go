package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// The errors of external completions, in addition to [ErrUnknown].
var (
	ErrCompleted = errors.New("the node is already completed")
	ErrStale     = errors.New("the token is stale: the node was retried or has a newer token")
	ErrNotOpen   = errors.New("the node does not wait for an external result")

	// ErrPending is the error of a handler whose task is completed externally.
	ErrPending = errors.New("result pending: the task is completed externally")
)

// maxCompletion limits the size of an external result, as WorkerConfig.MaxResult limits results of handlers.
const maxCompletion = 16 << 20

// waitsForCompletion is the reason why an open node does not end.
const waitsForCompletion = "waits for an external result"

// tokenErrors are the errors of the replies of Redis about a node and its token; it has none about an unknown workflow.
var tokenErrors = map[string]error{store.TokenEnded: ErrCompleted, store.TokenStale: ErrStale, store.TokenClosed: ErrNotOpen, store.TokenUnknown: ErrUnknown, "": ErrUnknown}

// outside is a node that is completed externally: by a token or, without a hash, by a client that may end any node.
type outside struct {
	token
	fl *flow
	g  *graph.Graph
	id graph.ID
}

// guard returns the condition of a change: that the token is valid or, without one, that the node is open.
func (o *outside) guard(open bool, call string) store.Change {
	if o.hash == "" {
		return store.IfOpen(o.node, call)
	}
	return store.IfToken(o.node, o.hash, open, call)
}

func (o *outside) spec() *graph.Spec { return &o.g.Specs[o.g.Nodes[o.id.Index].Spec] }

// Completer completes nodes externally.
type Completer struct{ *advancer }

// outside returns the node that a token names.
func (a *Completer) outside(ctx context.Context, t token) (*outside, error) {
	fl, err := a.graphs.load(ctx, t.workflow)
	if err != nil {
		return nil, err
	}
	id, g, err := a.graphs.values(fl).named(ctx, t.node)
	if errors.Is(err, errUnreadable) || err == nil && g.Virtual(id.Index) && (id.Inst < 0 || g.Nodes[id.Index].Kind != graph.Each) {
		return nil, ErrUnknown
	}
	if err != nil {
		return nil, err
	}
	return &outside{t, fl, g, id}, nil
}

// Find returns the node of an external result: by a token, or by its workflow and ID.
type Find func(ctx context.Context, a *Completer) (*outside, error)

// ByToken finds the node of a token. The task, if given, must be the task of the node.
func ByToken(text, task string) Find {
	return func(ctx context.Context, a *Completer) (*outside, error) {
		t, err := parseToken(text)
		if err != nil {
			return nil, err
		}
		o, err := a.outside(ctx, t)
		if err != nil {
			return nil, err
		}
		if have := o.spec().Task; task != "" && task != have {
			return nil, fmt.Errorf("the token is for task %s, not for %s", have, task)
		}
		return o, nil
	}
}

// ByNode finds a node of a workflow.
func ByNode(workflow, node string) Find {
	return func(ctx context.Context, a *Completer) (*outside, error) {
		fl, id, g, err := a.graphs.existing(ctx, workflow, node)
		if err != nil {
			return nil, err
		}
		return &outside{token{workflow: workflow, node: node}, fl, g, id}, nil
	}
}

// Complete completes a node with a value.
func (a *Completer) Complete(ctx context.Context, find Find, value json.RawMessage) error {
	if len(value) > maxCompletion {
		return fmt.Errorf("result has %d bytes, more than the limit of %d; store it elsewhere and send a key", len(value), maxCompletion)
	}
	o, err := find(ctx, a)
	if err != nil {
		return err
	}
	return a.end(ctx, o, store.ChangeSucceed, value)
}

// Fail has the attempt of a node fail with cause.
func (a *Completer) Fail(ctx context.Context, find Find, cause error) error {
	m := marksOf(cause)
	if m.again != nil {
		return errors.New("it cannot be called again; extend its deadline instead")
	}
	o, err := find(ctx, a)
	if err != nil {
		return err
	}
	rec, err := a.graphs.values(o.fl).record(ctx, o.node)
	if err != nil {
		return err
	}
	attempt := rec.Attempts // the token is for this one, or is refused
	if rec.State != store.StateOpen {
		attempt++
	}
	f := &tasktype.Failure{Task: o.spec().Task, Node: o.node, Attempts: attempt, Code: m.code, Message: shorten(cause.Error())}
	if f.Code == "" {
		if f.Code = tasktype.CodeError; m.permanent {
			f.Code = tasktype.CodePermanent
		}
	}
	if m.permanent || attempt > o.spec().MaxRetry {
		return a.end(ctx, o, store.ChangeFail, encodeFailure(f))
	}
	d := retryPause(o.spec(), attempt, false)
	if m.delay != nil {
		d = *m.delay
	}
	return a.guarded(ctx, o.fl, o.guard(false, ""), o.retry(f, d))
}

// end completes a node externally.
func (a *Completer) end(ctx context.Context, o *outside, outcome string, body []byte) error {
	c := completed(o.g, o.id, outcome, body)
	return a.guarded(ctx, o.fl, o.guard(false, byOutside+encodeToken(randomBytes(6))), c)
}

// completed returns the change that ends a node externally.
func completed(g *graph.Graph, id graph.ID, outcome string, body []byte) store.Change {
	c := ended(g, id, outcome, body)
	c.Flags = append(c.Flags, store.FlagExternal, store.FlagClear)
	c.Queue = counted(g, id)
	return c
}

// byOutside marks a node that was ended from outside. The id of the call follows it.
const byOutside = "@"

// workerOf returns the worker that ended a node; empty if it was ended from outside.
func workerOf(owner string) string {
	if strings.HasPrefix(owner, byOutside) {
		return ""
	}
	return owner
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// retry returns the change that has another attempt follow one that failed.
func (o *outside) retry(f *tasktype.Failure, d time.Duration) store.Change {
	sp := o.spec()
	c := store.Change{Outcome: store.ChangeAgain, Queue: sp.QueueName(), Task: sp.Task}
	c.Again(o.node, f.Attempts, 0, d, store.AgainRetry, store.Lane(sp.QueueName(), sp.Priority), f.Message,
		store.EncodeRun(&tasktype.NodeAttempt{Attempt: f.Attempts, Outcome: tasktype.OutcomeRetry, Code: f.Code, Message: f.Message}))
	return c
}

// guarded makes a change if its guard allows it. The change is final: workers complete the steps that fail after it.
func (a *Completer) guarded(ctx context.Context, fl *flow, guard, change store.Change) error {
	t, err := a.advancer.apply(ctx, fl, []store.Change{guard, change})
	if err != nil {
		return a.store.Explain(ctx, err)
	}
	if err := tokenErrors[t.Guard]; err != nil {
		return err
	}
	if err := a.advancer.settle(ctx, fl, t); err != nil {
		a.log.WarnContext(ctx, "workers take the steps after the result of an external task", "workflow", fl.ID(), "error", err)
	}
	return nil
}

// Extend moves the deadline of an open node to d from now, but for a lease not beyond the time limit of the attempt. One that has
// none gets none.
func (a *Completer) Extend(ctx context.Context, find Find, d time.Duration, lease bool) error {
	if d < time.Millisecond {
		return fmt.Errorf("extend a deadline by %s: it must be a millisecond at least", d)
	}
	o, err := find(ctx, a)
	if err != nil {
		return err
	}
	if soft, _ := limits(o.spec()); lease && soft > 0 {
		rec, err := a.graphs.values(o.fl).record(ctx, o.node)
		if err != nil {
			return err
		}
		now, err := a.redisTime(ctx, o.fl.Shard())
		if err != nil {
			return err
		}
		if left := rec.Began.Add(soft).Sub(now); rec.State == store.StateOpen {
			d = max(time.Millisecond, min(d, left))
		}
	}
	return a.guarded(ctx, o.fl, o.guard(true, ""), store.Extend(o.spec().Task, o.node, d))
}

// timeOut ends an attempt whose deadline may have passed.
func (a *Completer) timeOut(ctx context.Context, fl *flow, node string, attempt int, longest bool) error {
	o, err := a.outside(ctx, token{workflow: fl.Ref, node: node})
	if err != nil {
		return err
	}
	f := &tasktype.Failure{Task: o.spec().Task, Node: node, Attempts: attempt, Code: tasktype.CodeTimeout, Message: "no external result before the deadline"}
	c := o.retry(f, retryPause(o.spec(), attempt, longest))
	if attempt > o.spec().MaxRetry {
		c = ended(o.g, o.id, store.ChangeFail, encodeFailure(f))
		c.Queue = o.spec().QueueName()
	}
	err = a.guarded(ctx, fl, store.IfOverdue(node, attempt), c)
	if errors.Is(err, ErrCompleted) || errors.Is(err, ErrStale) || errors.Is(err, ErrUnknown) {
		return nil // it was completed, or its deadline moved
	}
	return err
}

// New makes a token for an open node, which ends the one before.
func (a *Completer) New(ctx context.Context, workflow, node string) (string, error) {
	o, err := ByNode(workflow, node)(ctx, a)
	if err != nil {
		return "", err
	}
	full, hash := newToken(workflow, node)
	result, err := a.store.Tokens.New(ctx, o.fl.Flow, node, hash)
	if err := cmp.Or(err, tokenErrors[result]); err != nil {
		return "", a.store.Explain(ctx, err)
	}
	return full, nil
}

// The sizes of a page of open nodes.
const (
	openPage  = 100
	openBytes = 1 << 20 // of inputs, beyond the first
)

// Open returns a page of the open nodes of a task, and the cursor of the next page, which is empty on the last one.
func (a *Completer) Open(ctx context.Context, task, cursor string) (page []tasktype.OpenToken, next string, err error) {
	shards, err := a.store.Shards(ctx)
	if err != nil {
		return nil, "", err
	}
	shard, after := 0, ""
	if cursor != "" {
		text, rest, ok := strings.Cut(cursor, " ")
		if shard, err = strconv.Atoi(text); err != nil || !ok || shard < 0 {
			return nil, "", fmt.Errorf("%w: %.100q", store.ErrCursor, cursor)
		}
		after = rest
	}
	for bytes := 0; shard < shards; {
		members, err := a.store.Tokens.Open(ctx, shard, task, after, openPage)
		if err != nil {
			return nil, "", fmt.Errorf("list open tokens: %w", err)
		}
		for _, after = range members {
			t, ok, err := a.openToken(ctx, shard, task, after)
			if err != nil {
				return nil, "", err
			}
			if ok {
				page = append(page, t)
				bytes += len(t.Input)
			}
			if len(page) == openPage || bytes > openBytes {
				return page, strconv.Itoa(shard) + " " + after, nil
			}
		}
		if len(members) < openPage {
			shard, after = shard+1, ""
		}
	}
	return page, "", nil
}

// choicesOf returns the declared results of a task.
func choicesOf(spec *graph.Spec) (out []tasktype.Choice) {
	for _, c := range spec.Choices {
		out = append(out, tasktype.Choice(c))
	}
	return out
}

// openToken describes the open node of a member of the list of open nodes. ok is false if there is none of the task.
func (a *Completer) openToken(ctx context.Context, shard int, task, member string) (t tasktype.OpenToken, ok bool, err error) {
	e, input, ok, err := a.store.Tokens.ReadOpen(ctx, shard, task, member)
	if err != nil || !ok {
		return t, false, err
	}
	o, err := a.outside(ctx, token{workflow: e.Flow.Ref, node: e.Node})
	if err == nil {
		rec := store.ParseRecord(e.Record, o.fl.Created)
		rec.Input = input
		t = tasktype.OpenToken{Workflow: e.Flow.ID(), Node: e.Node, Task: o.spec().Task, Attempt: rec.Attempts, Opened: rec.Began, Deadline: rec.Deadline, Choices: choicesOf(o.spec())}
		t.Input, err = a.graphs.values(o.fl).input(ctx, o.g, o.id, &rec)
	}
	if errors.Is(err, ErrUnknown) || errors.Is(err, errUnreadable) || errors.Is(err, errNoValue) {
		return t, false, nil
	}
	return t, t.Task == task, err
}
