package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/redistest"
)

func TestMain(m *testing.M) {
	// Many tests wait for what Redis or a worker does at its own time.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	redistest.Main(m)
}

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
	FailAll = tasks.New[[]int, int]("t.failall")
	Flaky   = tasks.New[AB, int]("t.flaky", tasks.MaxRetry(5), tasks.ConstantBackoff(10*time.Millisecond))
	Slow    = tasks.New[AB, int]("t.slow")
	Echo    = tasks.New[Mark, int]("t.echo")
	Note    = tasks.New[int, int]("t.note")
	Err     = tasks.New[tasks.Failure, string]("t.err")
	Instead = tasks.New[tasks.Failure, int]("t.instead")
	Replace = tasks.New[AB, int]("t.replace")
	ToAll   = tasks.New[[]int, []int]("t.toall")
	Deep    = tasks.New[int, int]("t.deep")
	BadPlan = tasks.New[int, int]("t.badplan")
	FailTo  = tasks.New[int, int]("t.failto")
	Prio    = tasks.New[int, int]("t.prio")
	PairSum = tasks.New[tasks.Pair[int, []int], int]("t.pairsum")
	// Outcomes counts them.
	Outcomes = tasks.New[[]tasks.Outcome[int], int]("t.outcomes")
	Settled  = tasks.New[[]tasks.Outcome[int], string]("t.settled")
	Panics   = tasks.New[int, int]("t.panics")
	Polls    = tasks.New[AB, int]("t.polls")
	Late     = tasks.New[int, int]("t.late", tasks.Expires(10*time.Millisecond)) // asks to be called again after that
	Waits    = tasks.New[string, int]("t.waits")
	Hold     = tasks.New[string, int]("t.gate")
	// HoldPlan answers with that many tasks that only end with their context.
	HoldPlan    = tasks.New[int, int]("t.holdplan")
	Deaf        = tasks.New[int, int]("t.deaf", tasks.Timeout(20*time.Millisecond), tasks.HardTimeout(60*time.Millisecond))
	DoubleAll   = tasks.New[[]int, []int]("t.doubleall")
	Fallback    = tasks.New[int, int]("t.fallback")
	Say         = tasks.New[string, string]("t.say")
	Push        = tasks.New[tasks.Pair[[]string, string], []string]("t.push")
	Plus        = tasks.New[tasks.Pair[int, int], int]("t.plus")
	Infinite    = tasks.New[int, float64]("t.infinite")
	Reject      = tasks.New[int, int]("t.reject", tasks.MaxRetry(5))
	ChordPlan   = tasks.New[int, int]("t.chordplan")
	InsteadPlan = tasks.New[tasks.Failure, int]("t.insteadplan")
)

// Show is a task that shows what it gets.
func Show[T any]() tasks.Task[T, string] { return tasks.New[T, string]("t.show") }

// New2 is a task that yields the two numbers it gets.
func New2(name string) tasks.Task[AB, AB] { return tasks.New[AB, AB](name) }

// plus is add(n) as Celery has it: what one argument is missing of is a Go function.
func plus(s tasks.Signature[int], n int) tasks.Signature[int] {
	return tasks.Chain(tasks.Join(s, ID.S(n)), Plus)
}

// push appends a word to what s yields.
func push(s tasks.Signature[[]string], word string) tasks.Signature[[]string] {
	return tasks.Chain(tasks.Join(s, Say.S(word)), Push)
}

// fork is add(1) twice on what s yields, and sums the sum of that.
func fork(s tasks.Signature[int]) tasks.Signature[[]int] { return tasks.Group(plus(s, 1), plus(s, 1)) }

func sums(s tasks.Signature[int]) tasks.Signature[int] { return tasks.Chord(fork(s), Sum) }

// tail is a chord, k tasks and a group.
func tail(k int) tasks.Signature[[]int] {
	s := tasks.Chord(tasks.Each([]AB{{1, 1}, {1, 1}}, Add), Sum)
	for range k {
		s = plus(s, 1)
	}
	return fork(s)
}

