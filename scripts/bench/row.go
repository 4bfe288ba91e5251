package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// What holds for a row unless it says otherwise.
const (
	defaultRounds = 5               // how often it is measured
	defaultLimit  = 5 * time.Minute // how long a round of it may take
)

// measureFunc takes one round and returns its value.
type measureFunc = func(ctx context.Context, l *lab) (float64, error)

// row is one thing that is measured: what it is called, how one round of it is taken, and what is good
// enough. A row that needs more than one value from one costly run makes several rows over one
// sync.OnceValues.
type row struct {
	name string // "area.what_of_what", e.g. "canvas.chain_50": -only picks by its prefix
	unit string // "ms", "items/s", "bytes", …

	rounds int // how many rounds the median is taken over; defaults to 5

	// measure takes one round of ours and returns its value in unit. Before each round Redis is empty.
	measure measureFunc

	// yardstick takes one round of what ours is compared with, in the same unit, in turns with measure.
	// With nil the bar is held against the value itself. An ideal that is known beforehand is a function
	// that returns it.
	yardstick measureFunc

	bar bar

	limit time.Duration // how long a round may take. Defaults to 5 minutes.
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

// errStuck says that a round goes on although its time is over: what it does would disturb the others.
var errStuck = errors.New("it does not end")

// grace is how long a round that was told to end may take to do so.
const grace = 30 * time.Second

// round empties Redis and takes one value, in its time.
func (r *row) round(ctx context.Context, l *lab, f measureFunc) (float64, error) {
	if err := l.empty(ctx); err != nil {
		return 0, err
	}
	return bounded(ctx, cmp.Or(r.limit, defaultLimit), grace, func(ctx context.Context) (float64, error) { return f(ctx, l) })
}

// bounded calls f, which should end soon after ctx does, and waits for it no longer than limit and grace.
func bounded(ctx context.Context, limit, grace time.Duration, f func(context.Context) (float64, error)) (float64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("a round takes longer than %v", limit))
	defer cancel()
	var v float64
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		v, err = f(ctx)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done:
		case <-time.After(grace):
			return 0, fmt.Errorf("%w: %w", context.Cause(ctx), errStuck)
		}
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return v, err
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
