package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   []float64
		want float64
	}{
		{[]float64{3}, 3},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 3, 2}, 2.5},
	} {
		if got := median(c.in); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}

func TestBar(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bar  bar
		v    float64
		want bool
		text string
	}{
		{atMost(2), 2, true, "<= 2"},
		{atMost(2), 2.1, false, "<= 2"},
		{atLeast(0.5), 0.5, true, ">= 0.5"},
		{atLeast(0.5), 0.4, false, ">= 0.5"},
		{reported, 1e300, true, "reported"},
		{atLeast(0), median(nil), false, ">= 0"},
	} {
		if got := c.bar.met(c.v); got != c.want {
			t.Errorf("%v met(%v) = %v, want %v", c.bar, c.v, got, c.want)
		}
		if got := c.bar.String(); got != c.text {
			t.Errorf("String() = %q, want %q", got, c.text)
		}
	}
}

// Rounds of ours and the yardstick are in turns, Redis is empty before each, the first of each is not counted, and
// the ratio of the medians is compared with the bar.
func TestMeasureInTurns(t *testing.T) {
	t.Parallel()
	l := newLab(t)

	var order strings.Builder
	ours, theirs := []float64{1000, 6, 2, 4}, []float64{1000, 2, 2, 2}
	next := func(letter string, from *[]float64) func(context.Context, *lab) (float64, error) {
		return func(ctx context.Context, l *lab) (float64, error) {
			order.WriteString(letter)
			n, err := l.rdb.DBSize(ctx).Result()
			if err != nil {
				return 0, err
			}
			if n != 0 {
				return 0, errors.New("redis is not empty before a round")
			}
			v := (*from)[0]
			*from = (*from)[1:]
			return v, l.rdb.Set(ctx, "left:behind", 1, 0).Err()
		}
	}
	got, err := measure(t.Context(), l, row{
		name: "a.b", unit: "ms", rounds: 3, bar: atMost(1.5),
		measure: next("o", &ours), yardstick: next("y", &theirs),
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if want := "oyoyoyoy"; order.String() != want {
		t.Errorf("rounds ran as %s, want %s", order.String(), want)
	}
	if got.Value != 4 || *got.Yardstick != 2 || *got.Ratio != 2 || got.OK {
		t.Errorf("got value %v, yardstick %v, ratio %v, ok %v; want 4, 2, 2, false", got.Value, *got.Yardstick, *got.Ratio, got.OK)
	}
}

func TestRunPrintsJSON(t *testing.T) {
	t.Parallel()
	newLab(t) // skips where there is no Redis

	var out, log bytes.Buffer
	if err := run(t.Context(), []string{"-json", "-only", "machine.redis_round", "-rounds", "1"}, &out, &log); err != nil {
		t.Fatalf("run: %v\n%s", err, log.String())
	}
	var got []map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("output is not JSON: %v\n%s", err, out.String())
	}
	if len(got) != 1 {
		t.Fatalf("got %d rows, want 1", len(got))
	}
	for _, field := range []string{"name", "value", "unit", "yardstick", "ratio", "bar", "ok"} {
		if _, ok := got[0][field]; !ok {
			t.Errorf("row has no %q: %v", field, got[0])
		}
	}
	if v, _ := got[0]["value"].(float64); v <= 0 {
		t.Errorf("got a round trip of %v µs, want more than 0", got[0]["value"])
	}
}

func TestRunRefusesUnknownRows(t *testing.T) {
	t.Parallel()
	var out, log bytes.Buffer
	if err := run(t.Context(), []string{"-only", "nothing."}, &out, &log); !errors.Is(err, errUsage) {
		t.Errorf("got error %v, want wrong usage", err)
	}
}

// Every name is "area.what" and there is one of each.
func TestRowNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range rows() {
		area, what, ok := strings.Cut(r.name, ".")
		if !ok || area == "" || what == "" || strings.ContainsAny(r.name, " \t") {
			t.Errorf("row %q is not named area.what", r.name)
		}
		if seen[r.name] {
			t.Errorf("two rows are named %q", r.name)
		}
		seen[r.name] = true
		if r.measure == nil || r.unit == "" {
			t.Errorf("row %q measures nothing or has no unit", r.name)
		}
	}
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if _, err := exec.LookPath(cmp.Or(os.Getenv("MUSTER_TEST_REDIS_SERVER"), "redis-server")); err != nil {
		t.Skip("NOT COVERED: the harness needs a redis-server on PATH or in MUSTER_TEST_REDIS_SERVER")
	}
	l, err := openLab(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

// A round that takes too long ends with the reason.
func TestRoundEnds(t *testing.T) {
	t.Parallel()
	r := row{limit: time.Millisecond}
	_, err := r.round(t.Context(), newLab(t), func(ctx context.Context, _ *lab) (float64, error) {
		<-ctx.Done()
		return 0, errors.New("half way")
	})
	if err == nil || !strings.Contains(err.Error(), "longer than 1ms") || !strings.Contains(err.Error(), "half way") {
		t.Errorf("got error %v, want that the round takes longer than 1ms, half way", err)
	}
}

// Rows that share a run measure it once.
func TestSharedRunsOnce(t *testing.T) {
	t.Parallel()
	runs := 0.0
	value := shared(func(context.Context, *lab) (float64, error) { runs++; return runs, nil })
	for _, factor := range []float64{10, 20} {
		got, err := value(func(v float64) float64 { return v * factor })(t.Context(), nil)
		if got != factor || err != nil {
			t.Errorf("got %v, %v, want %v", got, err, factor)
		}
	}
}
