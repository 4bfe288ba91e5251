package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"muster/tasks/internal/engine"
)

// Batch is how [HandleBatch] collects nodes for one call.
type Batch[I any] struct {
	Size int            // most nodes of a call, 1 to 1,000
	Wait time.Duration  // how long a node waits for others, 1 ms to 24 h
	Key  func(I) string // only nodes with the same key share a call; nil if all do. It must not block
}

// HandleBatch binds t to a handler of several nodes at once, such as a service that takes a hundred mails in a call. Nodes of the task, of any
// workflows, wait for each other over all workers of their queue: a call is made when Size nodes wait, or when the first has waited for Wait. A call
// occupies one slot; a node that waits occupies none. Nodes with a [Priority] above 0 share no calls with others, on a Redis
// Cluster each of the shards collects separately, and a call has at most 1 MiB of inputs.
//
// The handler returns an outcome for each input, in their order. [Failed] makes one of an error, which acts as that of a handler: the node
// is retried, or fails. Each node has its own result, attempts, time limits and place in its workflow. A panic is an error of all nodes of the
// call, and so is, without a retry, a list of another length. After the death of a worker its nodes run again, perhaps in other calls.
//
// The context of the handler ends when the contexts of all nodes have ended; [NodeContexts] returns these, for [InfoFrom] and the other
// functions for handlers. Middleware runs for each node. Programs on one queue can have a plain handler and one of batches for a task: each runs
// the nodes that it takes. A task that is external or has limits cannot be handled in batches: [NewWorker] returns an error.
//
// HandleBatch panics if the name is already bound.
func HandleBatch[I, O any](m *Mux, t Task[I, O], b Batch[I], h func(ctx context.Context, ins []I) []Outcome[O]) {
	opts := *t.opts.Over(nil)
	switch {
	case opts.Err != nil:
	case b.Size < 1 || b.Size > 1000:
		opts.Err = fmt.Errorf("size %d of its batches: give 1 to 1,000", b.Size)
	case b.Wait < time.Millisecond || b.Wait > 24*time.Hour:
		opts.Err = fmt.Errorf("wait %s of its batches: give 1ms to 24h", b.Wait)
	case opts.External, len(opts.Limits) > 0:
		opts.Err = errors.New("a task that is external or has limits cannot be handled in batches")
	}
	call := func(ctx context.Context, list []any) []any {
		ins := make([]I, len(list))
		for i := range list {
			ins[i], _ = list[i].(I)
		}
		outs := h(ctx, ins)
		list = make([]any, len(outs))
		for i := range outs {
			list[i] = outs[i]
		}
		return list
	}
	batch := &engine.Batch{Size: b.Size, Wait: b.Wait}
	if b.Key != nil {
		batch.Key = func(input []byte) string {
			var in I
			if json.Unmarshal(input, &in) != nil {
				return "" // its attempt fails
			}
			return b.Key(in)
		}
	}
	for _, handler := range bind(m, t.name, &opts, reflect.TypeFor[I](), func(ctx context.Context, raw []byte) (engine.HandlerResult, error) {
		in, err := decode[I](t.name, raw)
		if err != nil {
			return engine.HandlerResult{}, err
		}
		out, err := engine.RunFrom(ctx).Join(ctx, in, call)
		if err != nil {
			return engine.HandlerResult{}, err
		}
		o := out.(Outcome[O])
		switch f := o.Err; {
		case f == nil:
			return encode(o.Value)
		case f.Cause != nil:
			return engine.HandlerResult{}, f.Cause
		case f.Task != "":
			return engine.HandlerResult{}, f
		default:
			return engine.HandlerResult{}, &engine.Verdict{Err: errors.New(cmp.Or(f.Message, "failed")), Code: f.Code}
		}
	}) {
		handler.Batch = batch
	}
}

// Failed returns the outcome of a node that has failed with an error, for [HandleBatch]. The error may be marked, as with [Permanent] or [RetryIn], and
// [Again] asks for another call.
func Failed[O any](err error) Outcome[O] {
	err = orMissing(err, "tasks.Failed(nil)", "return an outcome with a value if the node has succeeded")
	return Outcome[O]{Err: &Failure{Message: err.Error(), Cause: err}}
}

// NodeContexts returns the contexts of the nodes of a call of [HandleBatch], in the order of its inputs. Each ends at the [Timeout] of its node, and
// when the node is revoked. For any other context it returns nil.
func NodeContexts(ctx context.Context) []context.Context { return engine.NodeContexts(ctx) }
