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

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

// row is a case with one result, or a failure with one message.
type row struct {
	name string
	run  func(t *testing.T, w *world) (any, error)
	want any
	err  string
}

func value[O any](name string, s func() tasks.Signature[O], want O, opts ...tasks.SendOption) row {
	return row{name, func(t *testing.T, w *world) (any, error) { return send(t, w, s(), opts...) }, want, ""}
}

func fails[O any](name string, s func() tasks.Signature[O], message string, opts ...tasks.SendOption) row {
	return row{name, func(t *testing.T, w *world) (any, error) { return send(t, w, s(), opts...) }, nil, message}
}

// story is a case that checks more than one value.
type story struct {
	name string
	run  func(t *testing.T, w *world)
}

func wantFailure(t *testing.T, err error, message string) *tasks.Failure {
	t.Helper()
	var f *tasks.Failure
	if !errors.As(err, &f) || !strings.Contains(f.Message, message) {
		t.Fatalf("got error %v, want a failure with %q", err, message)
	}
	return f
}

// runRows runs rows in one world, on each Redis.
func runRows(t *testing.T, rows []row) {
	t.Helper()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		for _, c := range rows {
			t.Run(c.name, func(t *testing.T) {
				got, err := c.run(t, w)
				if c.err != "" {
					wantFailure(t, err, c.err)
					return
				}
				if err != nil || !reflect.DeepEqual(got, c.want) {
					t.Fatalf("got %v, %v, want %v", got, err, c.want)
				}
			})
		}
	})
}

// runStories runs each story in a separate world, on each Redis.
func runStories(t *testing.T, stories []story) {
	t.Helper()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		for _, s := range stories {
			t.Run(s.name, func(t *testing.T) {
				testutil.Ok(t, rdb.FlushDB(t.Context()).Err())
				s.run(t, newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.MaxResult = 1 << 18 }))
			})
		}
	})
}

