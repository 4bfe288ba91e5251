package tasks_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
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

// canvasRows are the values and failures of compositions that package canvas does not draw.
var canvasRows = []row{
	value("group to group to task, as lists", func() tasks.Signature[string] {
		g := tasks.Group(ID.S(1), ID.S(2))
		with := func(word string) tasks.Signature[tasks.Pair[[]int, string]] { return tasks.Join(g, Say.S(word)) }
		return tasks.Chain(tasks.Group(with("a"), with("b")), Show[[]tasks.Pair[[]int, string]]())
	}, `[{"first":[1,2],"second":"a"},{"first":[1,2],"second":"b"}]`),
	value("groups in a group", func() tasks.Signature[[][]int] {
		return tasks.Group(tasks.Each([]int{1, 2}, ID), tasks.Group[int](), tasks.Group(tasks.Chord(tasks.Each([]int{3, 4}, ID), Sum)))
	}, [][]int{{1, 2}, {}, {7}}),
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
	value("map of nothing", func() tasks.Signature[[]int] { return tasks.Map(Range.S(0), Double) }, []int{}),
	value("settled list of one task", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Settle(Range.S(3)), Settled)
	}, "0 1 2"),
	fails("empty plan", func() tasks.Signature[int] { return BadPlan.S(1) }, "zero Signature"),
	value("replaced body", func() tasks.Signature[[]int] {
		return tasks.Chord(tasks.Group(ID.S(41)), ToAll)
	}, []int{42}),
	value("replaced by groups, in order", func() tasks.Signature[[][]int] {
		return tasks.Each(slices.Repeat([][]int{{2, 1}}, 20), ToAll)
	}, slices.Repeat([][]int{{3, 2}}, 20)),
	value("plan inside a rescue", func() tasks.Signature[int] { return Fail.S(1).Rescue(InsteadPlan) }, 8),
	fails("value of a member that does not marshal", func() tasks.Signature[string] {
		return tasks.Chain(tasks.Group(Infinite.S(1), Infinite.S(2)), Show[[]float64]())
	}, "does not marshal"),
	fails("settled map over a result that is not a list", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Settle(tasks.Map(tasks.New[int, []int]("t.id").S(5), Inc)), Settled)
	}, "a map needs a list"),
	value("a constant after", func() tasks.Signature[int] { return tasks.After(ID.S(3), tasks.Value(9)) }, 9),
	value("a constant that is rescued", func() tasks.Signature[int] { return tasks.Value(3).Rescue(Instead) }, 3),
	value("a body without the element", func() tasks.Signature[[]int] {
		return tasks.MapFunc(Range.S(3), func(tasks.Signature[int]) tasks.Signature[int] { return ID.S(2) })
	}, []int{2, 2, 2}),
	value("a body that is the element", func() tasks.Signature[[]int] {
		return tasks.MapFunc(Range.S(3), func(n tasks.Signature[int]) tasks.Signature[int] { return n })
	}, []int{0, 1, 2}),
	value("bound in each", func() tasks.Signature[[]int] { return tasks.Each([]int{1, 2}, tasks.Bind(Plus, 5)) }, []int{6, 7}),
	value("outcome of a list", tried(func() tasks.Signature[[]int] { return tasks.Group(ID.S(1), ID.S(2)) }), "[1 2]"),
	value("outcome of a failed list", tried(func() tasks.Signature[[]int] { return tasks.Group(ID.S(1), Fail.S(2)) }), "t.fail: E2"),
	value("outcome of an empty list", tried(func() tasks.Signature[[]int] { return tasks.Group[int]() }), "[]"),
	value("outcome of a map", tried(func() tasks.Signature[[]int] { return tasks.Map(Range.S(2), Inc) }), "[1 2]"),
	value("outcome of a failed map", tried(func() tasks.Signature[[]int] { return tasks.Map(Range.S(1), Fail) }), "t.fail: E0"),
}

