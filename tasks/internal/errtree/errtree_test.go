package errtree_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"testing"

	"muster/tasks/internal/errtree"
)

// cycle wraps itself, and whatever else it is told to.
type cycle struct{ more []error }

func (c *cycle) Error() string   { return "cycle" }
func (c *cycle) Unwrap() []error { return append([]error{c, c}, c.more...) }

// endless wraps a new error each time.
type endless struct{ n int }

func (e endless) Error() string { return "endless" }
func (e endless) Unwrap() error { return endless{e.n + 1} }

func TestOutermostErrorsComeFirst(t *testing.T) {
	t.Parallel()
	a, b, c := errors.New("a"), errors.New("b"), errors.New("c")
	deep := fmt.Errorf("deep: %w", a)
	join := errors.Join(deep, b, c)
	if got, want := errtree.All(join), []error{join, deep, b, c, a}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := errtree.All(nil); len(got) != 0 {
		t.Errorf("nil: got %v, want nothing", got)
	}
}

func TestEndlessTreesAreReadInPart(t *testing.T) {
	t.Parallel()
	target := errors.New("target")
	wide := make([]error, 300_000)
	for i := range wide {
		wide[i] = &cycle{}
	}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"cycle":              {&cycle{}, false},
		"cycle beside it":    {errors.Join(&cycle{}, fmt.Errorf("below: %w", target)), true},
		"cycle around it":    {&cycle{[]error{target}}, true},
		"endless":            {endless{}, false},
		"endless beside it":  {errors.Join(endless{}, fmt.Errorf("below: %w", target)), true},
		"many, it is last":   {errors.Join(append(wide[:100_000:100_000], target)...), true},
		"more than are read": {errors.Join(append(wide, target)...), false},
	} {
		if got := errtree.Is(errtree.All(c.err), target); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestMethodIsDecides(t *testing.T) {
	t.Parallel()
	all := errtree.All(fmt.Errorf("fetch: %w", &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}))
	if !errtree.Is(all, os.ErrDeadlineExceeded) || errtree.Is(all, context.Canceled) {
		t.Errorf("got %v, %v, want true, false", errtree.Is(all, os.ErrDeadlineExceeded), errtree.Is(all, context.Canceled))
	}
	if all := errtree.All(fmt.Errorf("none: %w", saysSo{})); !errtree.Is(all, context.DeadlineExceeded) {
		t.Error("an error whose method Is says that it is the target: got false, want true")
	}
}

type saysSo struct{ _ []int } // an error that cannot be compared

func (saysSo) Error() string        { return "says so" }
func (saysSo) Is(target error) bool { return target == context.DeadlineExceeded }
