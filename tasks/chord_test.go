package tasks_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"muster/tasks"
)

func TestChords(t *testing.T) {
	t.Parallel()
	runRows(t, chordRows)
}

// chordRows are the values of chords.
var chordRows = []row{
	value("chord", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(Add.S(AB{1, 1}), Add.S(AB{1, 1})), Sum)
	}, 4),
	value("chord of one", func() tasks.Signature[[]int] {
		return tasks.Chord(tasks.Group(Add.S(AB{2, 5})), ToAll)
	}, []int{8}),
	value("chord of none", func() tasks.Signature[string] { return tasks.Chord(tasks.Group[int](), Only) }, "[]"),
	value("body without data", func() tasks.Signature[int] {
		return tasks.After(tasks.Group(ID.S(1)), ID.S(7))
	}, 7),
	value("large header", func() tasks.Signature[int] { return tasks.Chord(tasks.Each(ints(1000), ID), Sum) }, 499500),
	value("chain to a large chord", func() tasks.Signature[int] {
		one := ID.S(1)
		ms := make([]tasks.Signature[int], 200)
		for i := range ms {
			ms[i] = tasks.Chain(one, ID)
		}
		return tasks.Chord(tasks.Group(ms...), Sum)
	}, 200),
	value("retried member", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(Flaky.S(AB{1, 2}), ID.S(2)), Sum)
	}, 3),
	value("nine chords", func() tasks.Signature[int] {
		s := ID.S(1)
		for range 9 {
			s = tasks.Chord(tasks.Group(tasks.Chain(s, ID), tasks.Chain(s, ID), tasks.Chain(s, ID)), Sum)
		}
		return s
	}, 19683),
	value("group in the centre", func() tasks.Signature[int] {
		a := tasks.Chord(tasks.Group(Add.S(AB{0, 1})), Sum)
		b := tasks.Chord(tasks.Group(tasks.Chain(a, ID), tasks.Chain(a, ID)), Sum)
		c := tasks.Group(tasks.Chain(b, Inc), tasks.Chain(b, Double))
		return tasks.Chain(tasks.Chord(c, Sum), Double)
	}, 14),
	value("group of a chord", func() tasks.Signature[[]string] {
		return tasks.Group(tasks.Chord(tasks.Group(ID.S(42)), Only))
	}, []string{"[42]"}),
	value("chain in a header", func() tasks.Signature[[]string] {
		s := ID.S(1)
		for range 42 {
			s = tasks.Chain(s, Inc)
		}
		return tasks.Group(tasks.Chord(tasks.Group(s), Only))
	}, []string{"[43]"}),
	value("header ends in groups", func() tasks.Signature[int] {
		x := ID.S(42)
		return tasks.Chord(tasks.Group(tasks.Group(tasks.Chain(x, ID), tasks.Chain(x, ID)), tasks.Each([]int{5}, ID)), Sums)
	}, 89),
	value("parallel chords", func() tasks.Signature[[]int] {
		c := func() tasks.Signature[int] { return tasks.Chord(tasks.Each([]int{3, 7}, ID), Sum) }
		return tasks.Group(c(), c())
	}, []int{10, 10}),
	value("chord in chords with chains", func() tasks.Signature[int] {
		part := func() tasks.Signature[int] {
			a := ID.S(1)
			return tasks.Chord(tasks.Group(tasks.Chain(a, ID), tasks.Chain(a, ID)), Sum)
		}
		return tasks.After(tasks.Group(part(), part()), Add.S(AB{2, 2}))
	}, 4),
	value("member that handles its soft time limit", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(ID.S(3), Fallback.S(9, tasks.Timeout(20*time.Millisecond))), Sum)
	}, 3),
	value("chain of chords", func() tasks.Signature[int] {
		return tasks.Chord(fork(plus(tasks.Chord(fork(Add.S(AB{1, 0})), Sum), 1)), Sum)
	}, 12),
	value("chord, one task, group", func() tasks.Signature[[]int] { return tail(1) }, []int{6, 6}),
	value("chord, two tasks, group", func() tasks.Signature[[]int] { return tail(2) }, []int{7, 7}),
	value("chord, three tasks, group", func() tasks.Signature[[]int] { return tail(3) }, []int{8, 8}),
	value("the successor of an empty group gets an empty list", func() tasks.Signature[string] {
		return tasks.Chord(tasks.After(ID.S(1), tasks.Group[int]()), Only)
	}, "[]"),
	value("chord to chain", func() tasks.Signature[[]string] {
		h := tasks.Each([]string{"x0y0", "x1y1"}, Say)
		return push(push(push(h, "foo"), "y"), "z")
	}, []string{"x0y0", "x1y1", "foo", "y", "z"}),
	value("chord to group", func() tasks.Signature[[][]string] {
		h := push(tasks.Each([]string{"a", "b"}, Say), "foo")
		return tasks.Group(push(h, "y"), push(h, "z"))
	}, [][]string{{"a", "b", "foo", "y"}, {"a", "b", "foo", "z"}}),
	value("group in a header", func() tasks.Signature[string] {
		return tasks.Chain(tasks.Group(tasks.Chain(tasks.Group(tasks.Each(slices.Repeat([]int{1337}, 42), ID)), Show[[][]int]())), Show[[]string]())
	}, `["[[`+strings.Repeat("1337,", 41)+`1337]]"]`),
	value("chord in a header", func() tasks.Signature[[]string] {
		inner := tasks.Chord(tasks.Each(slices.Repeat([]int{42}, 42), ID), Sum)
		return tasks.Group(tasks.Chord(tasks.Group(inner), Only))
	}, []string{"[1764]"}),
	value("chain, group and chord side by side", func() tasks.Signature[string] {
		chain := ID.S(42)
		for range 41 {
			chain = tasks.Chain(chain, ID)
		}
		g := tasks.Each([]int{42, 42, 42}, ID)
		return tasks.Chain(tasks.Join(tasks.Join(ID.S(42), chain), tasks.Join(g, tasks.Chord(g, Sum))),
			Show[tasks.Pair[tasks.Pair[int, int], tasks.Pair[[]int, int]]]())
	}, `{"first":{"first":42,"second":42},"second":{"first":[42,42,42],"second":126}}`),
	value("header of a chain that ends in a group", func() tasks.Signature[string] {
		x := ID.S(1)
		return tasks.Chain(tasks.Join(tasks.Group(plus(x, 10), plus(x, 20)), ID.S(5)), Show[tasks.Pair[[]int, int]]())
	}, `{"first":[11,21],"second":5}`),
	value("members of a header are in the order of their definition", func() tasks.Signature[string] {
		return tasks.Chain(tasks.Group(tasks.Group(ID.S(1)), tasks.Each([]int{2, 3, 4}, ID), tasks.Group(ID.S(5))), Show[[][]int]())
	}, "[[1],[2,3,4],[5]]"),
	value("only after all of a nested group", func() tasks.Signature[int] {
		first := Add.S(AB{1, 0})
		second := tasks.After(first, Add.S(AB{1, 200}))
		inner := tasks.After(second, tasks.Group(Add.S(AB{1, 1000}), Add.S(AB{1, 2000})))
		return tasks.After(tasks.Join(tasks.After(first, Add.S(AB{1, 100})), inner), Add.S(AB{1, 10}))
	}, 11),
	value("chord in a chain, chain in a chain", func() tasks.Signature[string] {
		x := ID.S(1)
		chord := tasks.Chain(tasks.Group(tasks.Chain(x, ID), tasks.Chain(x, ID)), Show[[]int]())
		chain := tasks.Chain(tasks.Chain(tasks.Chain(x, ID), ID), Show[int]())
		return tasks.Chain(tasks.Join(chord, chain), Show[tasks.Pair[string, string]]())
	}, `{"first":"[1,1]","second":"1"}`),
	value("body that is a group", func() tasks.Signature[[][]string] {
		h := tasks.Each([]string{"1", "2"}, Say)
		return tasks.Group(push(h, "a"), push(h, "b"))
	}, [][]string{{"1", "2", "a"}, {"1", "2", "b"}}),
	value("body that is a chain", func() tasks.Signature[[]string] {
		return push(push(tasks.Each([]string{"1", "2"}, Say), "a"), "b")
	}, []string{"1", "2", "a", "b"}),
}
