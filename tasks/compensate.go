package tasks

import (
	"context"
	"encoding/json"
	"fmt"

	"muster/tasks/internal/engine"
	"muster/tasks/internal/graph"
)

// Compensate runs step, then the signature that rest returns for it, and yields the value of that. If rest fails, undo
// runs on the value of step, and afterwards the workflow continues with the failure of rest; if undo fails too, with
// the failure of undo. Nothing is undone if step itself fails. Nested calls undo their steps in reverse order, each once
// the later ones are undone. [Workflow.Retry] runs a step again that was undone, and keeps the node that has undone it:
//
//	trip := tasks.Compensate(Flight.S(who), CancelFlight, func(f tasks.Signature[Seat]) tasks.Signature[Trip] {
//		return tasks.Compensate(tasks.Chain(f, Hotel), CancelHotel, func(h tasks.Signature[Room]) tasks.Signature[Trip] {
//			return tasks.Chain(h, Car)
//		})
//	})
//
// Steps are also undone after [Workflow.Cancel], but not after a revoke. rest is called once, by Compensate; it may ignore its
// argument. Any worker of the queue of undo decides whether to run it, by a task named "muster.compensate".
func Compensate[A, U, B any](step Signature[A], undo Task[A, U], rest func(step Signature[A]) Signature[B]) Signature[B] {
	outcome := Try(After(step, rest(step)))
	g, err := graph.Compile(&graph.Sig{Shape: graph.Call, Task: undo.name, Opts: undo.opts})
	if err != nil {
		return Signature[B]{&graph.Sig{Shape: graph.Value, Err: fmt.Errorf("compensation %s: %w", undo.name, err)}}
	}
	decide := New[Pair[Pair[A, Outcome[B]], graph.Spec], B](compensateTask, Queue(g.Specs[0].QueueName()), Priority(g.Specs[0].Priority))
	return Chain(Join(step, outcome), Bind(decide, g.Specs[0]))
}

const compensateTask = engine.CompensateTask

// bindCompensate binds the task that decides, once the steps after one have ended, whether that step is undone.
func bindCompensate(m *Mux) {
	type input = Pair[Pair[json.RawMessage, Outcome[json.RawMessage]], graph.Spec]
	bind(m, compensateTask, graph.NoOpts, nil, func(_ context.Context, raw []byte) (engine.HandlerResult, error) {
		in, err := decode[input](compensateTask, raw)
		if err != nil {
			return engine.HandlerResult{}, err
		}
		outcome, undo := in.First.Second, in.Second
		switch {
		case outcome.Err == nil:
			return engine.HandlerResult{Value: outcome.Value}, nil
		case undo.Task == "": // it has run
			return engine.HandlerResult{}, Permanent(outcome.Err)
		}
		undone := &graph.Sig{Shape: graph.Call, Task: undo.Task, Spec: &undo, Input: in.First.First}
		after, err := json.Marshal(input{First: in.First})
		if err != nil {
			return engine.HandlerResult{}, fmt.Errorf("pass on the failure of a compensated step: %w", err)
		}
		fail := &graph.Sig{Shape: graph.Call, Task: compensateTask, Input: after,
			Opts: &graph.Opts{Queue: undo.QueueName(), Priority: &undo.Priority}}
		return engine.HandlerResult{Plan: &graph.Sig{Shape: graph.After, Kids: []*graph.Sig{undone, fail}}, Planned: true}, nil
	})
	m.handlers[compensateTask].Builtin = true
}
