package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"muster/tasks"
)

// AB are two numbers.
type AB struct{ A, B int }

// Mark is a value to note under a key.
type Mark struct {
	Key   string
	Value int
}

// The tasks that the cases are made of.
var (
	ID      = tasks.New[int, int]("t.id")
	Add     = tasks.New[AB, int]("t.add")
	Inc     = tasks.New[int, int]("t.inc")
	Double  = tasks.New[int, int]("t.double")
	Sum     = tasks.New[[]int, int]("t.sum")
	Sums    = tasks.New[[][]int, int]("t.sums")
	Range   = tasks.New[int, []int]("t.range")
	Only    = tasks.New[[]int, string]("t.only")
	Fail    = tasks.New[int, int]("t.fail")
	Flaky   = tasks.New[AB, int]("t.flaky", tasks.MaxRetry(5), tasks.ConstantBackoff(10*time.Millisecond))
	Slow    = tasks.New[AB, int]("t.slow")
	Echo    = tasks.New[Mark, int]("t.echo")
	Note    = tasks.New[int, int]("t.note")
	Err     = tasks.New[tasks.Failure, string]("t.err")
	Instead = tasks.New[tasks.Failure, int]("t.instead")
	Replace = tasks.New[AB, int]("t.replace")
	ToAll   = tasks.New[[]int, []int]("t.toall")
	BadPlan = tasks.New[int, int]("t.badplan")
	FailTo  = tasks.New[int, int]("t.failto")
	Prio    = tasks.New[int, int]("t.prio")
	// Outcomes counts them.
	Outcomes = tasks.New[[]tasks.Outcome[int], int]("t.outcomes")
	Tried    = tasks.New[tasks.Outcome[int], string]("t.tried")
	TriedAll = tasks.New[tasks.Outcome[[]int], string]("t.triedall")
	Settled  = tasks.New[[]tasks.Outcome[int], string]("t.settled")
	Late     = tasks.New[int, int]("t.late", tasks.Expires(10*time.Millisecond)) // asks to be called again after that
	Total    = tasks.New[[]int, int]("t.total")
	Hold     = tasks.New[string, int]("t.gate")
	// HoldPlan returns a plan of that many tasks that end only with their context.
	HoldPlan    = tasks.New[int, int]("t.holdplan")
	Fallback    = tasks.New[int, int]("t.fallback")
	Say         = tasks.New[string, string]("t.say")
	Plus        = tasks.New[tasks.Pair[int, int], int]("t.plus")
	Infinite    = tasks.New[int, float64]("t.infinite")
	ChordPlan   = tasks.New[int, int]("t.chordplan")
	InsteadPlan = tasks.New[tasks.Failure, int]("t.insteadplan")
)

// Show is a task that returns its input as text.
func Show[T any]() tasks.Task[T, string] { return tasks.New[T, string]("t.show") }

func (w *world) mux() *tasks.Mux {
	m := tasks.NewMux()
	m.Use(w.count)
	tasks.Handle(m, ID, func(_ context.Context, n int) (int, error) { return n, nil })
	tasks.Handle(m, Add, func(_ context.Context, in AB) (int, error) { return in.A + in.B, nil })
	tasks.Handle(m, Inc, func(_ context.Context, n int) (int, error) { return n + 1, nil })
	tasks.Handle(m, Double, func(_ context.Context, n int) (int, error) { return 2 * n, nil })
	tasks.Handle(m, Sum, func(_ context.Context, ns []int) (int, error) { return sum(ns), nil })
	tasks.Handle(m, Sums, func(_ context.Context, nss [][]int) (int, error) {
		total := 0
		for _, ns := range nss {
			total += sum(ns)
		}
		return total, nil
	})
	tasks.Handle(m, Range, func(_ context.Context, n int) ([]int, error) {
		out := make([]int, n)
		for i := range out {
			out[i] = i
		}
		return out, nil
	})
	tasks.Handle(m, Only, func(_ context.Context, ns []int) (string, error) {
		if ns == nil {
			return "null", nil
		}
		return fmt.Sprint(ns), nil
	})
	tasks.Handle(m, Fail, func(ctx context.Context, n int) (int, error) {
		w.note("fail", n)
		return 0, fmt.Errorf("E%d", n)
	})
	tasks.Handle(m, Flaky, func(ctx context.Context, in AB) (int, error) {
		if a := tasks.InfoFrom(ctx).Attempt; a <= in.B {
			return 0, fmt.Errorf("attempt %d", a)
		}
		return in.A, nil
	})
	tasks.Handle(m, Slow, func(ctx context.Context, in AB) (int, error) {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(time.Duration(in.B) * time.Millisecond):
			return in.A, nil
		}
	})
	tasks.Handle(m, Echo, func(_ context.Context, in Mark) (int, error) {
		w.note(in.Key, in.Value)
		return in.Value, nil
	})
	tasks.Handle(m, Note, func(_ context.Context, n int) (int, error) {
		w.note("note", n)
		return n, nil
	})
	tasks.Handle(m, Err, func(_ context.Context, f tasks.Failure) (string, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.fails = append(w.fails, f)
		return f.Message, nil
	})
	tasks.Handle(m, Instead, func(_ context.Context, f tasks.Failure) (int, error) { return -1, nil })
	tasks.HandlePlan(m, Replace, func(_ context.Context, in AB) (tasks.Signature[int], error) {
		return Add.S(in), nil
	})
	tasks.HandlePlan(m, ToAll, func(_ context.Context, ns []int) (tasks.Signature[[]int], error) {
		return tasks.Each(ns, Inc), nil
	})
	w.handleMore(m)
	return m
}

