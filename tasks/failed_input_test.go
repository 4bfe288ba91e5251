package tasks_test

import (
	"context"
	"errors"
	"testing"

	"muster/tasks"
)

// The handler of a failure gets the input of the task that failed, wherever it came from.
func TestHandlerOfAFailureGetsTheInput(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		five := tasks.Bind(FailPair, 5)
		for name, c := range map[string]struct {
			s    tasks.Signature[int]
			want int
		}{
			"a literal":           {Fail.S(7).Rescue(InputOf), 7},
			"of an earlier step":  {tasks.Chain(tasks.Chain(ID.S(3), Fail), Inc).Rescue(InputOf), 3},
			"of a map":            {tasks.Chord(tasks.Map(tasks.Value([]int{6}), Fail), Sum).Rescue(InputOf), 6},
			"of a plan":           {FailTo.S(8).Rescue(InputOf), 8},
			"after some attempts": {Flaky.S(AB{9, 2}, tasks.MaxRetry(1)).Rescue(InputOfAB), 9},
			"with a bound half":   {five.S(2).Rescue(InputOfPair), 25},
		} {
			if got, err := send(t, w, c.s); err != nil || got != c.want {
				t.Errorf("%s: got %v, %v, want %d", name, got, err, c.want)
			}
		}
		_, err := send(t, w, Fail.S(7))
		f := wantFailure(t, err, "E7")
		if _, err := tasks.FailedInput[int](*f); err == nil {
			t.Error("got an input of the failure of a Wait, want an error")
		}
	})
}

// The failure of a task whose input does not decode is passed on, with that input.
func TestHandlerOfAFailureGetsAnInputThatDoesNotDecode(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		misnamed := tasks.New[string, int]("t.inc")
		text := tasks.New[tasks.Failure, int]("t.inputlen")
		wantValue(t, sent(t, w, misnamed.S("seven").Rescue(text)), len("seven"))
	})
}

var (
	// FailPair fails.
	FailPair    = tasks.New[tasks.Pair[int, int], int]("t.failpair")
	InputOf     = tasks.New[tasks.Failure, int]("t.inputof")
	InputOfAB   = tasks.New[tasks.Failure, int]("t.inputofab")
	InputOfPair = tasks.New[tasks.Failure, int]("t.inputofpair")
)

func handleFailedInputs(m *tasks.Mux) {
	tasks.Handle(m, FailPair, func(context.Context, tasks.Pair[int, int]) (int, error) {
		return 0, errors.New("no")
	})
	tasks.Handle(m, InputOf, func(_ context.Context, f tasks.Failure) (int, error) { return tasks.FailedInput[int](f) })
	tasks.Handle(m, InputOfAB, func(_ context.Context, f tasks.Failure) (int, error) {
		in, err := tasks.FailedInput[AB](f)
		return in.A, err
	})
	tasks.Handle(m, InputOfPair, func(_ context.Context, f tasks.Failure) (int, error) {
		in, err := tasks.FailedInput[tasks.Pair[int, int]](f)
		return 10*in.First + in.Second, err
	})
	tasks.Handle(m, tasks.New[tasks.Failure, int]("t.inputlen"), func(_ context.Context, f tasks.Failure) (int, error) {
		in, err := tasks.FailedInput[string](f)
		return len(in), err
	})
}
