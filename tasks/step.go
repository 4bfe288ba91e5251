package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"muster/tasks/internal/engine"
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