// canvasRows are the values and failures of compositions that TestAnyCanvasAgreesWithItsReference does not draw.
var canvasRows = []row{
	value("large group", func() tasks.Signature[[]int] { return tasks.Each(ints(1000), ID) }, ints(1000)),
	value("nested groups keep their shape", func() tasks.Signature[[][]int] {
		return tasks.Group(tasks.Each([]int{42, 42}, ID))
	}, [][]int{{42, 42}}),
	value("empty group", func() tasks.Signature[[]int] { return tasks.Group[int]() }, []int{}),
	value("chunks", func() tasks.Signature[string] {
		return tasks.Chain(tasks.Each(slices.Collect(slices.Chunk(ints(5), 2)), DoubleAll), Show[[][]int]())
	}, "[[0,2],[4,6],[8]]"),
	value("group to group to task, as lists", func() tasks.Signature[string] {
		g := tasks.Group(ID.S(1), ID.S(2))
		with := func(word string) tasks.Signature[tasks.Pair[[]int, string]] { return tasks.Join(g, Say.S(word)) }
		return tasks.Chain(tasks.Group(with("a"), with("b")), Show[[]tasks.Pair[[]int, string]]())
	}, `[{"first":[1,2],"second":"a"},{"first":[1,2],"second":"b"}]`),
	value("groups in a group", func() tasks.Signature[[][]int] {
		return tasks.Group(tasks.Each([]int{1, 2}, ID), tasks.Group[int](), tasks.Group(tasks.Chord(tasks.Each([]int{3, 4}, ID), Sum)))
	}, [][]int{{1, 2}, {}, {7}}),
	value("chain of three", func() tasks.Signature[int] { return tasks.Chain3(Add.S(AB{4, 4}), Inc, Double) }, 18),
	value("chain of four", func() tasks.Signature[int] { return tasks.Chain4(Add.S(AB{4, 4}), Inc, Double, Inc) }, 19),
	value("chain of five", func() tasks.Signature[int] { return tasks.Chain5(Add.S(AB{4, 4}), Inc, Double, Inc, Double) }, 38),
	value("priority of a step", func() tasks.Signature[int] {
		return tasks.Chain(Prio.S(0, tasks.Priority(3)), Prio, tasks.Priority(5))
	}, 5),
	value("an option of the send is over the stored one", func() tasks.Signature[int] { return Prio.S(0, tasks.Priority(5)) }, 4, tasks.Priority(4)),
	value("an option that the send leaves out stays", func() tasks.Signature[int] { return Prio.S(0, tasks.Priority(5)) }, 5, tasks.MaxRetry(1)),
	value("With changes a copy", func() tasks.Signature[int] {
		s := tasks.Chord(tasks.Group(Prio.S(0)), Sum)
		_ = s.With(tasks.Priority(7), tasks.Queue("nowhere"))
		return s
	}, 0),
	value("chord of none", func() tasks.Signature[string] { return tasks.Chord(tasks.Group[int](), Only) }, "[]"),
	value("member that handles its soft time limit", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(ID.S(3), Fallback.S(9, tasks.Timeout(20*time.Millisecond))), Sum)
	}, 3),
	value("the successor of an empty group gets an empty list", func() tasks.Signature[string] {
		return tasks.Chord(tasks.After(ID.S(1), tasks.Group[int]()), Only)
	}, "[]"),
	value("chain, group and chord side by side", func() tasks.Signature[string] {
		chain := ID.S(42)
		for range 41 {
			chain = tasks.Chain(chain, ID)
		}
		g := tasks.Each([]int{42, 42, 42}, ID)
		return tasks.Chain(tasks.Join(tasks.Join(ID.S(42), chain), tasks.Join(g, tasks.Chord(g, Sum))),
			Show[tasks.Pair[tasks.Pair[int, int], tasks.Pair[[]int, int]]]())
	}, `{"first":{"first":42,"second":42},"second":{"first":[42,42,42],"second":126}}`),
	value("group in a header", func() tasks.Signature[string] {
		return tasks.Chain(tasks.Group(tasks.Chain(tasks.Group(tasks.Each(slices.Repeat([]int{1337}, 42), ID)), Show[[][]int]())), Show[[]string]())
	}, `["[[`+strings.Repeat("1337,", 41)+`1337]]"]`),
	value("map of nothing", func() tasks.Signature[[]int] { return tasks.Map(Range.S(0), Double) }, []int{}),
	value("map over plans", func() tasks.Signature[[][]int] {
		return tasks.Map(tasks.Map(Range.S(3), Range), ToAll)
	}, [][]int{{}, {1}, {1, 2}}),
	value("settled empty map", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Settle(tasks.Map(Range.S(0), Fail)), Settled)
	}, ""),
	value("settled list of one task", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Settle(Range.S(3)), Settled)
	}, "0 1 2"),
	fails("settled map over a failure", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Settle(tasks.Map(tasks.Chain(Fail.S(4), Range), Inc)), Settled)
	}, "E4"),
	fails("empty plan", func() tasks.Signature[int] { return BadPlan.S(1) }, "zero Signature"),
	value("replaced body", func() tasks.Signature[[]int] {
		return tasks.Chord(tasks.Group(ID.S(41)), ToAll)
	}, []int{42}),
	value("replaced by groups, in order", func() tasks.Signature[[][]int] {
		return tasks.Each(slices.Repeat([][]int{{2, 1}}, 20), ToAll)
	}, slices.Repeat([][]int{{3, 2}}, 20)),
	value("plan over each element of a map", func() tasks.Signature[[]int] {
		return tasks.Map(tasks.Each([]AB{{1, 1}, {2, 2}}, New2("t.ab")), Replace)
	}, []int{2, 4}),
	value("plan inside a rescue", func() tasks.Signature[int] { return Fail.S(1).Rescue(InsteadPlan) }, 8),
	fails("value of a member that does not marshal", func() tasks.Signature[string] {
		return tasks.Chain(tasks.Group(Infinite.S(1), Infinite.S(2)), Show[[]float64]())
	}, "does not marshal"),
	fails("rejected member", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(ID.S(1), Reject.S(2)), Sum)
	}, "rejected"),
	fails("panic", func() tasks.Signature[int] { return tasks.Chain(Panics.S(1), Inc) }, "panic: oh"),
	value("again uses no attempt", func() tasks.Signature[int] { return Polls.S(AB{0, 4}) }, 1),
	fails("hard time limit", func() tasks.Signature[int] { return Deaf.S(1) }, "hard time limit"),
	fails("wait inside a task", func() tasks.Signature[int] { return Waits.S("x") }, "wait inside a task"),
	fails("expired", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(ID.S(1), Late.S(2)), Sum)
	}, "expired"),
	fails("input that does not fit", func() tasks.Signature[int] {
		return tasks.Chain(tasks.New[string, int]("t.id").S("x"), Inc)
	}, "does not decode"),
	fails("settled map over a result that is not a list", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Settle(tasks.Map(tasks.New[int, []int]("t.id").S(5), Inc)), Settled)
	}, "a map needs a list"),
}

