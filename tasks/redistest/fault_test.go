package redistest

import (
	"fmt"
	"sync/atomic"
	"testing"
)

// Faults of which most do not come show nothing, whatever the subtests say.
func TestFaultsThatDoNotComeAreAnError(t *testing.T) {
	t.Parallel()
	const calls = 4
	for name, c := range map[string]struct {
		ns   []int // the calls that go wrong, of 4
		want string
	}{
		"all come":                 {[]int{1, 2, 3, 4}, "<nil>"},
		"half of them":             {[]int{1, 4, 5, 9}, "<nil>"},
		"less than half":           {[]int{1, 5, 6}, "refused: 1 faults came and 2 did not: with a fault, the scenario makes fewer calls than without"},
		"none of those that ended": {[]int{7}, "refused: 0 faults came and 1 did not: with a fault, the scenario makes fewer calls than without"},
	} {
		faults := []*Fault{NewFault(Unheard, 3), NewFault(Refused, 1)} // the other kind, and one that -run left out
		for _, n := range c.ns {
			faults = append(faults, NewFault(Refused, n))
		}
		for i, f := range faults {
			if i == 1 {
				continue
			}
			f.Arm()
			for range calls {
				_ = f.call(func() string { return "a call" }, func() error { return nil })
			}
		}
		if got := fmt.Sprint(mostHit(faults)); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// The first run of a scenario may make more calls, since it loads scripts: faults are chosen among the calls of the others.
func TestEachFaultKnowsTheCallsOfLaterRuns(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	EachFault(t, map[Kind]int{Refused: 9}, func(t *testing.T, f *Fault) {
		rdb := f.Client(t, URL(t))
		calls := 3
		if runs.Add(1) == 1 {
			calls = 9
		}
		f.Arm()
		for range calls {
			_ = rdb.Ping(t.Context()).Err()
		}
	})
}