// half is a group of which one member fails.
func half() tasks.Signature[[]int] { return tasks.Group(ID.S(1), Fail.S(2)) }

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
	tasks.Handle(m, FailAll, func(context.Context, []int) (int, error) { return 0, errors.New("body") })
	tasks.Handle(m, Flaky, func(ctx context.Context, in AB) (int, error) {
		if a := tasks.InfoFrom(ctx).Attempt; a <= in.B {
			return 0, fmt.Errorf("attempt %d", a)
		}
		return in.A, nil
	})
	tasks.Handle(m, Slow, func(ctx context.Context, in AB) (int, error) {
		select {
		case <-ctx.Done():
			w.note("cut", in.A)
			return 0, ctx.Err()
		case <-time.After(time.Duration(in.B) * time.Millisecond):
			w.note("slow", in.A)
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
	tasks.HandlePlan(m, Deep, func(_ context.Context, n int) (tasks.Signature[int], error) {
		w.note("deep", n)
		if n == 0 {
			return ID.S(42), nil
		}
		return tasks.Chain(Deep.S(n-1), Inc), nil
	})
	w.handleMore(m)
	return m
}

// handleMore binds the tasks that fail, wait, answer with plans or take pairs.
func (w *world) handleMore(m *tasks.Mux) {
	tasks.HandlePlan(m, BadPlan, func(context.Context, int) (tasks.Signature[int], error) {
		return tasks.Signature[int]{}, nil
	})
	tasks.HandlePlan(m, FailTo, func(_ context.Context, n int) (tasks.Signature[int], error) {
		return tasks.Chain(ID.S(n), Fail), nil
	})
	tasks.Handle(m, Prio, func(ctx context.Context, _ int) (int, error) { return tasks.InfoFrom(ctx).Priority, nil })
	tasks.Handle(m, Outcomes, func(_ context.Context, os []tasks.Outcome[int]) (int, error) { return len(os), nil })
	tasks.Handle(m, PairSum, func(_ context.Context, p tasks.Pair[int, []int]) (int, error) {
		return p.First + sum(p.Second), nil
	})
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
	tasks.Handle(m, Panics, func(context.Context, int) (int, error) { panic("oh") })
	tasks.Handle(m, Late, func(context.Context, int) (int, error) { return 0, tasks.Again(20 * time.Millisecond) })
	tasks.Handle(m, Polls, func(ctx context.Context, in AB) (int, error) {
		key := "polls" + tasks.InfoFrom(ctx).Key
		w.note(key, 1)
		if len(w.noted(key)) < in.B {
			return 0, tasks.Again(5 * time.Millisecond)
		}
		return tasks.InfoFrom(ctx).Attempt, nil
	})
	tasks.Handle(m, Waits, func(ctx context.Context, id string) (int, error) {
		return tasks.Attach[int](w.client, id).Wait(ctx)
	})
	tasks.Handle(m, Deaf, func(context.Context, int) (int, error) {
		<-w.hold
		return 0, nil
	})
	tasks.Handle(m, Hold, func(ctx context.Context, gate string) (int, error) {
		w.note("at "+gate, 1)
		return 1, w.pass(ctx, gate)
	})
	tasks.HandlePlan(m, HoldPlan, func(_ context.Context, n int) (tasks.Signature[int], error) {
		return tasks.Chord(tasks.Each(ints(n), tasks.New[int, int]("t.hold")), Sum), nil
	})
	tasks.Handle(m, DoubleAll, func(_ context.Context, ns []int) ([]int, error) {
		out := make([]int, len(ns))
		for i, n := range ns {
			out[i] = 2 * n
		}
		return out, nil
	})
	tasks.Handle(m, Fallback, func(ctx context.Context, _ int) (int, error) {
		<-ctx.Done()
		return 0, nil
	})
	tasks.Handle(m, Say, func(_ context.Context, s string) (string, error) { return s, nil })
	tasks.Handle(m, Push, func(_ context.Context, p tasks.Pair[[]string, string]) ([]string, error) {
		return append(p.First, p.Second), nil
	})
	tasks.Handle(m, Plus, func(_ context.Context, p tasks.Pair[int, int]) (int, error) { return p.First + p.Second, nil })
	tasks.Handle(m, Infinite, func(context.Context, int) (float64, error) { return math.Inf(1), nil })
	tasks.Handle(m, Reject, func(context.Context, int) (int, error) { return 0, tasks.Permanent(errors.New("rejected")) })
	tasks.Handle(m, Show[json.RawMessage](), func(_ context.Context, raw json.RawMessage) (string, error) { return string(raw), nil })
	tasks.Handle(m, New2("t.ab"), func(_ context.Context, in AB) (AB, error) { return in, nil })
	tasks.HandlePlan(m, ChordPlan, func(_ context.Context, n int) (tasks.Signature[int], error) {
		return tasks.Chord(tasks.Each([]int{1, 2, n}, ID), Sum), nil
	})
	tasks.HandlePlan(m, InsteadPlan, func(_ context.Context, f tasks.Failure) (tasks.Signature[int], error) {
		return sums(ID.S(3)), nil
	})
	w.extra(m)
	w.listing(m)
	w.waitsForNode(m)
}

func sum(ns []int) int {
	total := 0
	for _, n := range ns {
		total += n
	}
	return total
}

// row is a case with one result, or a failure with one message.
type row struct {
	number string
	run    func(t *testing.T, w *world) (any, error)
	want   any
	err    string
}

func value[O any](number string, s func() tasks.Signature[O], want O, opts ...tasks.SendOption) row {
	return row{number, func(t *testing.T, w *world) (any, error) { return send(t, w, s(), opts...) }, want, ""}
}

func fails[O any](number string, s func() tasks.Signature[O], message string, opts ...tasks.SendOption) row {
	return row{number, func(t *testing.T, w *world) (any, error) { return send(t, w, s(), opts...) }, nil, message}
}

func ints(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// cases are the rows without a story of their own, by their number in the list of cases.
var cases = []row{
	value("11 chain", func() tasks.Signature[int] {
		return tasks.Chain(tasks.Chain(Add.S(AB{4, 4}), Inc), Double)
	}, 18),
	value("12 chain of one", func() tasks.Signature[int] { return Add.S(AB{3, 4}) }, 7),
	value("24 priority of a step", func() tasks.Signature[int] {
		return tasks.Chain(Prio.S(0, tasks.Priority(3)), Prio, tasks.Priority(5))
	}, 5),
	value("25 retried step", func() tasks.Signature[int] { return tasks.Chain(Flaky.S(AB{7, 2}), Inc) }, 8),
	value("30 large group", func() tasks.Signature[[]int] { return tasks.Each(ints(1000), ID) }, ints(1000)),
	value("31 members finish in reverse", func() tasks.Signature[[]int] {
		return tasks.Each([]AB{{1, 60}, {2, 30}, {3, 0}}, Slow)
	}, []int{1, 2, 3}),
	value("34 nested groups keep their shape", func() tasks.Signature[[][]int] {
		return tasks.Group(tasks.Each([]int{42, 42}, ID))
	}, [][]int{{42, 42}}),
	value("35 empty group", func() tasks.Signature[[]int] { return tasks.Group[int]() }, []int{}),
	fails("36 group with a failure", func() tasks.Signature[[]int] {
		return tasks.Group(Add.S(AB{1, 2}), Fail.S(1))
	}, "E1"),
	value("44 group of one", func() tasks.Signature[[]int] { return tasks.Group(ID.S(1)) }, []int{1}),
	value("52 chord", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(Add.S(AB{1, 1}), Add.S(AB{1, 1})), Sum)
	}, 4),
	value("54 chord of one", func() tasks.Signature[[]int] {
		return tasks.Chord(tasks.Group(Add.S(AB{2, 5})), ToAll)
	}, []int{8}),
	value("55 chord of none", func() tasks.Signature[string] { return tasks.Chord(tasks.Group[int](), Only) }, "[]"),
	value("56 body without data", func() tasks.Signature[int] {
		return tasks.After(tasks.Group(ID.S(1)), ID.S(7))
	}, 7),
	value("60 large header", func() tasks.Signature[int] { return tasks.Chord(tasks.Each(ints(1000), ID), Sum) }, 499500),
	value("61 chain to a large chord", func() tasks.Signature[int] {
		one := ID.S(1)
		ms := make([]tasks.Signature[int], 200)
		for i := range ms {
			ms[i] = tasks.Chain(one, ID)
		}
		return tasks.Chord(tasks.Group(ms...), Sum)
	}, 200),
	value("66 retried member", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(Flaky.S(AB{1, 2}), ID.S(2)), Sum)
	}, 3),
	value("74 group in the middle", func() tasks.Signature[string] {
		x := ID.S(42)
		return tasks.Chord(tasks.Group(tasks.Chain(x, ID), tasks.Chain(x, ID)), Only)
	}, "[42 42]"),
	value("75 group at the end", func() tasks.Signature[[]int] {
		x := ID.S(42)
		return tasks.Group(tasks.Chain(x, ID), tasks.Chain(x, ID))
	}, []int{42, 42}),
	value("80 group after group", func() tasks.Signature[int] {
		x := ID.S(1)
		g := tasks.Group(tasks.Chain(x, Inc), tasks.Chain(x, Inc))
		return tasks.Chord(tasks.Group(tasks.Chord(g, Sum), tasks.Chord(g, Sum)), Sum)
	}, 8),
	value("84 nine chords", func() tasks.Signature[int] {
		s := ID.S(1)
		for range 9 {
			s = tasks.Chord(tasks.Group(tasks.Chain(s, ID), tasks.Chain(s, ID), tasks.Chain(s, ID)), Sum)
		}
		return s
	}, 19683),
	value("90 group in the centre", func() tasks.Signature[int] {
		a := tasks.Chord(tasks.Group(Add.S(AB{0, 1})), Sum)
		b := tasks.Chord(tasks.Group(tasks.Chain(a, ID), tasks.Chain(a, ID)), Sum)
		c := tasks.Group(tasks.Chain(b, Inc), tasks.Chain(b, Double))
		return tasks.Chain(tasks.Chord(c, Sum), Double)
	}, 14),
	value("96 group to group to task", func() tasks.Signature[string] {
		g := tasks.Group(ID.S(1), ID.S(2))
		return tasks.Chord(tasks.Group(tasks.Chord(g, Sum), tasks.Chord(g, Sum)), Only)
	}, "[3 3]"),
	value("100 group of a chord", func() tasks.Signature[[]string] {
		return tasks.Group(tasks.Chord(tasks.Group(ID.S(42)), Only))
	}, []string{"[42]"}),
	value("101 chain in a header", func() tasks.Signature[[]string] {
		s := ID.S(1)
		for range 42 {
			s = tasks.Chain(s, Inc)
		}
		return tasks.Group(tasks.Chord(tasks.Group(s), Only))
	}, []string{"[43]"}),
	value("105 header ends in groups", func() tasks.Signature[int] {
		x := ID.S(42)
		return tasks.Chord(tasks.Group(tasks.Group(tasks.Chain(x, ID), tasks.Chain(x, ID)), tasks.Each([]int{5}, ID)), Sums)
	}, 89),
	value("111 parallel chords", func() tasks.Signature[[]int] {
		c := func() tasks.Signature[int] { return tasks.Chord(tasks.Each([]int{3, 7}, ID), Sum) }
		return tasks.Group(c(), c())
	}, []int{10, 10}),
	value("112 chord in chords with chains", func() tasks.Signature[int] {
		part := func() tasks.Signature[int] {
			a := ID.S(1)
			return tasks.Chord(tasks.Group(tasks.Chain(a, ID), tasks.Chain(a, ID)), Sum)
		}
		return tasks.After(tasks.Group(part(), part()), Add.S(AB{2, 2}))
	}, 4),
	fails("120 failing step", func() tasks.Signature[int] {
		return tasks.Chain(tasks.Chain(Add.S(AB{1, 2}), Fail), Inc)
	}, "E3"),
	fails("126 failing header", func() tasks.Signature[int] { return tasks.Chord(tasks.Group(Fail.S(1)), Sum) }, "E1"),
	fails("126 failing body", func() tasks.Signature[int] { return tasks.Chord(tasks.Group(ID.S(42)), FailAll) }, "body"),
	fails("136 group behind a failure", func() tasks.Signature[[]int] {
		f := tasks.Chain(Add.S(AB{1, 1}), Fail)
		return tasks.Group(tasks.Chain(f, Inc), tasks.Chain(f, Inc))
	}, "E2"),
	fails("138 chord behind a failing group", func() tasks.Signature[int] {
		g := tasks.Chord(tasks.Group(ID.S(1), Fail.S(2)), Sum)
		return tasks.Chord(tasks.Group(tasks.Chain(g, Inc), tasks.Chain(g, Inc)), Sum)
	}, "E2"),
	fails("140 failing chain in a header", func() tasks.Signature[int] {
		f := Fail.S(9)
		return tasks.Chord(tasks.Group(ID.S(1), tasks.Chain(tasks.Chord(tasks.Group(tasks.Chain(f, ID), tasks.Chain(f, ID)), Sum), ID)), Sum)
	}, "E9"),
	fails("141 header chain that ends in a group", func() tasks.Signature[int] {
		f := Fail.S(9)
		return tasks.Chord(tasks.Group(tasks.Group(tasks.Chain(f, ID), tasks.Chain(f, ID)), tasks.Each([]int{5}, ID)), Sums)
	}, "E9"),
	fails("148 rejected step", func() tasks.Signature[int] { return tasks.Chain(tasks.Chain(ID.S(1), Fail), ID) }, "E1"),
	value("158 replaced task", func() tasks.Signature[int] { return Replace.S(AB{3, 4}) }, 7),
	fails("162 empty plan", func() tasks.Signature[int] { return BadPlan.S(1) }, "zero Signature"),
	value("164 replaced members keep their places", func() tasks.Signature[[]int] {
		return tasks.Group(Replace.S(AB{1, 1}), ID.S(5), Replace.S(AB{2, 2}))
	}, []int{2, 5, 4}),
	value("165 replaced body", func() tasks.Signature[[]int] {
		return tasks.Chord(tasks.Group(ID.S(41)), ToAll)
	}, []int{42}),
	value("166 replaced by groups, in order", func() tasks.Signature[[][]int] {
		return tasks.Each(slices.Repeat([][]int{{2, 1}}, 20), ToAll)
	}, slices.Repeat([][]int{{3, 2}}, 20)),
	value("168 plan in a header", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(Replace.S(AB{1, 5}), ID.S(5)), Sum)
	}, 11),
	fails("170 failing plan in a header", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(FailTo.S(3), ID.S(5)), Sum)
	}, "E3"),
	value("172 plans within plans", func() tasks.Signature[int] { return Deep.S(5) }, 47),
	value("map", func() tasks.Signature[int] { return tasks.Chord(tasks.Map(Range.S(100), Double), Sum) }, 9900),
	value("map of nothing", func() tasks.Signature[[]int] { return tasks.Map(Range.S(0), Double) }, []int{}),
	value("map of a map", func() tasks.Signature[[]int] { return tasks.Map(tasks.Map(Range.S(5), Inc), Double) }, []int{2, 4, 6, 8, 10}),
	value("map over plans", func() tasks.Signature[[][]int] {
		return tasks.Map(tasks.Map(Range.S(3), Range), ToAll)
	}, [][]int{{}, {1}, {1, 2}}),
	fails("map with a failure", func() tasks.Signature[int] { return tasks.Chord(tasks.Map(Range.S(1), Fail), Sum) }, "E0"),
	value("map, few at once", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Map(Range.S(50), Double, tasks.AtMost(3)), Sum)
	}, 2450),
	value("group of chains, few at once", func() tasks.Signature[[]int] {
		ms := make([]tasks.Signature[int], 10)
		for i := range ms {
			ms[i] = tasks.Chain(ID.S(i), Inc)
		}
		return tasks.GroupOf(ms, tasks.AtMost(2))
	}, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}),
	value("join", func() tasks.Signature[int] {
		return tasks.Chain(tasks.Join(ID.S(1), tasks.Each([]int{2, 3}, ID)), PairSum)
	}, 6),
	value("settled group", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Settle(tasks.Group(ID.S(1), Fail.S(2), tasks.Chain(Fail.S(3), Inc))), Settled)
	}, "1 E2 E3"),
	value("settled map", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Settle(tasks.Map(Range.S(2), Fail)), Settled)
	}, "E0 E1"),
	value("settled empty map", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Settle(tasks.Map(Range.S(0), Fail)), Settled)
	}, ""),
	value("settled list of one task", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Settle(Range.S(3)), Settled)
	}, "0 1 2"),
	fails("settled map over a failure", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Settle(tasks.Map(tasks.Chain(Fail.S(4), Range), Inc)), Settled)
	}, "E4"),
	value("rescued", func() tasks.Signature[int] { return tasks.Chain(Fail.S(1).Rescue(Instead), Inc) }, 0),
	value("rescue not needed", func() tasks.Signature[int] { return tasks.Chain(ID.S(1).Rescue(Instead), Inc) }, 2),
	value("rescued chain", func() tasks.Signature[int] {
		return tasks.Chain(Fail.S(1), Inc).Rescue(Instead)
	}, -1),
	value("4 an option of the send is over the stored one", func() tasks.Signature[int] { return Prio.S(0, tasks.Priority(5)) }, 4, tasks.Priority(4)),
	value("4 an option that the send leaves out stays", func() tasks.Signature[int] { return Prio.S(0, tasks.Priority(5)) }, 5, tasks.MaxRetry(1)),
	value("8 With changes a copy", func() tasks.Signature[int] {
		s := tasks.Chord(tasks.Group(Prio.S(0)), Sum)
		_ = s.With(tasks.Priority(7), tasks.Queue("nowhere"))
		return s
	}, 0),
	value("51 chunks", func() tasks.Signature[string] {
		return tasks.Chain(tasks.Each(slices.Collect(slices.Chunk(ints(5), 2)), DoubleAll), Show[[][]int]())
	}, "[[0,2],[4,6],[8]]"),
	value("68 member that handles its soft time limit", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(ID.S(3), Fallback.S(9, tasks.Timeout(20*time.Millisecond))), Sum)
	}, 3),
	value("76 lone group", func() tasks.Signature[[]int] { return tasks.Group(ID.S(42), ID.S(42)) }, []int{42, 42}),
	value("78 a sibling does not inherit the tail", func() tasks.Signature[[]int] {
		x := Add.S(AB{5, 6})
		return tasks.Group(plus(plus(x, 1), 2), plus(x, 3))
	}, []int{14, 14}),
	value("81 chain of groups and sums", func() tasks.Signature[int] { return sums(plus(sums(Add.S(AB{1, 0})), 1)) }, 12),
	value("82 chain of chords", func() tasks.Signature[int] {
		return tasks.Chord(fork(plus(tasks.Chord(fork(Add.S(AB{1, 0})), Sum), 1)), Sum)
	}, 12),
	value("85 chord, one task, group", func() tasks.Signature[[]int] { return tail(1) }, []int{6, 6}),
	value("85 chord, two tasks, group", func() tasks.Signature[[]int] { return tail(2) }, []int{7, 7}),
	value("85 chord, three tasks, group", func() tasks.Signature[[]int] { return tail(3) }, []int{8, 8}),
	value("91 empty groups are empty lists", func() tasks.Signature[[]int] {
		return tasks.After(tasks.After(tasks.Each([]int{1, 2}, ID), tasks.Group[int]()), tasks.Group[int]())
	}, []int{}),
	value("92 what follows an empty group gets an empty list", func() tasks.Signature[string] {
		return tasks.Chord(tasks.After(ID.S(1), tasks.Group[int]()), Only)
	}, "[]"),
	value("94 chord to chain", func() tasks.Signature[[]string] {
		h := tasks.Each([]string{"x0y0", "x1y1"}, Say)
		return push(push(push(h, "foo"), "y"), "z")
	}, []string{"x0y0", "x1y1", "foo", "y", "z"}),
	value("95 chord to group", func() tasks.Signature[[][]string] {
		h := push(tasks.Each([]string{"a", "b"}, Say), "foo")
		return tasks.Group(push(h, "y"), push(h, "z"))
	}, [][]string{{"a", "b", "foo", "y"}, {"a", "b", "foo", "z"}}),
	value("96 group to group to task, as lists", func() tasks.Signature[string] {
		g := tasks.Group(ID.S(1), ID.S(2))
		with := func(word string) tasks.Signature[tasks.Pair[[]int, string]] { return tasks.Join(g, Say.S(word)) }
		return tasks.Chain(tasks.Group(with("a"), with("b")), Show[[]tasks.Pair[[]int, string]]())
	}, `[{"first":[1,2],"second":"a"},{"first":[1,2],"second":"b"}]`),
	value("101 group in a header", func() tasks.Signature[string] {
		return tasks.Chain(tasks.Group(tasks.Chain(tasks.Group(tasks.Each(slices.Repeat([]int{1337}, 42), ID)), Show[[][]int]())), Show[[]string]())
	}, `["[[`+strings.Repeat("1337,", 41)+`1337]]"]`),
	value("101 chord in a header", func() tasks.Signature[[]string] {
		inner := tasks.Chord(tasks.Each(slices.Repeat([]int{42}, 42), ID), Sum)
		return tasks.Group(tasks.Chord(tasks.Group(inner), Only))
	}, []string{"[1764]"}),
	value("102 chain, group and chord side by side", func() tasks.Signature[string] {
		chain := ID.S(42)
		for range 41 {
			chain = tasks.Chain(chain, ID)
		}
		g := tasks.Each([]int{42, 42, 42}, ID)
		return tasks.Chain(tasks.Join(tasks.Join(ID.S(42), chain), tasks.Join(g, tasks.Chord(g, Sum))),
			Show[tasks.Pair[tasks.Pair[int, int], tasks.Pair[[]int, int]]]())
	}, `{"first":{"first":42,"second":42},"second":{"first":[42,42,42],"second":126}}`),
	value("104 group as the only member", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(tasks.Each([]int{42, 42}, ID)), Sums)
	}, 84),
	value("106 header of a chain that ends in a group", func() tasks.Signature[string] {
		x := ID.S(1)
		return tasks.Chain(tasks.Join(tasks.Group(plus(x, 10), plus(x, 20)), ID.S(5)), Show[tasks.Pair[[]int, int]]())
	}, `{"first":[11,21],"second":5}`),
	value("108 order of a header is that of its definition", func() tasks.Signature[string] {
		return tasks.Chain(tasks.Group(tasks.Group(ID.S(1)), tasks.Each([]int{2, 3, 4}, ID), tasks.Group(ID.S(5))), Show[[][]int]())
	}, "[[1],[2,3,4],[5]]"),
	value("110 groups of one, four deep", func() tasks.Signature[string] {
		a := tasks.Group(plus(ID.S(3), 1))
		b := tasks.Group(tasks.Join(a, ID.S(4)))
		c := tasks.Group(tasks.Join(b, ID.S(5)))
		return tasks.Chain(tasks.Group(tasks.Join(c, ID.S(6))), tasks.New[[]tasks.Pair[[]tasks.Pair[[]tasks.Pair[[]int, int], int], int], string]("t.show"))
	}, `[{"first":[{"first":[{"first":[4],"second":4}],"second":5}],"second":6}]`),
	value("114 only after all of a nested group", func() tasks.Signature[int] {
		first := Add.S(AB{1, 0})
		second := tasks.After(first, Add.S(AB{1, 200}))
		inner := tasks.After(second, tasks.Group(Add.S(AB{1, 1000}), Add.S(AB{1, 2000})))
		return tasks.After(tasks.Join(tasks.After(first, Add.S(AB{1, 100})), inner), Add.S(AB{1, 10}))
	}, 11),
	value("115 chord in a chain, chain in a chain", func() tasks.Signature[string] {
		x := ID.S(1)
		chord := tasks.Chain(tasks.Group(tasks.Chain(x, ID), tasks.Chain(x, ID)), Show[[]int]())
		chain := tasks.Chain(tasks.Chain(tasks.Chain(x, ID), ID), Show[int]())
		return tasks.Chain(tasks.Join(chord, chain), Show[tasks.Pair[string, string]]())
	}, `{"first":"[1,1]","second":"1"}`),
	value("116 body that is a group", func() tasks.Signature[[][]string] {
		h := tasks.Each([]string{"1", "2"}, Say)
		return tasks.Group(push(h, "a"), push(h, "b"))
	}, [][]string{{"1", "2", "a"}, {"1", "2", "b"}}),
	value("116 body that is a chain", func() tasks.Signature[[]string] {
		return push(push(tasks.Each([]string{"1", "2"}, Say), "a"), "b")
	}, []string{"1", "2", "a", "b"}),
	value("118 group of chains, then a group of sums", func() tasks.Signature[[]int] {
		h := tasks.Group(plus(Add.S(AB{1, 2}), 3), plus(Add.S(AB{4, 5}), 6), ID.S(21))
		return tasks.Group(tasks.Chord(h, Sum), tasks.Chord(h, Sum))
	}, []int{42, 42}),
	fails("130 failing body that is a chain", func() tasks.Signature[int] {
		return tasks.Chain(tasks.Chain(tasks.Chord(tasks.Group(ID.S(42)), Sum), Fail), Inc)
	}, "E42"),
	fails("130 failing body that is a group", func() tasks.Signature[[]int] {
		b := tasks.Chord(tasks.Group(ID.S(42)), Sum)
		return tasks.Group(tasks.Chain(b, Fail), tasks.Chain(b, ID))
	}, "E42"),
	fails("138 task behind a failing group", func() tasks.Signature[int] { return tasks.Chord(half(), Sum) }, "E2"),
	fails("138 chain behind a failing group", func() tasks.Signature[int] {
		return tasks.Chain(tasks.Chain(tasks.Chord(half(), Sum), Inc), Inc)
	}, "E2"),
	fails("138 group behind a failing group", func() tasks.Signature[[]int] {
		return tasks.Group(tasks.Chord(half(), Sum), tasks.Chord(half(), Sum))
	}, "E2"),
	fails("142 chord in a header, failing", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(ID.S(3), tasks.Chord(half(), Sum), ID.S(2)), Sum)
	}, "E2"),
	fails("145 value of a member that does not marshal", func() tasks.Signature[string] {
		return tasks.Chain(tasks.Group(Infinite.S(1), Infinite.S(2)), Show[[]float64]())
	}, "does not marshal"),
	fails("150 rejected member", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(ID.S(1), Reject.S(2)), Sum)
	}, "rejected"),
	value("164 plans first, in the middle and last", func() tasks.Signature[[]int] {
		return tasks.Group(Replace.S(AB{1, 1}), ID.S(5), Replace.S(AB{2, 2}), ID.S(6), Replace.S(AB{3, 3}))
	}, []int{2, 5, 4, 6, 6}),
	value("164 plans in a header", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Group(Replace.S(AB{1, 1}), ID.S(5), Replace.S(AB{2, 2})), Only)
	}, "[2 5 4]"),
	value("165 plans at the head, in the middle and at the end of a chain", func() tasks.Signature[int] {
		return tasks.Chain(tasks.Chain(tasks.Chain(Replace.S(AB{1, 1}), Deep), Inc), Deep)
	}, 42+1+42+2),
	value("168 plan that is a group in a header", func() tasks.Signature[string] {
		return tasks.Chain(tasks.Group(tasks.Group(ID.S(5)), ToAll.S([]int{0, 1, 2})), Show[[][]int]())
	}, "[[5],[1,2,3]]"),
	value("168 plan that is a chord in a header", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Group(ChordPlan.S(3), ID.S(5)), Only)
	}, "[6 5]"),
	value("plan inside a rescue", func() tasks.Signature[int] { return Fail.S(1).Rescue(InsteadPlan) }, 8),
	value("plan that fails, rescued", func() tasks.Signature[int] { return FailTo.S(1).Rescue(Instead) }, -1),
	value("plan over each element of a map", func() tasks.Signature[[]int] {
		return tasks.Map(tasks.Each([]AB{{1, 1}, {2, 2}}, New2("t.ab")), Replace)
	}, []int{2, 4}),
	value("185 groups in a group", func() tasks.Signature[[][]int] {
		return tasks.Group(tasks.Each([]int{1, 2}, ID), tasks.Group[int](), tasks.Group(tasks.Chord(tasks.Each([]int{3, 4}, ID), Sum)))
	}, [][]int{{1, 2}, {}, {7}}),
	fails("panic", func() tasks.Signature[int] { return tasks.Chain(Panics.S(1), Inc) }, "panic: oh"),
	value("again uses no attempt", func() tasks.Signature[int] { return Polls.S(AB{0, 4}) }, 1),
	fails("hard time limit", func() tasks.Signature[int] { return Deaf.S(1) }, "hard time limit"),
	fails("182 wait inside a task", func() tasks.Signature[int] { return Waits.S("x") }, "wait inside a task"),
	fails("152 expired", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(ID.S(1), Late.S(2)), Sum)
	}, "expired"),
	fails("145 input that does not fit", func() tasks.Signature[int] {
		return tasks.Chain(tasks.New[string, int]("t.id").S("x"), Inc)
	}, "does not decode"),
}

