package main

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// defaultRounds is how often a row is measured unless it says otherwise.
const defaultRounds = 5

// row is one thing that is measured: what it is called, how one round of it is taken, and what is good
// enough. A row that needs more than one value from one costly run makes several rows over one
// sync.OnceValues.
type row struct {
	name string // "area.what_of_what", e.g. "canvas.chain_50": -only picks by its prefix
	unit string // "ms", "items/s", "bytes", …

	rounds int // how many rounds the median is taken over; defaults to 5

	// measure takes one round of ours and returns its value in unit. Before each round Redis is empty.
	measure func(ctx context.Context, l *lab) (float64, error)

	// yardstick takes one round of what ours is compared with, in the same unit, in turns with measure.
	// With nil the bar is held against the value itself. An ideal that is known beforehand is a function
	// that returns it.
	yardstick func(ctx context.Context, l *lab) (float64, error)

	bar bar
}

// bar is what is good enough: a limit on the ratio of ours to the yardstick or, for a row without a
// yardstick, on the value.
type bar struct {
	limit float64
	over  bool // good means at least limit
}

func atMost(limit float64) bar  { return bar{limit: limit} }
func atLeast(limit float64) bar { return bar{limit: limit, over: true} }

// reported is the bar of a row that is only reported: every value passes.
var reported = bar{limit: math.Inf(1)}

func (b bar) met(v float64) bool {
	if math.IsNaN(v) {
		return false
	}
	if b.over {
		return v >= b.limit
	}
	return v <= b.limit
}

func (b bar) String() string {
	switch {
	case b == reported:
		return "reported"
	case b.over:
		return fmt.Sprintf(">= %g", b.limit)
	default:
		return fmt.Sprintf("<= %g", b.limit)
	}
}

// measure takes the rounds of a row, ours and the yardstick in turns, and judges their medians. The
// first round of each is thrown away where there is more than one: it pays for what only happens once.
func measure(ctx context.Context, l *lab, r row, rounds int) (result, error) {
	if rounds == 0 {
		rounds = r.rounds
	}
	if rounds == 0 {
		rounds = defaultRounds
	}
	warmUp := 0
	if rounds > 1 {
		warmUp = 1
	}

	var ours, theirs []float64
	for i := range warmUp + rounds {
		v, err := round(ctx, l, r.measure)
		if err != nil {
			return result{}, err
		}
		if i >= warmUp {
			ours = append(ours, v)
		}
		if r.yardstick == nil {
			continue
		}
		v, err = round(ctx, l, r.yardstick)
		if err != nil {
			return result{}, fmt.Errorf("yardstick: %w", err)
		}
		if i >= warmUp {
			theirs = append(theirs, v)
		}
	}

	res := result{Name: r.name, Value: median(ours), Unit: r.unit, Bar: r.bar.String()}
	judged := res.Value
	if r.yardstick != nil {
		y := median(theirs)
		if y == 0 {
			return result{}, fmt.Errorf("yardstick of %s is zero", r.name)
		}
		ratio := res.Value / y
		res.Yardstick, res.Ratio = &y, &ratio
		judged = ratio
	}
	res.OK = r.bar.met(judged)
	return res, nil
}

// round empties Redis and takes one value.
func round(ctx context.Context, l *lab, f func(context.Context, *lab) (float64, error)) (float64, error) {
	if err := l.empty(ctx); err != nil {
		return 0, err
	}
	return f(ctx, l)
}

func median(vs []float64) float64 {
	s := slices.Sorted(slices.Values(vs))
	n := len(s)
	if n == 0 {
		return math.NaN()
	}
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}
