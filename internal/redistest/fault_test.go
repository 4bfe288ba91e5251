package redistest

import (
	"fmt"
	"sync/atomic"
	"testing"
)

// It is an error if most faults of a kind do not occur.
func TestMostHit(t *testing.T) {
	t.Parallel()
	const calls = 4
	for name, c := range map[string]struct {
		ns   []int // numbers of the failing calls, of 4
		want string
	}{
		"all":            {[]int{1, 2, 3, 4}, "<nil>"},
		"half":           {[]int{1, 4, 5, 9}, "<nil>"},
		"less than half": {[]int{1, 5, 6, 7}, "refused: 1 faults occurred and 3 did not: the scenario makes fewer calls with a fault than without"},
		"none":           {[]int{7}, "refused: 0 faults occurred and 1 did not: the scenario makes fewer calls with a fault than without"},
	} {
		faults := []*Fault{NewFault(ReplyLost, 3), NewFault(Refused, 1)} // another kind, and a fault without calls
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

// The first run of a scenario may make more calls, because it loads scripts. Faults are chosen among the calls of
// later runs.
func TestEachFaultUsesCallsOfLaterRuns(t *testing.T) {
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
