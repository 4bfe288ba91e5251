package tasks

import (
	"context"
	"fmt"
	"iter"

	"muster/tasks/internal/engine"
	"muster/tasks/internal/graph"
	"muster/tasks/tasktype"
)

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
