package tasks_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/tasks"
)

func TestGroups(t *testing.T) {
	t.Parallel()
	runRows(t, groupRows)
}

// groupRows are the values of groups.
var groupRows = []row{
	value("large group", func() tasks.Signature[[]int] { return tasks.Each(ints(1000), ID) }, ints(1000)),
	value("members finish in reverse", func() tasks.Signature[[]int] {
		return tasks.Each([]AB{{1, 60}, {2, 30}, {3, 0}}, Slow)
	}, []int{1, 2, 3}),
	value("nested groups keep their shape", func() tasks.Signature[[][]int] {
		return tasks.Group(tasks.Each([]int{42, 42}, ID))
	}, [][]int{{42, 42}}),
	value("empty group", func() tasks.Signature[[]int] { return tasks.Group[int]() }, []int{}),
	fails("group with a failure", func() tasks.Signature[[]int] {
		return tasks.Group(Add.S(AB{1, 2}), Fail.S(1))
	}, "E1"),
	value("group of one", func() tasks.Signature[[]int] { return tasks.Group(ID.S(1)) }, []int{1}),
	value("group in the middle", func() tasks.Signature[string] {
		x := ID.S(42)
		return tasks.Chord(tasks.Group(tasks.Chain(x, ID), tasks.Chain(x, ID)), Only)
	}, "[42 42]"),
	value("group at the end", func() tasks.Signature[[]int] {
		x := ID.S(42)
		return tasks.Group(tasks.Chain(x, ID), tasks.Chain(x, ID))
	}, []int{42, 42}),
	value("group after group", func() tasks.Signature[int] {
		x := ID.S(1)
		g := tasks.Group(tasks.Chain(x, Inc), tasks.Chain(x, Inc))
		return tasks.Chord(tasks.Group(tasks.Chord(g, Sum), tasks.Chord(g, Sum)), Sum)
	}, 8),
	value("group to group to task", func() tasks.Signature[string] {
		g := tasks.Group(ID.S(1), ID.S(2))
		return tasks.Chord(tasks.Group(tasks.Chord(g, Sum), tasks.Chord(g, Sum)), Only)
	}, "[3 3]"),
	value("chunks", func() tasks.Signature[string] {
		return tasks.Chain(tasks.Each(slices.Collect(slices.Chunk(ints(5), 2)), DoubleAll), Show[[][]int]())
	}, "[[0,2],[4,6],[8]]"),
	value("lone group", func() tasks.Signature[[]int] { return tasks.Group(ID.S(42), ID.S(42)) }, []int{42, 42}),
	value("a sibling does not inherit the tail", func() tasks.Signature[[]int] {
		x := Add.S(AB{5, 6})
		return tasks.Group(plus(plus(x, 1), 2), plus(x, 3))
	}, []int{14, 14}),
	value("chain of groups and sums", func() tasks.Signature[int] { return sums(plus(sums(Add.S(AB{1, 0})), 1)) }, 12),
	value("empty groups are empty lists", func() tasks.Signature[[]int] {
		return tasks.After(tasks.After(tasks.Each([]int{1, 2}, ID), tasks.Group[int]()), tasks.Group[int]())
	}, []int{}),
	value("group to group to task, as lists", func() tasks.Signature[string] {
		g := tasks.Group(ID.S(1), ID.S(2))
		with := func(word string) tasks.Signature[tasks.Pair[[]int, string]] { return tasks.Join(g, Say.S(word)) }
		return tasks.Chain(tasks.Group(with("a"), with("b")), Show[[]tasks.Pair[[]int, string]]())
	}, `[{"first":[1,2],"second":"a"},{"first":[1,2],"second":"b"}]`),
	value("group as the only member", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(tasks.Each([]int{42, 42}, ID)), Sums)
	}, 84),
	value("groups of one, four deep", func() tasks.Signature[string] {
		a := tasks.Group(plus(ID.S(3), 1))
		b := tasks.Group(tasks.Join(a, ID.S(4)))
		c := tasks.Group(tasks.Join(b, ID.S(5)))
		return tasks.Chain(tasks.Group(tasks.Join(c, ID.S(6))), tasks.New[[]tasks.Pair[[]tasks.Pair[[]tasks.Pair[[]int, int], int], int], string]("t.show"))
	}, `[{"first":[{"first":[{"first":[4],"second":4}],"second":5}],"second":6}]`),
	value("group of chains, then a group of sums", func() tasks.Signature[[]int] {
		h := tasks.Group(plus(Add.S(AB{1, 2}), 3), plus(Add.S(AB{4, 5}), 6), ID.S(21))
		return tasks.Group(tasks.Chord(h, Sum), tasks.Chord(h, Sum))
	}, []int{42, 42}),
	value("groups in a group", func() tasks.Signature[[][]int] {
		return tasks.Group(tasks.Each([]int{1, 2}, ID), tasks.Group[int](), tasks.Group(tasks.Chord(tasks.Each([]int{3, 4}, ID), Sum)))
	}, [][]int{{1, 2}, {}, {7}}),
}

