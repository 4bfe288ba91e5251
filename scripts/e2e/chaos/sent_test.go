//go:build e2e && unix

package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"muster/tasks"
)

// Flake is a number that flaky returns after some failures.
type Flake struct{ Value, Fails int }

// Seed is a workflow to grow later.
type Seed struct {
	Seed  uint64
	Depth int
}

// The tasks of random workflows.
var (
	num     = tasks.New[int, int]("chaos.num")
	inc     = tasks.New[int, int]("chaos.inc")
	sum     = tasks.New[[]int, int]("chaos.sum")
	upTo    = tasks.New[int, []int]("chaos.upto")
	both    = tasks.New[tasks.Pair[int, int], int]("chaos.both")
	tally   = tasks.New[[]tasks.Outcome[int], int]("chaos.tally")
	fail    = tasks.New[int, int]("chaos.fail", tasks.MaxRetry(0))
	flaky   = tasks.New[Flake, int]("chaos.flaky", tasks.MaxRetry(4), tasks.ConstantBackoff(30*time.Millisecond))
	instead = tasks.New[tasks.Failure, int]("chaos.instead")
	note    = tasks.New[int, int]("chaos.note")
	mourn   = tasks.New[tasks.Failure, int]("chaos.mourn")
	planned = tasks.New[Seed, int]("chaos.planned")
)

// Contributions of failures to sums.
const (
	perFailure = 1000
	inPlace    = -7
)

// list returns the result of upTo for n, a list whose length depends on n.
func list(n int) []int {
	out := make([]int, ((n%5)+5)%5)
	for i := range out {
		out[i] = n + i
	}
	return out
}

func total(ns []int) int {
	t := 0
	for _, n := range ns {
		t += n
	}
	return t
}

// grow returns a random successful workflow and its expected value. It is deterministic for a given r.
func grow(r *rand.Rand, depth int) (tasks.Signature[int], int) {
	n := r.IntN(50)
	if depth <= 0 {
		switch r.IntN(6) {
		case 0:
			return num.S(n, tasks.In(time.Duration(r.IntN(400))*time.Millisecond)), n
		case 1:
			return flaky.S(Flake{n, 1 + r.IntN(3)}), n
		}
		return num.S(n), n
	}
	switch r.IntN(12) {
	case 0: // chain
		s, v := grow(r, depth-1)
		return tasks.Chain(tasks.Chain(s, inc), inc), v + 2
	case 1, 2: // chord of anything
		ms, vs := growMany(r, depth, 2+r.IntN(3))
		return tasks.Chord(tasks.Group(ms...), sum), total(vs)
	case 3: // chord of one task with limited concurrency
		ns := list(4 + 5*n)
		return tasks.Chord(tasks.Each(ns, num, tasks.AtMost(2)), sum), total(ns)
	case 4: // map over the result of a task
		s, v := grow(r, depth-1)
		ns := list(v)
		return tasks.Chord(tasks.Map(tasks.Chain(s, upTo), inc), sum), total(ns) + len(ns)
	case 5: // join
		a, va := grow(r, depth-1)
		b, vb := grow(r, depth-1)
		return tasks.Chain(tasks.Join(a, b), both), va + vb
	case 6: // failures as values
		ms, vs := growMany(r, depth, 2)
		ms = append(ms, fail.S(n), tasks.Chain(fail.S(n), inc))
		return tasks.Chord(tasks.Settle(tasks.Group(ms...)), tally), total(vs) + 2*perFailure
	case 7: // rescue
		s, _ := grow(r, depth-1)
		return tasks.Chain(tasks.Chain(tasks.After(s, fail.S(n)), inc).Rescue(instead), inc), inPlace + 1
	case 8: // plan
		seed := Seed{r.Uint64() >> 12, depth - 1}
		_, v := seed.grow()
		return planned.S(seed), v
	case 9: // fail fast
		ms, _ := growMany(r, depth, 2)
		ms = append(ms, fail.S(n), num.S(n, tasks.In(200*time.Millisecond)))
		return tasks.Chord(tasks.Group(ms...).With(tasks.FailFast()), sum).Rescue(instead), inPlace
	case 10: // callbacks
		s, v := grow(r, depth-1)
		return tasks.OnError(tasks.OnSuccess(s, note), mourn), v
	default: // sequence
		a, _ := grow(r, depth-1)
		b, v := grow(r, depth-1)
		return tasks.After(a, b), v
	}
}

