package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// The defaults of a row.
const (
	defaultRounds = 5               // how often it is measured
	defaultLimit  = 5 * time.Minute // how long a round of it may take
)

// measureFunc measures one round. Redis is empty before.
type measureFunc = func(ctx context.Context, l *lab) (float64, error)

// row is one value that is measured.
type row struct {
	name string // "area.what_of_what", e.g. "canvas.chain_50": -only selects by its prefix
	unit string // "ms", "items/s", "bytes", …

	rounds int           // the median is taken of so many; defaults to 5
	limit  time.Duration // how long a round may take; defaults to 5 minutes

	measure   measureFunc // of ours, in unit
	yardstick measureFunc // of what ours is compared with, in unit; nil compares the value itself with bar
	bar       bar
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

// measure runs the rounds of a row, ours and the yardstick in turns, and compares their medians with the bar. With
// more than one round, a first round of each warms up and is not counted.
func measure(ctx context.Context, l *lab, r row, rounds int) (result, error) {
	rounds = cmp.Or(rounds, r.rounds, defaultRounds)
	warmUp := min(1, rounds-1)

	var ours, theirs []float64
	for i := range warmUp + rounds {
		v, err := r.round(ctx, l, r.measure)
		if err != nil {
			return result{}, err
		}
		if i >= warmUp {
			ours = append(ours, v)
		}
		if r.yardstick == nil {
			continue
		}
		v, err = r.round(ctx, l, r.yardstick)
		if err != nil {
			return result{}, fmt.Errorf("yardstick: %w", err)
		}
		if i >= warmUp {
			theirs = append(theirs, v)
		}
	}

	res := result{Name: r.name, Value: median(ours), Unit: r.unit, Bar: r.bar.String()}
	compared := res.Value
	if r.yardstick != nil {
		y := median(theirs)
		if y == 0 {
			return result{}, fmt.Errorf("yardstick of %s is zero", r.name)
		}
		ratio := res.Value / y
		res.Yardstick, res.Ratio = &y, &ratio
		compared = ratio
	}
	res.OK = r.bar.met(compared)
	return res, nil
}

// round empties Redis and measures once, in its time. Measure functions return soon after ctx ends.
func (r *row) round(ctx context.Context, l *lab, f measureFunc) (float64, error) {
	if err := l.empty(ctx); err != nil {
		return 0, err
	}
	limit := cmp.Or(r.limit, defaultLimit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("a round takes longer than %v", limit))
	defer cancel()
	v, err := f(ctx, l)
	if err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return v, err
}

// always is the yardstick of an ideal that is known beforehand.
func always(v float64) measureFunc {
	return func(context.Context, *lab) (float64, error) { return v, nil }
}

// shared makes measure functions of the values of one run, which is done once for all of them.
func shared[T any](run func(context.Context, *lab) (T, error)) func(value func(T) float64) measureFunc {
	var once sync.Once
	var v T
	var err error
	return func(value func(T) float64) measureFunc {
		return func(ctx context.Context, l *lab) (float64, error) {
			once.Do(func() { v, err = run(ctx, l) })
			return value(v), err
		}
	}
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
