package canvas

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/tasks"
)

// leafIn is the input of a leaf.
type leafIn struct {
	N, Tries int
	Fail     bool
}

// badRemainder is the remainder by four of the elements for which the members of a map fail.
const badRemainder = 3

var (
	pLeaf    = tasks.New[leafIn, int]("p.leaf", tasks.MaxRetry(3), tasks.ConstantBackoff(time.Millisecond))
	pLate    = tasks.New[int, int]("p.late", tasks.Expires(10*time.Millisecond))
	pStep    = tasks.New[int, int]("p.step")
	pBad     = tasks.New[int, int]("p.bad")
	pSum     = tasks.New[[]int, int]("p.sum")
	pPlus    = tasks.New[tasks.Pair[int, int], int]("p.plus")
	pCount   = tasks.New[[]tasks.Outcome[int], int]("p.count")
	pTry     = tasks.New[tasks.Outcome[int], int]("p.try")
	pEach    = tasks.New[int, int]("p.each")
	pPlan    = tasks.New[Scope, int]("p.plan")
	pList    = tasks.New[Scope, []int]("p.listplan")
	pMapPlan = tasks.New[int, int]("p.mapplan")
	pInstead = tasks.New[tasks.Failure, int]("p.instead")
	pNone    = tasks.New[tasks.Failure, []int]("p.none")
	pCb      = tasks.New[int, int]("p.cb")
	pEb      = tasks.New[tasks.Failure, int]("p.eb")
	pListCb  = tasks.New[[]int, int]("p.listcb")

	// Completed externally in the end: see [ExternalTasks].
	pAsk  = tasks.New[int, int]("p.ask", tasks.External(), tasks.MaxRetry(1000), tasks.Timeout(askTime), tasks.ConstantBackoff(time.Millisecond))
	pHand = tasks.New[int, int]("p.hand", tasks.MaxRetry(1000), tasks.Timeout(askTime), tasks.HardTimeout(0), tasks.ConstantBackoff(time.Millisecond))
)

// askTime is the time limit of an external result; after it the task is retried.
const askTime = 3 * time.Second

// ExternalTasks are the tasks of definitions of the kinds "ask" and "hand", which Draw does not generate: they compute the
// same as a "step", but are completed externally with the input plus one.
var ExternalTasks = []string{pAsk.Name(), pHand.Name()}

// Handle binds the tasks of canvases to their handlers. While other returns true, plans have another shape and the same value.
// While mended returns true for the id of a workflow, handlers do not fail, as with [Runs.Mended]. Both may be nil. The limits apply
// to two of the tasks that take a number.
func Handle(m *tasks.Mux, other func() bool, mended func(id string) bool, limits ...tasks.TaskOption) {
	works := func(ctx context.Context) bool { return mended != nil && mended(tasks.InfoFrom(ctx).Workflow) }
	tasks.Handle(m, pLeaf, func(ctx context.Context, in leafIn) (int, error) {
		switch {
		case tasks.InfoFrom(ctx).Attempt <= in.Tries:
			return 0, errors.New("once more")
		case in.Fail && !works(ctx):
			return 0, tasks.Permanent(fmt.Errorf("leaf %d", in.N))
		}
		return in.N, nil
	})
	tasks.Handle(m, pLate, func(context.Context, int) (int, error) { return 0, tasks.Again(20 * time.Millisecond) })
	tasks.Handle(m, tasks.New[int, int](pStep.Name(), limits...), func(ctx context.Context, n int) (int, error) {
		if n%2 == 0 {
			return n + 1, nil
		}
		// A step that was stored for another input would be seen in the value.
		return tasks.Step(ctx, "add", func(context.Context) (int, error) { return n + 1, nil })
	})
	tasks.Handle(m, pHand, func(ctx context.Context, _ int) (int, error) {
		if _, err := tasks.TokenFrom(ctx); err != nil {
			return 0, err
		}
		return tasks.ResultPending[int](ctx)
	})
	tasks.Handle(m, pBad, func(ctx context.Context, n int) (int, error) {
		if works(ctx) {
			return n, nil
		}
		return 0, fmt.Errorf("bad %d", n)
	})
	tasks.Handle(m, pSum, func(_ context.Context, ns []int) (int, error) { return sum(ns), nil })
	tasks.HandleBatch(m, pPlus, tasks.Batch[tasks.Pair[int, int]]{Size: 2, Wait: 5 * time.Millisecond}, func(_ context.Context, ps []tasks.Pair[int, int]) []tasks.Outcome[int] {
		out := make([]tasks.Outcome[int], len(ps))
		for i, p := range ps {
			out[i].Value = p.First + p.Second
		}
		return out
	})
	tasks.Handle(m, pTry, func(_ context.Context, o tasks.Outcome[int]) (int, error) { return numberOf(o), nil })
	tasks.Handle(m, pCount, func(_ context.Context, os []tasks.Outcome[int]) (int, error) {
		n := 0
		for _, o := range os {
			n += numberOf(o)
		}
		return n, nil
	})
	tasks.Handle(m, tasks.New[int, int](pEach.Name(), limits...), func(ctx context.Context, n int) (int, error) {
		if n%4 == badRemainder && !works(ctx) {
			return 0, fmt.Errorf("each %d", n)
		}
		return n + 1, nil
	})
	tasks.HandlePlan(m, pPlan, func(_ context.Context, s Scope) (tasks.Signature[int], error) {
		if other != nil && other() {
			return tasks.After(tasks.Value(0), s.Signature()), nil
		}
		return s.Signature(), nil
	})
	tasks.HandlePlan(m, pList, func(_ context.Context, s Scope) (tasks.Signature[[]int], error) {
		return s.listSignature(), nil
	})
	tasks.HandlePlan(m, pMapPlan, func(_ context.Context, n int) (tasks.Signature[int], error) {
		return mapPlan(n).Signature(), nil
	})
	tasks.Handle(m, pInstead, func(context.Context, tasks.Failure) (int, error) { return -1, nil })
	tasks.Handle(m, pNone, func(context.Context, tasks.Failure) ([]int, error) { return nil, nil })
	tasks.Handle(m, pCb, func(_ context.Context, n int) (int, error) { return n, nil })
	tasks.Handle(m, pEb, func(context.Context, tasks.Failure) (int, error) { return 0, nil })
	tasks.Handle(m, pListCb, func(context.Context, []int) (int, error) { return 0, nil })
}

// numberOf returns the value of an outcome, and 1000 for a failure.
func numberOf(o tasks.Outcome[int]) int {
	if o.Err != nil {
		return 1000
	}
	return o.Value
}

func sum(ns []int) int {
	total := 0
	for _, n := range ns {
		total += n
	}
	return total
}