func growMany(r *rand.Rand, depth, n int) ([]tasks.Signature[int], []int) {
	ms, vs := make([]tasks.Signature[int], n), make([]int, n)
	for i := range n {
		ms[i], vs[i] = grow(r, depth-1)
	}
	return ms, vs
}

func (s Seed) grow() (tasks.Signature[int], int) {
	return grow(rand.New(rand.NewPCG(s.Seed, uint64(s.Depth))), s.Depth)
}

// wanted is a workflow with its expected result.
type wanted struct {
	sig   tasks.Signature[int]
	value int
	fails bool
}

// sent is a workflow that was sent.
type sent struct {
	wanted
	run *tasks.Run[int]
}

// check checks the value or the failure of a workflow.
func (s sent) check(t *testing.T, got int, err error) {
	t.Helper()
	var failure *tasks.Failure
	switch {
	case s.fails && (!errors.As(err, &failure) || failure.Message != errWanted.Error()):
		t.Errorf("workflow %s: got %d, %v, want error %q", s.run.ID(), got, err, errWanted)
	case !s.fails && (err != nil || got != s.value):
		t.Errorf("workflow %s: got %d, %v, want %d", s.run.ID(), got, err, s.value)
	}
}

// growRoot returns a random workflow; one in eight fails.
func growRoot(r *rand.Rand) wanted {
	s, v := grow(r, 2+r.IntN(2))
	if r.IntN(8) > 0 {
		return wanted{sig: s, value: v}
	}
	return wanted{sig: tasks.OnError(tasks.Chain(s, fail), mourn), fails: true}
}

var errWanted = errors.New("it must fail")

// handlers registers the tasks. It calls began with the input before each run.
func handlers(m *tasks.Mux, began func(ctx context.Context, in any)) {
	handle(m, began, num, func(_ context.Context, n int) (int, error) { return n, nil })
	handle(m, began, inc, func(_ context.Context, n int) (int, error) { return n + 1, nil })
	handle(m, began, sum, func(_ context.Context, ns []int) (int, error) { return total(ns), nil })
	handle(m, began, upTo, func(_ context.Context, n int) ([]int, error) { return list(n), nil })
	handle(m, began, both, func(_ context.Context, p tasks.Pair[int, int]) (int, error) { return p.First + p.Second, nil })
	handle(m, began, tally, func(_ context.Context, os []tasks.Outcome[int]) (int, error) {
		t := 0
		for _, o := range os {
			if o.Err != nil {
				o.Value = perFailure
			}
			t += o.Value
		}
		return t, nil
	})
	handle(m, began, fail, func(context.Context, int) (int, error) { return 0, errWanted })
	handle(m, began, flaky, func(ctx context.Context, f Flake) (int, error) {
		if tasks.InfoFrom(ctx).Attempt <= f.Fails {
			return 0, errWanted
		}
		return f.Value, nil
	})
	handle(m, began, instead, func(context.Context, tasks.Failure) (int, error) { return inPlace, nil })
	handle(m, began, note, func(_ context.Context, n int) (int, error) { return n, nil })
	handle(m, began, mourn, func(context.Context, tasks.Failure) (int, error) { return 0, nil })
	tasks.HandlePlan(m, planned, func(ctx context.Context, s Seed) (tasks.Signature[int], error) {
		began(ctx, s)
		sig, _ := s.grow()
		return sig, nil
	})
}

func handle[I, O any](m *tasks.Mux, began func(context.Context, any), t tasks.Task[I, O], h func(context.Context, I) (O, error)) {
	tasks.Handle(m, t, func(ctx context.Context, in I) (O, error) {
		began(ctx, in)
		return h(ctx, in)
	})
}