// handleMore binds the tasks that fail, wait, return plans or take pairs.
func (w *world) handleMore(m *tasks.Mux) {
	tasks.HandlePlan(m, BadPlan, func(context.Context, int) (tasks.Signature[int], error) {
		return tasks.Signature[int]{}, nil
	})
	tasks.HandlePlan(m, FailTo, func(_ context.Context, n int) (tasks.Signature[int], error) {
		return tasks.Chain(ID.S(n), Fail), nil
	})
	tasks.Handle(m, Prio, func(ctx context.Context, _ int) (int, error) { return tasks.InfoFrom(ctx).Priority, nil })
	tasks.Handle(m, Tried, func(_ context.Context, o tasks.Outcome[int]) (string, error) {
		if o.Err != nil {
			return o.Err.Task + ": " + o.Err.Message, nil
		}
		return strconv.Itoa(o.Value), nil
	})
	tasks.Handle(m, TriedAll, func(_ context.Context, o tasks.Outcome[[]int]) (string, error) {
		if o.Err != nil {
			return o.Err.Task + ": " + o.Err.Message, nil
		}
		return fmt.Sprint(o.Value), nil
	})
	tasks.Handle(m, Outcomes, func(_ context.Context, os []tasks.Outcome[int]) (int, error) { return len(os), nil })
	tasks.Handle(m, Settled, func(_ context.Context, os []tasks.Outcome[int]) (string, error) {
		var parts []string
		for _, o := range os {
			if o.Err != nil {
				parts = append(parts, o.Err.Message)
			} else {
				parts = append(parts, fmt.Sprint(o.Value))
			}
		}
		return strings.Join(parts, " "), nil
	})
	tasks.Handle(m, Late, func(context.Context, int) (int, error) { return 0, tasks.Again(20 * time.Millisecond) })
	tasks.Handle(m, Hold, func(ctx context.Context, gate string) (int, error) {
		w.note("at "+gate, 1)
		defer w.note("left "+gate, 1)
		return 1, w.pass(ctx, gate)
	})
	tasks.HandlePlan(m, HoldPlan, func(_ context.Context, n int) (tasks.Signature[int], error) {
		return tasks.Chord(tasks.Each(ints(n), tasks.New[int, int]("t.hold")), Sum), nil
	})
	tasks.Handle(m, Fallback, func(ctx context.Context, _ int) (int, error) {
		<-ctx.Done()
		return 0, nil
	})
	tasks.Handle(m, Say, func(_ context.Context, s string) (string, error) { return s, nil })
	tasks.Handle(m, Plus, func(_ context.Context, p tasks.Pair[int, int]) (int, error) { return p.First + p.Second, nil })
	tasks.Handle(m, Infinite, func(context.Context, int) (float64, error) { return math.Inf(1), nil })
	tasks.Handle(m, Show[json.RawMessage](), func(_ context.Context, raw json.RawMessage) (string, error) { return string(raw), nil })
	tasks.HandlePlan(m, ChordPlan, func(_ context.Context, n int) (tasks.Signature[int], error) {
		return tasks.Chord(tasks.Each([]int{1, 2, n}, ID), Sum), nil
	})
	tasks.HandlePlan(m, InsteadPlan, func(_ context.Context, f tasks.Failure) (tasks.Signature[int], error) {
		return tasks.Chord(tasks.Each([]int{3, 5}, ID), Sum), nil
	})
	w.extra(m)
	w.listing(m)
}

func sum(ns []int) int {
	total := 0
	for _, n := range ns {
		total += n
	}
	return total
}

func ints(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// extra binds the tasks that only stories use.
func (w *world) extra(m *tasks.Mux) {
	handleFailedInputs(m)
	w.extraValues(m)
	w.extraWaits(m)
}

// extraValues binds tasks whose value or notes count.
func (w *world) extraValues(m *tasks.Mux) {
	tasks.Handle(m, Total, func(_ context.Context, ns []int) (int, error) {
		w.note("total", sum(ns))
		return sum(ns), nil
	})
	tasks.Handle(m, tasks.New[int, string]("t.big"), func(_ context.Context, n int) (string, error) {
		return strings.Repeat("x", n), nil
	})
}

// extraWaits binds tasks that take until a gate opens, until they are cancelled, or a moment.
func (w *world) extraWaits(m *tasks.Mux) {
	tasks.Handle(m, tasks.New[int, int]("t.hold"), func(ctx context.Context, n int) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	})
	tasks.Handle(m, tasks.New[int, int]("t.progress"), func(ctx context.Context, n int) (int, error) {
		tasks.SetProgress(ctx, 3, 4)
		return n, w.pass(ctx, "progress")
	})
	tasks.Handle(m, tasks.New[int, int]("t.stumble"), func(ctx context.Context, n int) (int, error) {
		tasks.SetProgress(ctx, 1, 2)
		return 0, errors.New("stumbled")
	})
	var now atomic.Int64
	tasks.Handle(m, tasks.New[int, int]("t.count"), func(ctx context.Context, n int) (int, error) {
		w.note("count", int(now.Add(1)))
		defer now.Add(-1)
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
		return n, nil
	})
}
