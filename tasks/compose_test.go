package tasks_test

import (
	"crypto/rand"
	"math"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

func TestCompositionsYieldTheirValues(t *testing.T) {
	t.Parallel()
	five := tasks.Bind(Plus, 5)
	inWorlds(t, func(t *testing.T, w *world) {
		for name, c := range map[string]struct {
			s    tasks.Signature[int]
			want int
		}{
			"a constant after":           {tasks.After(ID.S(3), tasks.Value(9)), 9},
			"a constant that is rescued": {tasks.Value(3).Rescue(Instead), 3},
			"bound in each":              {tasks.Chord(tasks.Each([]int{1, 2}, five), Sum), 13},
			"a body without the element": {tasks.Chord(tasks.MapFunc(Range.S(3), func(tasks.Signature[int]) tasks.Signature[int] { return ID.S(2) }), Sum), 6},
			"a body that is the element": {tasks.Chord(tasks.MapFunc(Range.S(3), func(n tasks.Signature[int]) tasks.Signature[int] { return n }), Sum), 3},
		} {
			if got, err := send(t, w, c.s); err != nil || got != c.want {
				t.Errorf("%s: got %v, %v, want %d", name, got, err, c.want)
			}
		}
	})
}

// Try yields the value or the failure of a signature.
func TestTryYieldsTheOutcome(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		shared := Fail.S(3)
		for name, c := range map[string]struct {
			s    tasks.Signature[string]
			want string
		}{
			"a list":        {tasks.Chain(tasks.Try(tasks.Group(ID.S(1), ID.S(2))), TriedAll), "[1 2]"},
			"a failed list": {tasks.Chain(tasks.Try(tasks.Group(ID.S(1), Fail.S(2))), TriedAll), "t.fail: E2"},
			"an empty list": {tasks.Chain(tasks.Try(tasks.Group[int]()), TriedAll), "[]"},
			"a map":         {tasks.Chain(tasks.Try(tasks.Map(Range.S(2), Inc)), TriedAll), "[1 2]"},
			"a failed map":  {tasks.Chain(tasks.Try(tasks.Map(Range.S(1), Fail)), TriedAll), "t.fail: E0"},
			"within another": {tasks.Chain(tasks.Try(tasks.Chain(tasks.Join(tasks.Chain(tasks.Try(shared), Tried),
				ID.S(1)), FailPairOf)), Tried), "t.failpairof: t.fail: E3"},
		} {
			if got, err := send(t, w, c.s); err != nil || !strings.Contains(got, c.want) {
				t.Errorf("%s: got %q, %v, want %q", name, got, err, c.want)
			}
		}
		outcome, err := send(t, w, tasks.Try(Fail.S(6)))
		if err != nil || outcome.Err == nil || outcome.Err.Message != "E6" {
			t.Errorf("alone: got %+v, %v, want the failure E6", outcome, err)
		}
	})
}

func TestJoinOfThree(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		got, err := send(t, w, tasks.Chain(tasks.Join3(ID.S(1), Range.S(5), tasks.Chain(tasks.Join3(ID.S(2), Range.S(1), tasks.Value(3)), TripSum)), TripSum))
		if err != nil || got != 12 {
			t.Errorf("got %v, %v, want 12", got, err)
		}
		_, err = send(t, w, tasks.Join3(ID.S(1), Range.S(5), Fail.S(4)))
		wantFailure(t, err, "E4")
	})
}

// The other parts of a join with FailFast are revoked when one fails, and with AtMost(1) they run one after another.
func TestOptionsOfAJoin(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		name := rand.Text()
		r := sent(t, w, tasks.Join(Hold.S(name), Fail.S(4), tasks.FailFast()))
		testutil.Ok(t, r.WaitAll(t.Context()))
		nodes, err := w.client.Nodes(t.Context(), r.ID())
		if err != nil || nodes[0].Status != tasktype.Revoked {
			t.Errorf("got nodes %+v, %v, want the first REVOKED", nodes, err)
		}
		got, err := send(t, w, tasks.Chain(tasks.Join(ID.S(4), ID.S(6), tasks.AtMost(1)), Plus))
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
			"In and tasks.At":                 ID.S(1, tasks.In(time.Second), tasks.At(time.Unix(1, 0))),
			"At on one task":                  ID.S(1, tasks.At(time.Unix(1, 0)), tasks.In(0)),
			"a\\nb\" has a control character": tasks.New[int, int]("a\nb").S(1),
			"does not marshal to JSON":        tasks.Chord(tasks.Each([]func(){nil}, tasks.New[func(), int]("t.call")), Sum),
			"not UTF-8":                       tasks.New[int, int]("a\xff").S(1),
			"has 101 bytes":                   tasks.New[int, int](strings.Repeat("a", 101)).S(1),
			"Alias: a task without a name":    tasks.New[int, int]("t.alias", tasks.Alias("")).S(1),
			"without a name":                  ID.S(1, tasks.LinkError(tasks.Task[tasks.Failure, int]{})),
			"more than 16777216":              tasks.Chain(tasks.Value(strings.Repeat("x", 17<<20)), tasks.New[string, int]("t.large")),
		} {
			if err := refusal(t, w, s); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %.200v, want an error with %q", err, want)
			}
		}
	})
}

type panicking struct{}

func (panicking) MarshalJSON() ([]byte, error) { panic("in MarshalJSON") }

// LinkError runs on the failure of the task itself, but not on the failure of a dependency.
func TestLinkErrorRunsOnTheOwnFailureOnly(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		for name, c := range map[string]struct {
			s    tasks.Signature[int]
			want int
		}{
			"an attempt that fails": {Flaky.S(AB{1, 3}, tasks.LinkError(Err), tasks.MaxRetry(3), tasks.ConstantBackoff(0)), 0},
			"given twice":           {Fail.S(1, tasks.LinkError(Err), tasks.LinkError(Err)), 2},
			"a plan that fails":     {FailTo.S(1, tasks.LinkError(Err)), 1},
			"inside the body of a map": {tasks.Chord(tasks.MapFunc(Range.S(2), func(n tasks.Signature[int]) tasks.Signature[int] {
				return tasks.Chain(n, Fail.With(tasks.LinkError(Err)))
			}), Sum), 2},
			"a rescue that itself succeeded": {Fail.S(1).Rescue(Instead.With(tasks.LinkError(Err))), 0},
		} {
			before := len(w.failures())
			run := sent(t, w, c.s)
			testutil.Eventually(t, name+": it has ended", func() bool {
				p, err := run.Progress(t.Context())
				return err == nil && p.Ended
			})
			if got := len(w.failures()) - before; got != c.want {
				t.Errorf("%s: got %d calls, want %d", name, got, c.want)
			}
		}
	})
}