// tried returns the signature of a task that shows the outcome of a list.
func tried(list func() tasks.Signature[[]int]) func() tasks.Signature[string] {
	return func() tasks.Signature[string] { return tasks.Chain(tasks.Try(list()), TriedAll) }
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
			all := testutil.Must(w.client.Redis().HGetAll(t.Context(), flowKey(t, w.client.Redis(), run.ID())).Result())(t)
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
			Send(context.Context, *tasks.Client, ...tasks.SendOption) (*tasks.Run[int], error)
		}) string {
			run := testutil.Must(s.Send(t.Context(), w.client, tasks.Queue("Q"), tasks.In(time.Hour)))(t)
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
	{"unregistered task fails in the end", func(t *testing.T, w *world) {
		runWorker(t, w.client, tasks.NewMux(), tasks.WorkerConfig{Queues: map[string]int{"unserved": 1}, HandlerWait: time.Second})
		_, err := send(t, w, tasks.New[int, int]("t.unserved", tasks.Queue("unserved")).S(1))
		if f := wantFailure(t, err, "has a handler for t.unserved"); f.Code != tasktype.CodeUnregistered {
			t.Fatalf("got %+v, want code %s", f, tasktype.CodeUnregistered)
		}
	}},
	{"errback of a group gets the member that failed", func(t *testing.T, w *world) {
		_, err := send(t, w, tasks.OnError(tasks.Group(ID.S(1), Fail.S(7, tasks.MaxRetry(2), tasks.ConstantBackoff(time.Millisecond))), Err))
		wantFailure(t, err, "E7")
		if fs := w.failures(); len(fs) != 1 || fs[0].Node != "1" || fs[0].Task != "t.fail" || fs[0].Attempts != 3 {
			t.Fatalf("errback: got %+v, want one failure of node 1 after 3 attempts", fs)
		}
	}},
	{"errback of a chain gets the step that failed", func(t *testing.T, w *world) {
		for at := range 3 {
			s := ID.S(1)
			for i := range 5 {
				step := Inc
				if i == at {
					step = Fail
				}
				s = tasks.Chain(s, step)
			}
			_, err := send(t, w, tasks.OnError(s, Err))
			wantFailure(t, err, "E")
			if fs := w.failures(); len(fs) != at+1 || fs[at].Node != strconv.Itoa(at+1) {
				t.Fatalf("errback: got %+v, want %d failures, the last of node %d", fs, at+1, at+1)
			}
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
			client := newClient(t, redistest.New(t))
			down, leaf := tasks.New[int, int]("deep.down"), tasks.New[int, int]("deep.leaf")
			mux := tasks.NewMux()
			tasks.Handle(mux, leaf, func(context.Context, int) (int, error) { return c.depth, nil })
			tasks.HandlePlan(mux, down, func(_ context.Context, n int) (tasks.Signature[int], error) {
				if n == 0 {
					return leaf.S(0), nil
				}
				return down.S(n - 1), nil
			})
			runWorker(t, client, mux, tasks.WorkerConfig{})
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

// The other parts of a join with FailFast are revoked when one fails, and with AtMost(1) they run one after another.
func TestOptionsOfAJoin(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		name := rand.Text()
		r := sent(t, w, tasks.Join(Hold.S(name), Fail.S(4)).With(tasks.FailFast()))
		testutil.Ok(t, r.WaitAll(t.Context()))
		nodes, err := r.Nodes(t.Context())
		if err != nil || nodes[0].Status != tasktype.Revoked {
			t.Errorf("got nodes %+v, %v, want the first REVOKED", nodes, err)
		}
		got, err := send(t, w, tasks.Chain(tasks.Join(ID.S(4), ID.S(6)).With(tasks.AtMost(1)), Plus))
		if err != nil || got != 10 {
			t.Errorf("got %v, %v, want 10", got, err)
		}
	})
}

// Send returns an error with the remedy for an impossible composition.
func TestImpossibleCompositionIsAnErrorOfSend(t *testing.T) {
	t.Parallel()
	type loop struct{ Next *loop }
	round := &loop{}
	round.Next = round
	inWorlds(t, func(t *testing.T, w *world) {
		outer := ID.S(1)
		var leaked tasks.Signature[int]
		_ = tasks.MapFunc(Range.S(1), func(n tasks.Signature[int]) tasks.Signature[int] { leaked = n; return n })
		sumOf := func(s tasks.Signature[[]int]) tasks.Signature[int] { return tasks.Chord(s, Sum) }
		for want, s := range map[string]tasks.Signature[int]{
			"NaN":                   tasks.Chain(tasks.Value(math.NaN()), tasks.New[float64, int]("t.nan")),
			"encountered a cycle":   tasks.Chain(tasks.Value(round), tasks.New[*loop, int]("t.loop")),
			"panic: in MarshalJSON": tasks.New[panicking, int]("t.panicking").S(panicking{}),
			"second half":           tasks.Bind(tasks.New[tasks.Pair[int, float64], int]("t.nan"), math.Inf(1)).S(1),
			"Join it with the input of the map": sumOf(tasks.After(outer, tasks.MapFunc(Range.S(1), func(n tasks.Signature[int]) tasks.Signature[int] {
				return tasks.Chain(tasks.Join(n, outer), Plus)
			}))),
			"outside of its function": tasks.Chain(leaked, Inc),
			"Join it with the input of the inner map": sumOf(tasks.MapFunc(Range.S(1), func(n tasks.Signature[int]) tasks.Signature[int] {
				return sumOf(tasks.MapFunc(Range.S(1), func(tasks.Signature[int]) tasks.Signature[int] { return tasks.Chain(n, Inc) }))
			})),
			"zero Signature": sumOf(tasks.MapFunc(Range.S(1), func(tasks.Signature[int]) tasks.Signature[int] { return tasks.Signature[int]{} })),
			"HardTimeout(1s) is below tasks.Timeout(1m0s)": ID.S(1, tasks.HardTimeout(time.Second), tasks.Timeout(time.Minute)),
			"task t.id: option tasks.HardTimeout(1s)":      tasks.New[int, int]("t.id", tasks.Timeout(time.Minute)).S(1, tasks.HardTimeout(time.Second)),
			"In and tasks.At":                  ID.S(1, tasks.In(time.Second), tasks.At(time.Unix(1, 0))),
			"At on one task":                   ID.S(1, tasks.At(time.Unix(1, 0)), tasks.In(0)),
			"are for a group, a map or a join": tasks.Chain(ID.S(1), Inc).With(tasks.AtMost(2)),
			"a\\nb\" has a control character":  tasks.New[int, int]("a\nb").S(1),
			"does not marshal to JSON":         tasks.Chord(tasks.Each([]func(){nil}, tasks.New[func(), int]("t.call")), Sum),
			"not UTF-8":                        tasks.New[int, int]("a\xff").S(1),
			"has 101 bytes":                    tasks.New[int, int](strings.Repeat("a", 101)).S(1),
			"Alias: a task without a name":     tasks.New[int, int]("t.alias", tasks.Alias("")).S(1),
			"more than 16777216":               tasks.Chain(tasks.Value(strings.Repeat("x", 17<<20)), tasks.New[string, int]("t.large")),
		} {
			if err := refusal(t, w, s); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %.200v, want an error with %q", err, want)
			}
		}
	})
}

type panicking struct{}

func (panicking) MarshalJSON() ([]byte, error) { panic("in MarshalJSON") }

// The first failure of a fail-fast group ends its other members, in whatever they are at.
func TestFirstFailureEndsAFailFastGroup(t *testing.T) {
	t.Parallel()
	held := tasks.New[int, int]("t.hold")
	fast := func(ss ...tasks.Signature[int]) tasks.Signature[[]int] {
		return tasks.Group(ss...).With(tasks.FailFast())
	}
	cases := []struct {
		name string
		s    func() tasks.Signature[[]int]
		why  string
	}{
		{"a map that runs", func() tasks.Signature[[]int] {
			return fast(Fail.S(1), tasks.Chord(tasks.Map(Range.S(3), held), Sum))
		}, "E1"},
		{"a plan that runs", func() tasks.Signature[[]int] { return fast(Fail.S(1), HoldPlan.S(2)) }, "E1"},
		{"a member that waits for a slot", func() tasks.Signature[[]int] {
			return tasks.Group(held.S(1), Fail.S(1), held.S(2), held.S(3)).With(tasks.AtMost(2), tasks.FailFast())
		}, "E1"},
	}
	inWorlds(t, func(t *testing.T, w *world) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				_, err := send(t, w, tasks.OnError(c.s(), Err))
				wantFailure(t, err, c.why)
				for _, f := range w.failures() {
					if f.Code == tasktype.CodeRevoked {
						t.Errorf("errback of a revoked task: got %+v, want none", f)
					}
				}
			})
		}
		t.Run("nodes that others need continue", func(t *testing.T) {
			x := Hold.S("shared")
			g := tasks.Settle(tasks.Group(Fail.S(1), tasks.Chain(x, Inc)).With(tasks.FailFast()))
			run := sent(t, w, tasks.Join(x, tasks.Chord(g, Settled)))
			testutil.Eventually(t, "the chain after it is revoked", func() bool {
				nodes, err := run.Nodes(t.Context())
				return err == nil && len(nodes) > 2 && strings.Contains(tree(t, w, run.ID()), "t.inc REVOKED")
			})
			w.open("shared")
			if got, err := run.Wait(limited(t)); err != nil || got.Second != "E1 revoked" {
				t.Fatalf("got %+v, %v, want E1 revoked second", got, err)
			}
			ended(t, w, run.ID())
		})
	})
}