func TestCanvas(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		for _, c := range cases {
			t.Run(c.number, func(t *testing.T) {
				got, err := c.run(t, w)
				if c.err != "" {
					var f *tasks.Failure
					if !errors.As(err, &f) || !strings.Contains(f.Message, c.err) {
						t.Fatalf("got %v, %v, want a failure with %q", got, err, c.err)
					}
					return
				}
				if err != nil || !reflect.DeepEqual(got, c.want) {
					t.Fatalf("got %v, %v, want %v", got, err, c.want)
				}
			})
		}
	})
}

// numbers are those of the list of cases.
const numbers = `1 2 4 5 6 8 10 11 12 14 15 16 18 20 21 22 24 25 26 28 30 31 32 34 35 36 38 40 41 42 44 45 46 48 50
51 52 54 55 56 58 60 61 62 64 65 66 68 70 71 72 74 75 76 78 80 81 82 84 85 86 88 90 91 92 94 95 96 98 100 101 102 104
105 106 108 110 111 112 114 115 116 118 120 121 122 124 125 126 128 130 131 132 134 135 136 138 140 141 142 144 145
146 148 150 151 152 154 155 156 158 160 161 162 164 165 166 168 170 171 172 174 175 176 178 180 181 182 184 185 186
188 190 191 192 194 195 196 198 200`