func TestMembersOfGroups(t *testing.T) {
	t.Parallel()
	runStories(t, groupStories)
}

// groupStories check more than one value.
var groupStories = []story{
	{"dependency of every member", func(t *testing.T, w *world) {
		first, second := ID.S(1), ID.S(2)
		run := sent(t, w, tasks.After(tasks.After(first, second), tasks.Each(ints(5), ID)))
		ns := nodes(t, w, run.ID())
		if len(ns) < 7 || len(ns[0].Needs) != 0 || !slices.Equal(ns[1].Needs, []string{ns[0].ID}) {
			t.Fatalf("got nodes %+v, want first, second, then the members", ns)
		}
		for _, n := range ns[2:7] {
			if !slices.Equal(n.Needs, []string{ns[1].ID}) {
				t.Errorf("got member %+v, want it after node %s", n, ns[1].ID)
			}
		}
		ended(t, w, run.ID())
	}},
	{"countdowns of members", func(t *testing.T, w *world) {
		var ms []tasks.Signature[int]
		for i := range 10 {
			ms = append(ms, ID.S(i, tasks.In(time.Duration(i+1)*time.Hour)))
		}
		began := time.Now()
		run := sent(t, w, tasks.Group(ms...))
		due, err := w.client.Due(t.Context(), 20)
		if err != nil || len(due) != 10 {
			t.Fatalf("got due %+v, %v, want 10", due, err)
		}
		for i, d := range due {
			if off := d.Due.Sub(began) - time.Duration(i+1)*time.Hour; d.Node != strconv.Itoa(i) || off.Abs() > time.Minute {
				t.Errorf("got member %s due in %v, want member %d in %d hours", d.Node, d.Due.Sub(began), i, i+1)
			}
		}
		if err := run.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
	}},
	{"chain of groups, each task once", func(t *testing.T, w *world) {
		mark := func(n int) tasks.Signature[int] { return Echo.S(Mark{"once", n}) }
		var s tasks.Signature[[]int]
		n := 0
		for i, size := range []int{3, 3, 1, 1, 2, 4} {
			var ms []tasks.Signature[int]
			for range size {
				n++
				ms = append(ms, mark(n))
			}
			if i == 0 {
				s = tasks.Group(ms...)
			} else {
				s = tasks.After(s, tasks.Group(ms...))
			}
		}
		if _, err := send(t, w, tasks.After(s, tasks.Group(Echo.S(Mark{"done", 1})))); err != nil {
			t.Fatal(err)
		}
		ran := w.noted("once")
		slices.Sort(ran)
		if !slices.Equal(ran, ints(15)[1:]) || len(w.noted("done")) != 1 {
			t.Fatalf("got ran %v, done %v, want 1 to 14, done once", ran, w.noted("done"))
		}
	}},
	{"stored size grows with the nodes", func(t *testing.T, w *world) {
		var nest func(depth int) tasks.Signature[int]
		nest = func(depth int) tasks.Signature[int] {
			if depth == 0 {
				return ID.S(1)
			}
			var ms []tasks.Signature[int]
			for range 8 {
				ms = append(ms, nest(depth-1))
			}
			return tasks.Chord(tasks.Group(ms...), Sum)
		}
		perNode := func(depth int) float64 {
			run, err := nest(depth).Send(t.Context(), w.client, tasks.In(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			all, err := w.client.Redis().HGetAll(t.Context(), flowKey(t, w.client.Redis(), run.ID())).Result()
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for k, v := range all {
				size += len(k) + len(v)
			}
			n := len(nodes(t, w, run.ID()))
			if err := run.Revoke(t.Context()); err != nil {
				t.Fatal(err)
			}
			return float64(size) / float64(n)
		}
		if flat, deep := perNode(1), perNode(3); deep > 1.5*flat {
			t.Fatalf("got %.0f bytes for each node one deep and %.0f three deep, want at most half more", flat, deep)
		}
	}},
	{"After waits for its dependency", func(t *testing.T, w *world) {
		s := tasks.After(tasks.Each([]AB{{1, 30}, {2, 10}}, Slow), tasks.Group(Echo.S(Mark{"slow", 3}), Echo.S(Mark{"slow", 3})))
		_, err := send(t, w, s)
		if order := w.noted("slow"); err != nil || len(order) != 4 || !slices.Equal(order[2:], []int{3, 3}) {
			t.Fatalf("got %v, order %v, want 3 and 3 last", err, order)
		}
	}},
	{"fail fast in a map, settled", func(t *testing.T, w *world) {
		got, err := send(t, w, tasks.Chord(tasks.Settle(tasks.Map(Range.S(20), Fail, tasks.FailFast(), tasks.AtMost(1))), Settled))
		if err != nil || !strings.HasPrefix(got, "E0") || !strings.HasSuffix(got, "revoked") {
			t.Fatalf("got %q, %v, want E0 … revoked", got, err)
		}
	}},
	{"countdown of a chord delays all of it", func(t *testing.T, w *world) {
		began := time.Now()
		got, err := send(t, w, tasks.Chord(tasks.Each([]int{1, 2}, Note), Sum), tasks.In(300*time.Millisecond))
		if d := time.Since(began); err != nil || got != 3 || d < 300*time.Millisecond {
			t.Fatalf("got %v, %v after %v, want 3 after 300ms", got, err, d)
		}
	}},
	{"eta of a step, to the millisecond", func(t *testing.T, w *world) {
		var late []int
		for i := range 10 { // a busy machine may be late now and then, but never early
			at := time.Now().Add(200 * time.Millisecond).Truncate(time.Millisecond)
			_, err := send(t, w, tasks.Chain(ID.S(1), tasks.New[int, int]("t.when"), tasks.At(at)))
			ran := w.noted("when")
			if err != nil || len(ran) != i+1 {
				t.Fatalf("got %v, ran %v, want %d runs", err, ran, i+1)
			}
			late = append(late, ran[i]-int(at.UnixMilli()))
			if late[i] < 0 {
				t.Fatalf("got a run %d ms before its time, want none", -late[i])
			}
			if late[i] <= 250 {
				return
			}
		}
		t.Fatalf("got runs %v ms after their time, want one of at most 250", late)
	}},
	{"AtMost bounds how many members run at once", func(t *testing.T, w *world) {
		got, err := send(t, w, tasks.Chord(tasks.Map(Range.S(20), tasks.New[int, int]("t.count"), tasks.AtMost(3)), Sum))
		most := 0
		for _, n := range w.noted("count") {
			most = max(most, n)
		}
		if err != nil || got != 190 || most > 3 || most < 2 { // on a busy machine two at once are enough
			t.Fatalf("got %v, %v, %d at once, want 190, 2 or 3 at once", got, err, most)
		}
	}},
}