func TestCanvases(t *testing.T) {
	t.Parallel()
	runRows(t, canvasRows)
}

func TestCanvasStories(t *testing.T) {
	t.Parallel()
	runStories(t, canvasStories)
}

// canvasStories check more than one value.
var canvasStories = []story{
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
			run := sent(t, w, nest(depth), tasks.In(time.Hour))
			all, err := w.client.Redis().HGetAll(t.Context(), flowKey(t, w.client.Redis(), run.ID())).Result()
			testutil.Ok(t, err)
			size := 0
			for k, v := range all {
				size += len(k) + len(v)
			}
			n := len(nodes(t, w, run.ID()))
			testutil.Ok(t, run.Revoke(t.Context()))
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
	{"queue of a send", func(t *testing.T, w *world) {
		queues := func(s interface {
			Send(context.Context, *tasks.Client, ...tasks.SendOption) (*tasks.AsyncResult[int], error)
		}) string {
			run, err := s.Send(t.Context(), w.client, tasks.Queue("Q"), tasks.In(time.Hour))
			testutil.Ok(t, err)
			var out []string
			for _, n := range nodes(t, w, run.ID()) {
				if n.Queue != "" {
					out = append(out, n.Queue)
				}
			}
			testutil.Ok(t, run.Revoke(t.Context()))
			return strings.Join(out, " ")
		}
		if got := queues(tasks.Chain(tasks.Chain(ID.S(1), Inc), Inc)); got != "Q default default" {
			t.Errorf("chain: got queues %s, want Q default default", got)
		}
		if got := queues(tasks.Chord(tasks.Each(ints(3), ID), Sum)); got != "Q Q Q Q" {
			t.Errorf("chord and group: got queues %s, want Q Q Q Q", got)
		}
	}},
	{"order of plans in plans", func(t *testing.T, w *world) {
		if _, err := send(t, w, tasks.Chain(Nested.S("A"), Echo1)); err != nil {
			t.Fatal(err)
		}
		if log := w.noted("log"); !slices.Equal(log, []int{'a', 'b', 'c', 'C', 'B', 'A'}) {
			t.Fatalf("log %v", log)
		}
	}},
	{"unregistered task fails in the end", func(t *testing.T, w *world) {
		startImpatient(t, w)
		_, err := send(t, w, tasks.New[int, int]("t.unserved", tasks.Queue("unserved")).S(1))
		if f := wantFailure(t, err, "has a handler for t.unserved"); f.Code != tasktype.CodeUnregistered {
			t.Fatalf("got %+v, want code %s", f, tasktype.CodeUnregistered)
		}
	}},
	{"result over the cap", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.New[int, string]("t.big").S(1<<20))
		if f := wantFailure(t, err, "store it and return a key"); f.Code != tasktype.CodeResult {
			t.Fatalf("got %+v, want code %s", f, tasktype.CodeResult)
		}
	}},
}

// Plans that return plans end, hundreds deep, and with IDs of the maximum length.
func TestDeepPlansEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ depth, letters int }{{300, 1}, {100, 100}, {50, 24}} {
		t.Run(fmt.Sprint(c.depth, " deep with an id of ", c.letters), func(t *testing.T) {
			t.Parallel()
			client := tasks.NewClient(redistest.New(t))
			t.Cleanup(func() { _ = client.Close() })
			down, leaf := tasks.New[int, int]("deep.down"), tasks.New[int, int]("deep.leaf")
			mux := tasks.NewMux()
			tasks.Handle(mux, leaf, func(context.Context, int) (int, error) { return c.depth, nil })
			tasks.HandlePlan(mux, down, func(_ context.Context, n int) (tasks.Signature[int], error) {
				if n == 0 {
					return leaf.S(0), nil
				}
				return down.S(n - 1), nil
			})
			worker, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{})
			testutil.Ok(t, err)
			during(t, worker.Run)
			id := make([]byte, c.letters)
			for i := range id {
				id[i] = 'x'
			}
			run := started(t, client, down.S(c.depth-1), tasks.ID(string(id)))
			wantValue(t, run, c.depth)
			for p, err := range run.Watch(limited(t)) {
				if err != nil {
					t.Errorf("it does not end: %+v, %v", p, err)
				}
			}
		})
	}
}