// One signature used in several places of a send is one run, whatever options are put around it.
func TestUsedTwiceRunsOnce(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		x, y := Echo.S(Mark{"x", 5}), Echo.S(Mark{"y", 5})
		for key, g := range map[string]tasks.Signature[[]int]{
			"x": tasks.Group(x, tasks.After(ID.S(1), x), tasks.After(x, tasks.Chain(x, Inc))),
			"y": tasks.Group(y, y, tasks.Value(6)).With(tasks.Priority(2)),
		} {
			got, err := send(t, w, tasks.Chord(g, Sum), tasks.MaxRetry(1), tasks.Priority(1))
			if ran := w.noted(key); err != nil || got != 16 || len(ran) != 1 {
				t.Fatalf("got %v, %v, want 16; %s ran %d times", got, err, key, len(ran))
			}
		}
	})
}

// A revoked node stays revoked, even if it becomes ready later, and keeps no place of its group.
func TestRevokedNodeIsNotRevived(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		ms := []tasks.Signature[int]{Hold.S("gate"), tasks.Chain(ID.S(1), Inc)}
		for i := range 3 {
			ms = append(ms, Echo.S(Mark{"ran", i}, tasks.In(20*time.Millisecond)))
		}
		run := sent(t, w, tasks.Settle(tasks.Group(append(ms, tasks.Chain(ID.S(3), Inc))...).With(tasks.AtMost(1))))
		revoked := map[string]bool{}
		for _, n := range nodes(t, w, run.ID()) {
			if (n.Task == "t.echo" || n.Task == "t.id") && !revoked[n.Task] {
				revoked[n.Task] = true
				testutil.Ok(t, run.RevokeNode(t.Context(), n.ID))
			}
		}
		w.open("gate")
		out, err := run.Wait(limited(t))
		if err != nil || len(out) != 6 || out[1].Err == nil || out[2].Err == nil || out[3].Value != 1 || out[4].Value != 2 || out[5].Value != 4 {
			t.Fatalf("got %+v, %v, want two failures, 1, 2 and 4 from the second on", out, err)
		}
		ended(t, w, run.ID())
		if ran := w.noted("ran"); !slices.Equal(ran, []int{1, 2}) {
			t.Fatalf("ran %v, want 1 and 2", ran)
		}
	})
}

// The second part of After cannot rescue a node that After waits for.
func TestAfterRefusesToRescueWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	x := ID.S(1)
	_, err := tasks.After(x, x.Rescue(Instead)).Send(t.Context(), tasks.NewClient(redistest.Mini(t)))
	if err == nil || !strings.Contains(err.Error(), "t.instead") || !strings.Contains(err.Error(), "move Rescue into the first part") {
		t.Errorf("got %v, want an error that names t.instead and the remedy", err)
	}
}