// gone are the cases that cannot come up, and what makes them so.
var gone = map[int]string{
	1:   "a task has one typed input: what lacks an argument is a Go function that returns a signature",
	2:   "as 1; a step that takes nothing from what comes before it is one behind After",
	5:   "a signature cannot carry the id of a group: membership is the place in the graph",
	10:  "what is no Signature does not compile",
	15:  "as 1: a chain is sent whole",
	16:  "as 1: a task has no keyword arguments",
	28:  "signatures are immutable values; there is no empty chain to append to, and the zero one is refused",
	32:  "as 1 and 16",
	50:  "one task over a list is a handler with a loop; one task for each element is Each or Map",
	58:  "as 1 and 16",
	62:  "a group is a finite value, sent in one step; what is produced bit by bit is a Map over a task's result",
	144: "no join polls: the script that ends the last member releases what follows",
	146: "a handler yields a value or an error; there is no third way that leaves a chain without an end",
	174: "a running workflow grows by Map and by plans; nothing adds to the header of somebody else's chord",
	175: "as 174",
}

// elsewhere are the cases that are told by tests of their own.
var elsewhere = map[int]func(*testing.T){
	194: TestTwoRunsOfOneNode, 195: TestNeedlessWakeTasksRunNothing, 196: TestTwoRunsOfOneNode, 198: TestCutOff,
	200: TestRevokedWorkflowNeverRuns,
}

// Every case is met, or gone by design, and not both.
func TestEveryCaseIsToldOnce(t *testing.T) {
	t.Parallel()
	met := map[int]bool{}
	names := make([]string, 0, len(cases)+len(stories))
	for _, c := range cases {
		names = append(names, c.number)
	}
	for _, s := range stories {
		names = append(names, s.number)
	}
	for _, name := range names {
		for word := range strings.FieldsSeq(name) {
			n, err := strconv.Atoi(word)
			if err != nil {
				break
			}
			met[n] = true
		}
	}
	for n := range elsewhere {
		met[n] = true
	}
	known := map[int]bool{}
	for word := range strings.FieldsSeq(numbers) {
		n, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		known[n] = true
		if _, isGone := gone[n]; met[n] == isGone {
			t.Errorf("case %d: met %v, gone %v", n, met[n], isGone)
		}
	}
	for n := range met {
		if !known[n] {
			t.Errorf("there is no case %d", n)
		}
	}
	for n := range gone {
		if !known[n] {
			t.Errorf("there is no case %d", n)
		}
	}
}
