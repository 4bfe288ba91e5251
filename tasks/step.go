package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"time"

	"muster/tasks/internal/engine"
	"muster/tasks/internal/graph"
	"muster/tasks/tasktype"
)

// Step runs do once for the task of ctx, and returns its value. The value of the first success is stored before Step returns. Later
// attempts of the task, after an error, the death of a worker, a deploy or [Workflow.Retry], get it without a call of do:
//
//	payment, err := tasks.Step(ctx, "charge", func(ctx context.Context) (Payment, error) { return bank.Charge(ctx, order) })
//
// An error of do is returned as it is, and not stored. A worker that dies between the end of do and its storage runs do again: give
// services the Key of [tasktype.Info] with the name as an idempotency key. The value goes through JSON in the first attempt too.
//
// A worker that has lost the task, because others believed it dead, stores nothing: Step returns an error and the context of the handler ends.
//
// The names of the steps of a task are unique: after a success, a second use of a name in an attempt is an error. Steps may run at the same time. Values are kept
// as long as the workflow. A task has at most 1,000 steps, with values of at most 16 MiB together: a larger value, one that is not
// JSON and one that does not decode into T are errors marked as [Permanent]. After a release that changed T, [DropSteps] is the way out.
//
// A step costs one round trip to Redis, and the first step of an attempt two or three.
func Step[T any](ctx context.Context, name string, do func(context.Context) (T, error)) (T, error) {
	var none T
	r := engine.RunFrom(ctx)
	if r == nil {
		return none, fmt.Errorf("step %.100s: %w", name, errNoTask)
	}
	raw, keep, err := r.Step(name)
	if err != nil {
		return none, err
	}
	if keep == nil {
		return decodeStored[T](raw, fmt.Sprintf("stored value of step %s of task %s", name, r.Info.Task),
			fmt.Sprintf("the release has changed: retry the workflow with tasks.DropSteps(%q, %q), which runs the step again", r.Info.Node, name))
	}
	began := time.Now()
	v, err := do(ctx)
	if err != nil {
		r.StepFailed(name)
		return none, err
	}
	if raw, err = marshal(v); err != nil {
		return none, Permanent(fmt.Errorf("step %s: encode its value as JSON: %w", name, err))
	}
	v, err = decodeStored[T](raw, fmt.Sprintf("value of step %s of task %s", name, r.Info.Task), "return a type that decodes from its JSON")
	if err == nil {
		err = keep(began, raw)
	}
	return v, err
}

// Save stores a value for later attempts of the task of ctx, such as the position in a long loop. It replaces the value that was saved
// before. [Saved] returns it. It is kept, refused and limited as the values of [Step], together with these, and costs a round trip to Redis: do not
// save after each element if an element is cheaper than that.
//
//	cursor, _, err := tasks.Saved[int](ctx) // 0 in the first attempt
//	for ; cursor < len(rows); cursor += 1000 {
//		if err := insert(ctx, rows[cursor:min(cursor+1000, len(rows))]); err != nil {
//			return none, err
//		}
//		if err := tasks.Save(ctx, cursor+1000); err != nil {
//			return none, err
//		}
//	}
func Save(ctx context.Context, v any) error {
	r := engine.RunFrom(ctx)
	if r == nil {
		return fmt.Errorf("save: %w", errNoTask)
	}
	raw, err := marshal(v)
	if err != nil {
		return Permanent(fmt.Errorf("save: encode the value as JSON: %w", err))
	}
	if err := r.Save(raw); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	return nil
}

// Saved returns the value that this or an earlier attempt of the task of ctx has saved last. ok is false if there is none.
func Saved[T any](ctx context.Context) (v T, ok bool, err error) {
	r := engine.RunFrom(ctx)
	if r == nil {
		return v, false, fmt.Errorf("saved value: %w", errNoTask)
	}
	raw, err := r.Saved()
	if err != nil || raw == nil {
		return v, false, err
	}
	v, err = decodeStored[T](raw, "saved value of task "+r.Info.Task, fmt.Sprintf("the release has changed: retry the workflow with tasks.DropSteps(%q)", r.Info.Node))
	return v, err == nil, err
}

var errNoTask = errors.New("the context does not belong to a handler")

// decodeStored decodes a stored value. The error names it, and the remedy.
func decodeStored[T any](raw []byte, what, remedy string) (v T, err error) {
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, Permanent(fmt.Errorf("%s does not decode as %s: %w; %s", what, reflect.TypeFor[T](), err, remedy))
	}
	return v, nil
}

// Emit adds a value, as JSON, to the output of the task of ctx, such as a part of a text that a model writes. Readers follow it with
// [Workflow.Output] while the task runs:
//
//	for token := range model.Stream(ctx, prompt) {
//		if err := tasks.Emit(ctx, token); err != nil {
//			return none, err
//		}
//	}
//
// Emit does not wait for Redis: a worker stores the output of its tasks every 50 ms, and the rest before the result of the task. The last 1,000
// chunks of a task with at most 1 MiB are kept, as long as the workflow; [KeepOutput] changes this. Output that Redis does not take within two
// seconds is dropped with a warning. An error means that v does not marshal, or that the context of the handler has ended.
func Emit(ctx context.Context, v any) error {
	r := engine.RunFrom(ctx)
	if r == nil {
		return fmt.Errorf("emit: %w", errNoTask)
	}
	raw, err := marshal(v)
	if err != nil {
		return Permanent(fmt.Errorf("emit: encode the value as JSON: %w", err))
	}
	if err := r.Emit(raw); err != nil {
		return fmt.Errorf("emit: %w", err)
	}
	return nil
}

// KeepOutput keeps the last chunks of the output of a task, at most so many and with so many bytes; see [Emit].
func KeepOutput(chunks, bytes int) TaskOption {
	if chunks < 1 || chunks > 100_000 || bytes < 1 || bytes > 16<<20 {
		return bad("KeepOutput(%d, %d): give 1 to 100,000 chunks and 1 byte to 16 MiB", chunks, bytes)
	}
	return option(func(o *graph.Opts) { o.OutputChunks, o.OutputBytes = chunks, bytes })
}

// Output yields the output of the tasks of the workflow or, given the ID of a node, of this node: first the kept chunks, then new ones about
// 100 ms after they were stored. Chunks of a node are in order. The sequence ends when the workflow, or the node, has ended, or with an error such
// as ctx.Err(). A task that runs again marks its first chunk with Begin, so that a reader can discard the chunks before. Readers
// do not slow the task.
func (w *Workflow) Output(ctx context.Context, node ...string) iter.Seq2[tasktype.Chunk, error] {
	return func(yield func(tasktype.Chunk, error) bool) {
		only := ""
		if len(node) > 0 {
			only = node[0]
		}
		stopped := false
		err := w.client.eng.Results.Output(ctx, w.ref, only, func(c tasktype.Chunk) bool {
			stopped = !yield(c, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(tasktype.Chunk{}, w.failed(err, "output of"))
		}
	}
}
