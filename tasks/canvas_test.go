package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

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
	Settled = tasks.New[[]tasks.Outcome[int], string]("t.settled")
	Panics  = tasks.New[int, int]("t.panics")
	Polls   = tasks.New[AB, int]("t.polls")
	Waits   = tasks.New[string, int]("t.waits")
	Hold    = tasks.New[string, int]("t.gate")
	// HoldPlan answers with that many tasks that only end with their context.
	HoldPlan = tasks.New[int, int]("t.holdplan")
	Deaf     = tasks.New[int, int]("t.deaf", tasks.Timeout(20*time.Millisecond), tasks.HardTimeout(60*time.Millisecond))
)

func (w *world) mux() *tasks.Mux {
	m := tasks.NewMux()
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
	tasks.HandlePlan(m, BadPlan, func(context.Context, int) (tasks.Signature[int], error) {
		return tasks.Signature[int]{}, nil
	})
	tasks.HandlePlan(m, FailTo, func(_ context.Context, n int) (tasks.Signature[int], error) {
		return tasks.Chain(ID.S(n), Fail), nil
	})
	tasks.Handle(m, Prio, func(ctx context.Context, _ int) (int, error) { return tasks.InfoFrom(ctx).Priority, nil })
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
		select {
		case <-w.gate(gate):
			return 1, nil
		case <-w.hold:
			return 0, errors.New("the test is over")
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
	tasks.HandlePlan(m, HoldPlan, func(_ context.Context, n int) (tasks.Signature[int], error) {
		return tasks.Chord(tasks.Each(ints(n), tasks.New[int, int]("t.hold")), Sum), nil
	})
	w.extra(m)
	return m
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

func value[O any](number string, s func() tasks.Signature[O], want O, opts ...tasks.Option) row {
	return row{number, func(t *testing.T, w *world) (any, error) { return send(t, w, s(), opts...) }, want, ""}
}

func fails[O any](number string, s func() tasks.Signature[O], message string, opts ...tasks.Option) row {
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
	value("33 nested groups keep their shape", func() tasks.Signature[[][]int] {
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
		return tasks.Group(ms...).With(tasks.AtMost(2))
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
	fails("panic", func() tasks.Signature[int] { return tasks.Chain(Panics.S(1), Inc) }, "panic: oh"),
	value("again uses no attempt", func() tasks.Signature[int] { return Polls.S(AB{0, 4}) }, 1),
	fails("hard time limit", func() tasks.Signature[int] { return Deaf.S(1) }, "hard time limit"),
	fails("182 wait inside a task", func() tasks.Signature[int] { return Waits.S("x") }, "wait inside a task"),
	fails("152 expired", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(ID.S(1), ID.S(2, tasks.Expires(-time.Second))), Sum)
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
